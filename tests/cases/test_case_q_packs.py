"""Cases Q: packs that misbehave, clash or are absent, as users of the API and of the command line meet them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import casekit
import numpy as np
import pytest

import briquette as bq

STAGE = '''
from dataclasses import dataclass
from briquette.stage import Stage

@dataclass(frozen=True)
class Negate(Stage):
    """Change the sign of codes, in NumPy only."""

    name = "{name}"

    def output_types(self, inputs):
        return {{"out": inputs["in"]}}

    def forward(self, inputs, scope):
        return {{"out": -inputs["in"]}}

    def inverse(self, outputs, scope):
        return {{"in": -outputs["out"]}}
'''

TARGET = """
from briquette.target import Target

class Elsewhere(Target):
    name = "{name}"
    priority = 99
    def unavailable(self):
        return "it is elsewhere"
    def compile(self, source):
        raise NotImplementedError
    def map(self, work, items, threads):
        return [work(item) for item in items]
"""

Install = Callable[..., None]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory on the path of the programs that a test starts."""
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


@pytest.fixture
def install(site: Path) -> Install:
    """Return a function that installs a distribution as a folder of metadata and a module."""

    def make(name: str, entry_points: Mapping[str, Mapping[str, str]], code: str | None, version: str = "1.5") -> None:
        module = name.replace("-", "_")
        info = site / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        groups = (f"[briquette.{g}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for g, names in entry_points.items())
        (info / "entry_points.txt").write_text("\n".join(groups))
        if code is not None:
            (site / f"{module}.py").write_text(textwrap.dedent(code))

    return make


@pytest.fixture
def command(site: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs `briquette` with those packs and checks its exit code; `tmp_path` holds ``x.npy``."""
    np.save(tmp_path / "x.npy", np.sin(np.arange(30_000) / 30).astype(np.float32))
    end = "sys.exit(main())"

    def run(*arguments: str, code: int = 0, alone: bool = False) -> subprocess.CompletedProcess[str]:
        path = {} if alone else {"PYTHONPATH": str(site)}
        start = f"import sys; sys.argv[0] = 'briquette'; from briquette_cli.main import main; {end}"
        done = casekit.python(start, tmp_path, *arguments, env=path, fails=bool(code))
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    return run


Command = Callable[..., subprocess.CompletedProcess[str]]


def misbehave(install: Install) -> None:
    """Install one pack for each way of misbehaving that the case lists."""
    import_error = "raise ImportError('libfoo.so.3: cannot open shared object file')"
    install("evil-import", {"stages": {"needs-foo": "evil_import:Foo"}, "harnesses": {"foo": "evil_import:H"}}, import_error)
    exits = "import sys\nsys.exit(3)"
    install("evil-exit", {n: {"quits": "evil_exit:X"} for n in ("stages", "harnesses", "targets", "plugins", "presets")}, exits)
    half = STAGE.format(name="whole")
    install("evil-half", {"stages": {"whole": "evil_half:Negate", "half": "evil_half:Missing"}}, half)
    install("evil-gone", {"stages": {"gone": "evil_gone.sub:Gone"}, "targets": {"gone": "evil_gone:T"}}, None)
    install("evil-print", {"targets": {"prints": "evil_print:Elsewhere"}}, "print('HELLO')\n" + TARGET.format(name="prints"))
    asks = TARGET.format(name="asks").replace('return "it is elsewhere"', "raise SystemExit('no licence')")
    install("evil-ask", {"targets": {"asks": "evil_ask:Elsewhere"}}, asks)
    slow = "import time\ntime.sleep(5)\n" + STAGE.format(name="slow")
    install("evil-slow", {"stages": {"slow": "evil_slow:Negate"}}, slow)


def test_q1_the_rest_works_and_says_what_does_not(install: Install, command: Command, tmp_path: Path) -> None:
    expected = bq.compress(np.load(tmp_path / "x.npy"), 1e-3)
    misbehave(install)
    made = command("compress", "x.npy", "--eb", "1e-3", "--json")
    assert json.loads(made.stdout)["raw"] is False, "standard output carries JSON and nothing else"
    assert (tmp_path / "x.npy.bq").read_bytes() == expected
    warned = [line for line in made.stderr.splitlines() if line.startswith("warning: ")]
    for pack, why in (("evil-import 1.5", "libfoo"), ("evil-exit 1.5", "SystemExit"), ("evil-gone 1.5", "evil_gone")):
        assert any(pack in line and why in line for line in warned), (pack, warned)
    assert len(warned) == len(set(warned))
    assert json.loads(command("info", "x.npy.bq", "--json").stdout)["shape"] == [30_000]
    command("decompress", "x.npy.bq", "-o", "y.npy")
    casekit.assert_bound(np.load(tmp_path / "x.npy"), np.load(tmp_path / "y.npy"), 1e-3)
    assert "Exit codes" in command("--help").stdout
    targets = {t["name"]: t["unavailable"] for t in json.loads(command("targets", "--json").stdout)["targets"]}
    assert (targets["prints"], targets["numpy"]) == ("it is elsewhere", None)
    assert "SystemExit: no licence" in targets["asks"]


def test_q1_packs_lists_each_with_its_error(install: Install, command: Command) -> None:
    misbehave(install)
    listed = {p["distribution"]: p for p in json.loads(command("packs", "--json").stdout)["packs"]}
    for pack, why in (
        ("evil-import", "libfoo.so.3: cannot open shared object file"),
        ("evil-exit", "SystemExit: 3"),
        ("evil-half", "Missing"),
        ("evil-gone", "reinstall or uninstall evil-gone"),
    ):
        assert listed[pack]["state"] == "broken", listed[pack]
        assert why in listed[pack]["reason"], listed[pack]
    assert any("'HELLO'" in note for note in listed["evil-print"]["notes"])
    assert any("took 5." in note for note in listed["evil-slow"]["notes"])
    assert listed["evil-slow"]["state"] == listed["briquette-quantize"]["state"] == "loaded"


USE = """
import sys, time, warnings
import numpy as np
import briquette as bq
from briquette import discovery
x = np.load("x.npy")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    begin = time.perf_counter()
    y = bq.decompress(bq.compress(x, 1e-3))
    assert time.perf_counter() - begin < 60
assert "evil_slow" not in sys.modules, "what is not used is not loaded"
said = [str(w.message) for w in caught if issubclass(w.category, discovery.PackWarning)]
for pack in ("evil-import", "evil-exit", "evil-gone"):
    assert any(pack in text for text in said), said
good = bq.Pipeline.from_toml('[[stage]]\\nuse = "whole"\\n[[stage]]\\nuse = "plain-rate"\\n')
codes = np.arange(5000, dtype="int32")
assert (bq.decompress(good.compress(codes)) == codes).all()
for name, why in (("half", "Missing"), ("needs-foo", "libfoo"), ("quits", "SystemExit: 3"), ("gone", "evil-gone")):
    try:
        bq.Pipeline.from_toml(f'[[stage]]\\nuse = "{name}"\\n')
    except bq.BriquetteError as exc:
        assert why in str(exc), exc
    else:
        raise SystemExit(f"{name} was usable")
for target, why in (("prints", "it is elsewhere"), ("asks", "no licence")):
    try:
        bq.compress(x, 1e-3, target=target)
    except bq.BriquetteError as exc:
        assert why in str(exc), exc
    else:
        raise SystemExit(f"{target} was usable")
"""


def test_q1_through_the_api(install: Install, command: Command, site: Path, tmp_path: Path) -> None:
    misbehave(install)
    done = casekit.python(USE, tmp_path, env={"PYTHONPATH": str(site)})
    assert done.stdout == ""


def write_pipeline(folder: Path, *uses: str) -> str:
    (folder / "mine.toml").write_text("".join(f'[[stage]]\nuse = "{use}"\n' for use in uses))
    return "mine.toml"


def test_q2_two_packs_with_one_stage_name(install: Install, command: Command, tmp_path: Path) -> None:
    for pack in ("acme-one", "acme-two"):
        install(pack, {"stages": {"negate": f"{pack.replace('-', '_')}:Negate"}}, STAGE.format(name="negate"))
    said = command("plan", write_pipeline(tmp_path, "linear-quantizer", "negate", "plain-rate"), code=5).stderr
    assert "'negate' of pack acme-one 1.5" in said
    assert "'negate' of pack acme-two 1.5" in said
    assert "'acme-one:negate'" in said
    assert "'acme-two:negate'" in said
    for pack in ("acme-one", "acme-two"):
        mine = write_pipeline(tmp_path, "linear-quantizer", f"{pack}:negate", "plain-rate")
        command("compress", "x.npy", "--eb", "1e-3", "--pipeline", mine, "--force")
        stages = json.loads(command("info", "x.npy.bq", "--json").stdout)["stages"]
        assert stages[1]["stage"] == f"{pack}:negate"
        assert command("verify", "x.npy.bq", "x.npy").returncode == 0
    assert {"acme-one:negate", "acme-two:negate"} <= {s["name"] for s in json.loads(command("stages", "--json").stdout)["stages"]}


def test_q2_a_name_equal_to_a_first_party_one(install: Install, command: Command, tmp_path: Path) -> None:
    expected = bq.compress(np.load(tmp_path / "x.npy"), 1e-3)
    names = ("plain-rate", "linear-quantizer", "lorenzo-1d")
    classes = "\n".join(STAGE.format(name=n).replace("Negate", f"S{i}") for i, n in enumerate(names))
    install("acme-rival", {"stages": {n: f"acme_rival:S{i}" for i, n in enumerate(names)}}, classes)
    said = command("plan", write_pipeline(tmp_path, "linear-quantizer"), code=5).stderr
    assert "acme-rival 1.5" in said
    assert "briquette-quantize" in said
    command("plan", write_pipeline(tmp_path, "briquette-quantize:linear-quantizer", "briquette-bitpack:plain-rate"))
    # presets name the packs of their stages, and archives do: neither changes its meaning or stops working
    command("compress", "x.npy", "--eb", "1e-3")
    assert (tmp_path / "x.npy.bq").read_bytes() == expected
    command("verify", "x.npy.bq", "x.npy")


def test_q2_names_that_differ_by_case_only(install: Install, command: Command, tmp_path: Path) -> None:
    install("acme-lower", {"stages": {"negate": "acme_lower:Negate"}}, STAGE.format(name="negate"))
    install("acme-upper", {"stages": {"Negate": "acme_upper:Negate"}}, STAGE.format(name="Negate"))
    said = command("plan", write_pipeline(tmp_path, "negate"), code=5).stderr
    assert "acme-lower 1.5" in said
    assert "acme-upper 1.5" in said
    assert "case" in said
    command("plan", write_pipeline(tmp_path, "acme-lower:negate"))


def test_q3_an_archive_whose_pack_is_absent(install: Install, command: Command, tmp_path: Path) -> None:
    install("acme-sign", {"stages": {"negate": "acme_sign:Negate"}}, STAGE.format(name="negate"), version="2.7.1")
    mine = write_pipeline(tmp_path, "linear-quantizer", "negate", "plain-rate")
    command("compress", "x.npy", "--eb", "1e-3", "--pipeline", mine)
    blob = (tmp_path / "x.npy.bq").read_bytes()
    assert np.abs(np.load(tmp_path / "x.npy")).max() <= 1

    for use in (bq.decompress, lambda b: bq.verify(b, np.load(tmp_path / "x.npy"))):
        with pytest.raises(bq.BriquetteError) as caught:
            use(blob)
        error = caught.value
        assert type(error).__name__ == "MissingPack"
        assert (error.stage, error.version, error.distribution) == ("acme-sign:negate", "2.7.1", "acme-sign")
        assert "pip install acme-sign" in str(error)
        assert "2.7.1" in str(error)
    assert bq.info(blob)["stages"][1]["stage"] == "acme-sign:negate"
    assert bq.verify(blob).ok, "checksums need no pack"

    said = command("decompress", "x.npy.bq", "-o", "y.npy", code=5, alone=True).stderr
    assert "pip install acme-sign" in said
    assert not (tmp_path / "y.npy").exists()
    assert "acme-sign 2.7.1" in command("info", "x.npy.bq", alone=True).stdout
    command("verify", "x.npy.bq", alone=True)
    command("decompress", "x.npy.bq", "-o", "y.npy")
    casekit.assert_bound(np.load(tmp_path / "x.npy"), np.load(tmp_path / "y.npy"), 1e-3)
    assert sys.modules.get("acme_sign") is None
