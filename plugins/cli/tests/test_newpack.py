"""`briquette new-pack`: names it refuses, files it writes, all or none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from briquette_cli import newpack
from briquette_cli.newpack import MAX_NAME, ROLES, TEMPLATES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def written(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("role", ROLES)
def test_every_role_writes_a_whole_distribution(run_json, tmp_path, role):
    made = run_json("new-pack", "acme-thing", "--role", role, "-C", tmp_path)
    folder = tmp_path / "acme-thing"
    assert made == {"name": "acme-thing", "role": role, "folder": str(folder), "files": written(folder)}
    policy = ["src/acme_thing/cuda/stage.cuh"] if role != "staged" else []
    assert set(made["files"]) == {
        ".github/workflows/ci.yml",
        "README.md",
        "pyproject.toml",
        "src/acme_thing/__init__.py",
        "src/acme_thing/pipeline.toml",
        "src/acme_thing/py.typed",
        "src/acme_thing/stage.py",
        "tests/cases.py",
        "tests/test_conformance.py",
        "tests/test_identity.py",
        "tests/test_stage.py",
        *(["tests/test_integers.py"] if role != "quantizer" else []),
        *policy,
    }
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in made["files"]}
    for name, text in texts.items():
        assert not any(word in text for word in ("my-pack", "my_pack", "MyPack", "MY-ROLE")), name
    for name in ("pyproject.toml", "README.md", "src/acme_thing/stage.py", "tests/cases.py", "tests/test_stage.py", *policy):
        assert "FILL IN" in texts[name], f"{name} does not say what to fill in"
    points = tomllib.loads(texts["pyproject.toml"])["project"]["entry-points"]
    assert points["briquette.stages"] == {"acme-thing": "acme_thing.stage:AcmeThing"}
    assert points["briquette.packs"] == {"acme-thing": "acme_thing:PACK"}
    assert "class AcmeThing(Stage)" in texts["src/acme_thing/stage.py"]
    assert 'pack = "acme-thing"' in texts["tests/test_conformance.py"]


def test_roles_and_templates_are_the_same():
    assert {path.name for path in TEMPLATES.iterdir()} == {"common", "codes", *ROLES}


def test_it_says_what_to_do_next(run, tmp_path):
    said = run("new-pack", "acme-thing", "--role", "coder", "-C", tmp_path).stdout
    assert f"pip install -e '{tmp_path / 'acme-thing'}[test]'" in said
    assert f"pytest {tmp_path / 'acme-thing'}" in said
    assert os.listdir(tmp_path) == ["acme-thing"]
    assert (tmp_path / "acme-thing").stat().st_mode & 0o700 == 0o700


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Acme_Thing", "acme-thing would do"),
        ("acmeThing", "acme-thing would do"),
        ("2fast", "fast would do"),
        ("acme--thing", "acme-thing would do"),
        ("-", "lower-case words joined by hyphens"),
        ("../escape", "escape would do"),
        ("a" * (MAX_NAME + 1), f"at most {MAX_NAME} letters"),
        ("json", "which Python has itself"),
        ("class", "which Python has itself"),
        ("numpy", "a module 'numpy' is installed already"),
        ("zigzag", "registered by"),
        ("fast", "registered by briquette-bitpack"),
        ("briquette-core", "briquette's own packs"),
        ("briquette-lorenzo", "briquette's own packs"),
    ],
)
def test_names_that_cannot_be_are_refused(run, tmp_path, name, why):
    assert why in run("new-pack", "--role", "predictor", "-C", tmp_path, "--", name, code=2).stderr
    assert os.listdir(tmp_path) == []


def test_a_folder_that_holds_something_is_left_alone(run, tmp_path):
    folder = tmp_path / "acme-thing"
    folder.mkdir()
    run("new-pack", "acme-thing", "--role", "staged", "-C", tmp_path)  # an empty one is used
    before = written(folder)
    assert "is not empty" in run("new-pack", "acme-thing", "--role", "coder", "-C", tmp_path, code=2).stderr
    assert written(folder) == before


def test_a_fault_leaves_nothing(run, tmp_path, monkeypatch):
    def full(text, words):
        if "FusedOp" in text:
            raise OSError(28, "No space left on device")
        return text

    monkeypatch.setattr(newpack, "_filled", full)
    assert "No space left" in run("new-pack", "acme-thing", "--role", "coder", "-C", tmp_path, code=1).stderr
    assert os.listdir(tmp_path) == []


def test_roles_are_listed_where_one_is_unknown(run, tmp_path):
    said = run("new-pack", "acme-thing", "--role", "wizard", "-C", tmp_path, code=2).stderr
    assert all(role in said for role in ROLES)
