"""Cases N, O and P: odd locales and directories, damaged caches, second processes, no GPU software or the wrong one."""

from __future__ import annotations

import json
import locale
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import casekit
import numpy as np
import pytest

import briquette as bq
from briquette_cli.main import COMMANDS

#: compresses with a preset and prints what it took; the field does not depend on the process
WORK = """
import hashlib, json, locale, sys
import numpy as np
locale.setlocale(locale.LC_ALL, sys.argv[2])
before = locale.setlocale(locale.LC_ALL), locale.localeconv()["decimal_point"]
import briquette as bq
from briquette import discovery
x = np.sin(np.arange(30_000) / 30).astype("float32")
pipe = bq.Pipeline.from_toml(sys.argv[1])
if "bound" not in sys.argv[1]:
    x = (1000 * x).astype("int32")
blob = pipe.compress(x, target="host")
y = bq.decompress(blob, target="host")
assert (np.abs(x.astype(float) - y) <= 1e-3).all()
assert (locale.setlocale(locale.LC_ALL), locale.localeconv()["decimal_point"]) == before
host = discovery.registry().target("host")
print(json.dumps({
    "archive": hashlib.sha256(blob).hexdigest(),
    "compiled": host.compile_counts.compiled,
    "from_disk": host.compile_counts.from_disk,
    "cache": str(host.cache.directory).encode("utf-8", "surrogateescape").decode("utf-8"),
}))
"""

#: one stage compiles fastest
CODER = '[[stage]]\nuse = "briquette-bitpack:plain-rate"\n'

PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
OWN_CACHE = {"BRIQUETTE_CACHE_DIR": "", "XDG_CACHE_HOME": ""}

needs_compiler = pytest.mark.skipif(bool(casekit.host_missing()), reason=casekit.host_missing() or "")


def work(cwd: Path, pipeline: str, env: Mapping[str, str], named: str = "") -> dict[str, Any]:
    done = casekit.python(WORK, cwd, pipeline, named, env=env)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def strange(tmp_path: Path) -> Mapping[str, str]:
    """Home and temporary directories with a space and letters that are not ASCII."""
    home, temporary = tmp_path / "Zo\u00eb \u0141 home", tmp_path / "tmp \u00fc\u4e2d dir"
    home.mkdir()
    temporary.mkdir()
    return {"HOME": str(home), "TMPDIR": str(temporary), **OWN_CACHE}


@needs_compiler
def test_n2_o2_odd_homes_and_the_c_locale_compile_once(strange: Mapping[str, str], tmp_path: Path) -> None:
    pipeline = bq.Pipeline.from_preset("fast").to_toml() + "\n[bound]\neb = 1e-3\n"
    first = work(tmp_path, pipeline, {**strange, **PLAIN})
    assert first["cache"].startswith(strange["HOME"])
    assert (first["compiled"], first["from_disk"]) == (2, 0)
    second = work(tmp_path, pipeline, strange)  # another locale, the same entries
    assert (second["compiled"], second["from_disk"]) == (0, 2)
    assert first["archive"] == second["archive"]
    assert list(Path(strange["TMPDIR"]).iterdir()) == []


def comma_locale() -> str | None:
    """An installed locale that writes a comma in numbers, or None."""
    before = locale.setlocale(locale.LC_ALL)
    try:
        for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "nl_NL.UTF-8"):
            try:
                locale.setlocale(locale.LC_ALL, name)
            except locale.Error:
                continue
            return name
        return None
    finally:
        locale.setlocale(locale.LC_ALL, before)


@needs_compiler
def test_n2_a_decimal_comma(strange: Mapping[str, str], tmp_path: Path) -> None:
    name = comma_locale()
    if name is None:
        pytest.skip("no locale with a decimal comma is installed")
    made = {work(tmp_path, CODER, strange, named)["archive"] for named in ("C", name)}
    assert len(made) == 1


