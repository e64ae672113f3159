"""What `briquette new-pack` writes, for every role: linted, built, installed from wheels in an empty environment, tested there.

One environment serves all roles, which also shows that they stand side by side. What the conformance kit says of them is asked
as soon as this workspace holds the kit.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from briquette_cli.newpack import MAX_NAME, ROLES, write

pytestmark = [pytest.mark.slow, pytest.mark.network]

KIT = "test_conformance.py"

#: what a role's pack must run as one kernel, in any order; P stands for the pack's own stage
GROUPS = {
    "predictor": [["linear-quantizer", "P", "plain-rate"]],
    "transform": [["linear-quantizer", "lorenzo-1d", "P", "plain-rate"]],
    "coder": [["linear-quantizer", "lorenzo-1d", "P"]],
    "quantizer": [["P", "lorenzo-1d", "plain-rate"]],
    "selector": [["linear-quantizer", "P", "plain-rate"]],
    "chunk-op": [["linear-quantizer", "chunk-difference", "negabinary", "P", "zero-elimination"]],
    "staged": [["linear-quantizer", "lorenzo-1d"], ["zigzag", "plain-rate"]],
}


def name_of(role: str) -> str:
    return f"acme-made-{role}"


def has_kit(repo_root: Path) -> bool:
    return (repo_root / "harnesses" / "conformance" / "pyproject.toml").is_file()


def tool(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run([sys.executable, "-m", *map(str, command)], cwd=cwd, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def commands(page: Path) -> list[str]:
    """Return the three commands of the page, from new-pack to tests that pass."""
    (block,) = re.findall(r"<!-- three commands -->\n```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [line.partition("  #")[0] for line in block.splitlines()]


@pytest.fixture(scope="module")
def made(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """The packs of all roles, and beside them one of the longest name a role may have."""

    def fill(folder: Path) -> None:
        for role in ROLES:
            write(name_of(role), role, folder / name_of(role))
            write("a" + "b" * (MAX_NAME - 5) + f"-{list(ROLES).index(role):03}", role, folder / "longest" / role)

    return once("new-packs", fill)


@pytest.fixture(scope="module")
def environment(
    made: Path, distributions: list[Any], make_environment: Any, once: Callable[[str, Callable[[Path], None]], Path]
) -> Any:
    """An environment with briquette's wheels, pytest and the wheels of all roles; made once a run."""

    def fill(folder: Path) -> None:
        empty = make_environment("new-packs-installed")
        built = [made / name_of(role) for role in ROLES]
        tool("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder / "wheels", *built, cwd=folder)
        wheels = sorted((folder / "wheels").glob("*.whl"))
        assert len(wheels) == len(ROLES)
        empty.pip("install", "--quiet", *(dist.wheel for dist in distributions), *wheels, "pytest>=8")
        (folder / "where").write_text(str(empty.folder))

    folder = once("new-packs-environment", fill)
    return type(make_environment("unused"))(Path((folder / "where").read_text()))


def test_the_linters_find_nothing(made: Path) -> None:
    tool("ruff", "check", "--no-cache", ".", cwd=made)


def test_the_type_checker_finds_nothing(made: Path) -> None:
    sources = [made / name_of(role) / "src" for role in ROLES]
    tool("mypy", "--strict", "--cache-dir", made / ".mypy_cache", *sources, cwd=made)


@pytest.mark.parametrize("role", ROLES)
def test_it_fuses_and_its_own_tests_pass_from_wheels(role: str, made: Path, environment: Any, tmp_path: Path) -> None:
    name = name_of(role)
    plan = json.loads(environment.run("briquette", "plan", name, "--target", "host", "--json", cwd=tmp_path).stdout)
    expected = [[name if stage == "P" else stage for stage in group] for group in GROUPS[role]]
    for direction in ("compress", "decompress"):
        assert sorted(plan[direction]["groups"]) == sorted(expected), plan[direction]["not_fused"]
    tests = [path for path in sorted((made / name / "tests").glob("test_*.py")) if path.name != KIT]
    assert len(tests) >= 2
    done = environment.run("pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=tmp_path)
    assert re.search(r"\d+ passed", done.stdout)
    assert "skipped" not in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("role", [role for role in ROLES if role != "predictor"])  # the three commands run it on that one
def test_the_conformance_kit_passes(role: str, made: Path, environment: Any, repo_root: Path, tmp_path: Path) -> None:
    if not has_kit(repo_root):
        pytest.skip("this workspace has no harnesses/conformance yet: its kit cannot be asked")
    done = environment.run("pytest", "-q", "-p", "no:cacheprovider", made / name_of(role) / "tests" / KIT, cwd=tmp_path)
    assert re.search(r"\d+ passed", done.stdout)


def test_packs_of_all_roles_stand_side_by_side(environment: Any, tmp_path: Path) -> None:
    listed = json.loads(environment.run("briquette", "packs", "--json", cwd=tmp_path).stdout)["packs"]
    states = {pack["distribution"]: pack["state"] for pack in listed}
    assert {states[name_of(role)] for role in ROLES} == {"loaded"}


def test_three_commands_lead_to_a_stage_that_fuses(
    environment: Any, distributions: list[Any], repo_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the page, word for word, but that wheels of this workspace stand in for the index's."""
    first, second, third = commands(repo_root / "docs" / "fifteen-minutes.md")
    environment.run(*shlex.split(first), cwd=tmp_path)
    pip, *arguments = shlex.split(second)
    assert pip == "pip"
    if not has_kit(repo_root):  # the extra asks for it
        arguments[-1] = arguments[-1].removesuffix("[test]")
    monkeypatch.chdir(tmp_path)
    environment.pip(*arguments, "--quiet", *(f"--find-links={dist.wheel.parent}" for dist in distributions))
    done = environment.run(*shlex.split(third), *([] if has_kit(repo_root) else ["--ignore-glob", f"*/{KIT}"]), cwd=tmp_path)
    assert re.search(r"\d+ passed", done.stdout)
    name = shlex.split(third)[-1]
    plan = json.loads(environment.run("briquette", "plan", name, "--target", "host", "--json", cwd=tmp_path).stdout)
    assert plan["compress"]["launches"] == plan["decompress"]["launches"] == 1


#: a fault in the policy of a role (the page in tests/docs has one for predictors): the file, what stands there, what replaces it
FAULTS = {
    "coder": ("cuda/stage.cuh", "uint8_t(value >> (8 * b))", "uint8_t(value >> (8 * b) ^ b)"),
    "quantizer": ("cuda/stage.cuh", "rintf(x * p.inverse)", "floorf(x * p.inverse)"),
    "selector": ("cuda/stage.cuh", "based_words < plain_words", "based_words <= plain_words"),
    "chunk-op": ("cuda/stage.cuh", "i / words : i];", "i / words : bytes - 1];"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("role", FAULTS)
def test_its_own_tests_find_a_planted_fault(role: str, environment: Any, tmp_path: Path) -> None:
    name = f"acme-faulty-{role}"
    write(name, role, tmp_path / name)
    file, text, other = FAULTS[role]
    path = tmp_path / name / "src" / name.replace("-", "_") / file
    source = path.read_text(encoding="utf-8")
    assert source.count(text) == 1
    path.write_text(source.replace(text, other), encoding="utf-8")
    pip = ("pip", "install", "--quiet", "--no-deps", "--no-build-isolation")
    tool(*pip, "--target", tmp_path / "site", tmp_path / name, cwd=tmp_path)
    tests = [path for path in sorted((tmp_path / name / "tests").glob("test_*.py")) if path.name != KIT]
    start = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    said = environment.run("python", "-c", start, "-q", "-x", "-p", "no:cacheprovider", *tests, cwd=tmp_path, fails=True).stdout
    assert re.search(r"\b1 failed\b", said), said  # an assertion, or what briquette says of bytes that no coder wrote
