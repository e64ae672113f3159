"""Finding the headers that generated source includes."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from briquette import sources
from briquette.errors import DeclarationError
from briquette.sources import included, owner_of, resolve_headers
from briquette.target import KernelSource


def unit(text: str) -> KernelSource:
    return KernelSource("unit", text, ())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the path that holds pack `srcpack_a`, which must not be imported, and namespace pack `srcpack_ns`."""
    root = tmp_path / "sité packages"
    for name, text in {
        "srcpack_a/__init__.py": "raise SystemExit('imported')",
        "srcpack_a/cuda/one.cuh": "#include <srcpack_a/cuda/two.cuh>\n#include <stdint.h>\nint one;",
        "srcpack_a/cuda/two.cuh": "#pragma once\n#include <srcpack_a/cuda/one.cuh>\n// größe\nint two;",
        "srcpack_a/cuda/latin.cuh": b"// gr\xf6\xdfe",
        "srcpack_ns/cuda/x.cuh": "int x;",
        "srcmodule.py": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.syspath_prepend(str(root))
    return root


def test_headers_are_found_recursively_without_importing_the_pack(site: Path) -> None:
    headers = resolve_headers(unit("#include <srcpack_a/cuda/one.cuh>\n"))
    assert list(headers.texts) == ["srcpack_a/cuda/one.cuh", "srcpack_a/cuda/two.cuh"]
    assert headers.texts["srcpack_a/cuda/two.cuh"].endswith("größe\nint two;")
    assert "srcpack_a" not in sys.modules


def test_a_namespace_package_is_a_pack_too(site: Path) -> None:
    assert resolve_headers(unit("#include <srcpack_ns/cuda/x.cuh>")).texts == {"srcpack_ns/cuda/x.cuh": "int x;"}


def test_headers_are_read_from_a_zip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "packs.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("srcpack_zip/__init__.py", "raise SystemExit('imported')")
        file.writestr("srcpack_zip/cuda/x.cuh", "int x;")
    monkeypatch.syspath_prepend(str(archive))
    assert resolve_headers(unit("#include <srcpack_zip/cuda/x.cuh>")).texts == {"srcpack_zip/cuda/x.cuh": "int x;"}
    with pytest.raises(DeclarationError, match=r"has no file 'cuda/y\.cuh'"):
        resolve_headers(unit("#include <srcpack_zip/cuda/y.cuh>"))


def test_overrides_replace_what_is_installed_and_may_include_it(site: Path) -> None:
    given = {"srcpack_a/cuda/one.cuh": "#include <absent/cuda/z.cuh>", "absent/cuda/z.cuh": "#include <srcpack_ns/cuda/x.cuh>"}
    headers = resolve_headers(unit("#include <srcpack_a/cuda/one.cuh>"), given)
    assert list(headers.texts) == ["srcpack_a/cuda/one.cuh", "absent/cuda/z.cuh", "srcpack_ns/cuda/x.cuh"]


@pytest.mark.parametrize(
    "text",
    [
        "#include <stdint.h>",
        "#include <sys/types.h>",
        '#include "pack/cuda/x.cuh"',
        "#include <x.cuh>",
        "#include <cub/block/block_scan.cuh>",
        "// #include <pack/cuda/x.cuh>",
        "/*\n#include <pack/cuda/x.cuh>\n*/",
        'const char *s = "\\"\\\n#include <pack/cuda/x.cuh>";',
        "int a; #include <pack/cuda/x.cuh>",
    ],
)
def test_other_includes_are_left_to_the_compiler(text: str) -> None:
    assert list(included(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "#include <pack/cuda/x.cuh>",
        "  #  include\t<pack/cuda/x.cuh> // why",
        "// see pack/*.cuh\n#include <pack/cuda/x.cuh>\n// and */",
        'auto s = "/*";\n#include <pack/cuda/x.cuh>\r\n',
        "#ifdef NEVER\n#include <pack/cuda/x.cuh>\n#endif",
    ],
)
def test_pack_headers_are_recognized(text: str) -> None:
    assert list(included(text)) == ["pack/cuda/x.cuh"]


def test_a_pack_that_is_not_installed_is_named(site: Path) -> None:
    with pytest.raises(DeclarationError) as raised:
        resolve_headers(unit("#include <srcpack_none/cuda/x.cuh>"))
    assert "the generated source 'unit' includes <srcpack_none/cuda/x.cuh>" in str(raised.value)
    assert "no package 'srcpack_none' is installed" in str(raised.value)


def test_a_plain_module_is_no_pack(site: Path) -> None:
    with pytest.raises(DeclarationError, match="no package 'srcmodule' is installed"):
        resolve_headers(unit("#include <srcmodule/cuda/x.cuh>"))


def test_a_file_the_pack_lacks_is_named_with_who_includes_it(site: Path) -> None:
    (site / "srcpack_a/cuda/two.cuh").unlink()
    with pytest.raises(DeclarationError) as raised:
        resolve_headers(unit("#include <srcpack_a/cuda/one.cuh>"))
    assert "<srcpack_a/cuda/one.cuh> includes <srcpack_a/cuda/two.cuh>" in str(raised.value)
    assert "package 'srcpack_a') has no file 'cuda/two.cuh'" in str(raised.value)


def test_a_path_that_leaves_the_pack_is_refused(site: Path) -> None:
    with pytest.raises(DeclarationError, match=r"without '\.' or '\.\.'"):
        resolve_headers(unit("#include <srcpack_a/../srcpack_ns/cuda/x.cuh>"))


def test_a_header_that_is_not_utf8_is_named(site: Path) -> None:
    with pytest.raises(DeclarationError, match=r"header <srcpack_a/cuda/latin\.cuh> of srcpack_a is not UTF-8"):
        resolve_headers(unit("#include <srcpack_a/cuda/latin.cuh>"))


def test_the_owner_of_a_header_is_its_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_distributions", lambda: {"pack": ["briquette-b", "briquette-a", "briquette-a"]})
    assert owner_of("pack/cuda/x.cuh") == "briquette-a, briquette-b"
    assert owner_of("unknown/cuda/x.cuh") == "unknown"


def test_installed_distributions_are_looked_up() -> None:
    assert owner_of("pytest/cuda/x.cuh") == "pytest"


def test_metadata_is_not_read_unless_asked(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> None:
        raise AssertionError("reads the metadata of everything installed")

    monkeypatch.setattr(sources, "_distributions", read)
    headers = resolve_headers(unit("#include <srcpack_a/cuda/one.cuh>"))
    with pytest.raises(AssertionError):
        headers.owner("srcpack_a/cuda/one.cuh")


def test_a_pack_installed_after_the_first_look_up_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sources.owner_of("late_pack/cuda/a.cuh") == "late_pack"
    info = tmp_path / "late_pack_dist-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: late-pack-dist\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("late_pack\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert sources.owner_of("late_pack/cuda/a.cuh") == "late-pack-dist"