@needs_compiler
def test_o1_damaged_entries_are_compiled_anew(strange: Mapping[str, str], tmp_path: Path) -> None:
    expected = work(tmp_path, CODER, strange)
    assert expected["compiled"] == 2
    cache = Path(expected["cache"])
    entries = sorted(p for p in cache.rglob("*") if p.is_file() and p.stat().st_size > 1000)
    assert len(entries) >= 2
    for i, entry in enumerate(entries):
        held = bytearray(entry.read_bytes())
        if i % 2:
            held[len(held) // 2] ^= 4
        entry.write_bytes(held if i % 2 else held[: len(held) // 2])
    again = work(tmp_path, CODER, strange)
    assert again["archive"] == expected["archive"]
    assert again["compiled"] == 2
    assert work(tmp_path, CODER, strange)["compiled"] == 0
    shutil.rmtree(cache)
    cache.write_text("a file where the directory should be")
    assert work(tmp_path, CODER, strange)["archive"] == expected["archive"]


BLOCKED = """
import importlib.abc, sys
asked = []
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("cuda", "cupy", "cupy_backends", "torch", "numba", "nvidia", "pynvml", "jax"):
            asked.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""

EVERYTHING = """
import json, sys
import numpy as np
import briquette as bq
from briquette import discovery
registry = discovery.registry()
assert {"fast", "planes", "zigzag", "adaptive"} <= set(registry.presets())
assert "linear-quantizer" in registry.stages()
assert "numpy" in registry.names("briquette.targets")
broken = [p for p in registry.packs(load=True) if p.state != "loaded"]
assert not broken, broken
blob = open("field.bq", "rb").read()
assert bq.info(blob)["shape"] == [30_000]
y = bq.decompress(blob)
assert bq.verify(blob, np.load("field.npy")).ok
assert bq.compress(np.load("field.npy"), 1e-3) == blob
print(bq.Pipeline.from_preset("planes").plan(np.float32).explain())
assert not [m for m in sys.modules if m.partition(".")[0] in ("cuda", "cupy", "torch")]
"""

COMMAND_LINE = """
import sys
from briquette_cli.main import cli
for command in json.loads(sys.argv[1]):
    try:
        cli(command)
    except SystemExit as end:
        assert not end.code, (command, end.code)
assert not [m for m in sys.modules if m.partition(".")[0] in ("cuda", "cupy", "torch")]
"""

SURROUNDINGS = ("no cuda packages", "a local file called cuda.py", "cuda packages of another major")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a field and its archive."""
    x = np.sin(np.arange(30_000) / 30).astype(np.float32)
    np.save(tmp_path / "field.npy", x)
    (tmp_path / "field.bq").write_bytes(bq.compress(x, 1e-3))
    return tmp_path


def surround(place: Path, name: str) -> tuple[str, dict[str, str]]:
    """Return code to run first, and the environment."""
    env = {"CUDA_VISIBLE_DEVICES": "", "CUDA_HOME": "", "CUDA_PATH": "", "LD_LIBRARY_PATH": ""}
    if name == "no cuda packages":
        return BLOCKED, env
    if name == "a local file called cuda.py":
        (place / "cuda.py").write_text("raise SystemExit('the local cuda.py was imported')\n")
        return "import sys\nassert sys.path[0] == ''\n", env
    site = place / "site"
    for module in ("cuda", "cuda/core", "cuda/bindings", "cupy"):
        (site / module).mkdir(parents=True)
        (site / module / "__init__.py").write_text("__version__ = '99.0'\nraise ImportError('made for CUDA 99')\n")
    return "", {**env, "PYTHONPATH": str(site)}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_p1_the_api_needs_no_gpu_software(name: str, place: Path) -> None:
    before, env = surround(place, name)
    done = casekit.python(before + EVERYTHING, place, env=env)
    assert "plan for float32" in done.stdout
    assert not done.stderr


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_p1_the_command_line_needs_no_gpu_software(name: str, place: Path) -> None:
    before, env = surround(place, name)
    commands = [
        ["--help"],
        *([command, "--help"] for command in COMMANDS),
        *(["stages"], ["presets"], ["targets"], ["packs"], ["packs", "--json"], ["plan", "fast"], ["cache", "info"]),
        *(["info", "field.bq"], ["verify", "field.bq", "field.npy"]),
        *(["decompress", "field.bq", "-o", "back.npy"], ["compress", "field.npy", "--eb", "1e-3"]),
    ]
    done = casekit.python("import json\n" + before + COMMAND_LINE, place, json.dumps(commands), env=env)
    assert "Exit codes:" in done.stdout
    assert not done.stderr
    casekit.assert_bound(np.load(place / "field.npy"), np.load(place / "back.npy"), 1e-3)
    assert (place / "field.npy.bq").read_bytes() == (place / "field.bq").read_bytes()
