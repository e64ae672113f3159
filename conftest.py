"""What every test may use: real fields, fresh random inputs, a steady environment, and a reason where there is no GPU."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent

#: the files that come with the repository; one of them is the demo's
BUNDLED = (
    "tests/data/geophysics_gravity_asia_f64.npy",
    "tests/data/groundwater_conc_mnw_f32.npy",
    "tests/data/md_water_coords_f32.npy",
    "tests/data/solar_hmi_continuum_f64.npy",
    "plugins/cli/src/briquette_cli/data/ocean_sst_nemo_f32.npy",
)

#: variables that steer briquette; a test sets the ones it means to
STEERING = ("BRIQUETTE_FUSION", "BRIQUETTE_NUM_THREADS", "BRIQUETTE_DUMP_DIR", "BRIQUETTE_TUNE")

# A shared machine stalls a test now and then; `parent` keeps the profile that hypothesis chose for CI or a person.
settings.register_profile("briquette", parent=settings(), deadline=None)
settings.load_profile("briquette")


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator whose seed is new in every run and printed where a test fails; BRIQUETTE_TEST_SEED repeats one."""
    seed = int(os.environ.get("BRIQUETTE_TEST_SEED") or secrets.randbits(32))
    print(f"BRIQUETTE_TEST_SEED={seed}")
    return np.random.default_rng(seed)


def _shared() -> Path | None:
    """Return the folder of the shared corpus: $BRIQUETTE_SHARED, else ``../shared`` beside the repository, else None."""
    named = os.environ.get("BRIQUETTE_SHARED")
    if named:
        return Path(named).resolve()
    beside = ROOT.parent / "shared"
    return beside if beside.is_dir() else None


def _corpus_names() -> list[str]:
    """Return the files that the corpus lists, in the list's order, whether they are there or not."""
    shared = _shared()
    listing = shared / "data" / "README.md" if shared else None
    if listing is None or not listing.is_file():
        return []
    return re.findall(r"^\| `([^`]+\.npy)` \|", listing.read_text(encoding="utf-8"), re.MULTILINE)


def _require_shared() -> Path:
    shared = _shared()
    if shared is None:
        absent = "the shared corpus is not here: set BRIQUETTE_SHARED to it, or lay it beside the repository as ../shared"
        if os.environ.get("BRIQUETTE_REQUIRE_SHARED") == "1":
            pytest.fail(absent + " (BRIQUETTE_REQUIRE_SHARED=1)", pytrace=False)
        pytest.skip(absent)
    if not _corpus_names():
        pytest.fail(f"{shared} has no data/README.md that lists its files", pytrace=False)
    return shared


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The shared corpus's folder; skips without one, fails where one is promised or named and not whole."""
    return _require_shared()


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The repository's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def bundled_fields() -> tuple[Path, ...]:
    """The five real fields that come with the repository."""
    return tuple(ROOT / name for name in BUNDLED)


@pytest.fixture
def corpus_field(request: pytest.FixtureRequest) -> Path:
    """One file of the shared corpus a test run; a listed file that is missing fails."""
    path = _require_shared() / "data" / str(request.param)
    if not path.is_file():
        pytest.fail(f"the corpus lists {path.name}, and {path} is not there", pytrace=False)
    return path


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`bundled_field` runs a test over the repository's five files, `corpus_field` over the shared corpus's."""
    if "bundled_field" in metafunc.fixturenames:
        paths = [ROOT / name for name in BUNDLED]
        metafunc.parametrize("bundled_field", paths, ids=[path.stem for path in paths])
    if "corpus_field" in metafunc.fixturenames:
        names = _corpus_names() or ["no-corpus"]
        metafunc.parametrize("corpus_field", names, ids=[Path(name).stem for name in names], indirect=True)


def _no_gpu() -> str | None:
    """Return in one line why tests marked `gpu` cannot run here, or None."""
    try:
        from briquette_target_cuda import driver
    except ImportError as exc:
        return f"briquette-target-cuda is not installed ({exc})"
    return driver.missing()


@pytest.hookimpl(trylast=True)  # after -m and -k: a run that leaves out the tests marked gpu never asks for one
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked `gpu`, each by name, where no GPU can be used; stop where BRIQUETTE_REQUIRE_GPU=1 promises one."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    why = _no_gpu() if marked else None
    if why is None:
        return
    if os.environ.get("BRIQUETTE_REQUIRE_GPU") == "1":
        raise pytest.UsageError(f"{len(marked)} tests need a GPU: {why} (BRIQUETTE_REQUIRE_GPU=1)")
    for item in marked:
        item.add_marker(pytest.mark.skip(reason=f"needs a GPU: {why}"))


@pytest.fixture(autouse=True, scope="session")
def _steady_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Drop the caller's steering variables; compiled kernels are kept from run to run, apart from the caller's own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in STEERING:
            patch.delenv(name, raising=False)
        patch.setenv("BRIQUETTE_CACHE_DIR", str(ROOT / ".pytest_cache" / "briquette-kernels"))
        yield
