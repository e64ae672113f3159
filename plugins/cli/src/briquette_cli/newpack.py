"""``briquette new-pack``: write a distribution that works as it stands, with the places to fill in marked.

The files are those of ``templates/common``, ``templates/codes`` and ``templates/ROLE``: a whole pack, whose names are the
placeholders below.
"""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from briquette import discovery
from briquette.errors import UsageError

from . import options, tables

#: what `--role` takes, and how a sentence names it
ROLES: Final = {
    "predictor": "predictor",
    "transform": "transform",
    "coder": "coder",
    "quantizer": "quantizer",
    "selector": "tile selector",
    "chunk-op": "chunk op",
    "staged": "NumPy stage",
}
#: the folders of templates that make a pack of each role; a quantizer takes no integers
_PARTS: Final = {role: ("common", role) if role == "quantizer" else ("common", "codes", role) for role in ROLES}
TEMPLATES: Final = Path(__file__).parent / "templates"
#: longer names would make lines too long for the pack's own linter
MAX_NAME: Final = 32

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@click.command("new-pack")
@click.argument("name")
@click.option("--role", required=True, type=click.Choice(list(ROLES)), help="What the pack's stage is; see docs/guide.md.")
@click.option(
    "-C",
    "--directory",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("."),
    help="Where to make the folder NAME.",
)
@options.json_option
def new_pack(name: str, role: str, directory: Path, as_json: bool) -> None:
    """Write a pack called NAME, with one stage: a whole distribution that installs, fuses and passes its tests as it stands.

    It holds pyproject.toml, declaration and NumPy form, device policy, preset, tests, README and a CI example. What to change is
    marked FILL IN. The stage, its preset and the pack have one name.
    """
    check_name(name)
    folder = directory / name
    written = write(name, role, folder)
    if as_json:
        tables.print_json({"name": name, "role": role, "folder": folder, "files": written})
        return
    click.echo(f"{folder}: {tables.count_words(len(written), 'file')}; what to change is marked FILL IN. Next:")
    shown = folder if folder.is_absolute() or folder.parts[0] == ".." else f".{os.sep}{folder}"
    click.echo(f"  pip install -e '{shown}[test]'\n  pytest {folder}")


def check_name(name: str) -> None:
    """Raise `UsageError` where `name` cannot be the name of a distribution, a package, a class and a stage at once."""
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        near = re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()).strip("-0123456789")[:MAX_NAME]
        hint = f"; {near} would do" if _NAME.fullmatch(near) else ""
        raise UsageError(f"{name!r} is no name for a pack: lower-case words joined by hyphens, at most {MAX_NAME} letters{hint}")
    module = name.replace("-", "_")
    if keyword.iskeyword(module) or module in sys.stdlib_module_names:
        raise UsageError(f"a pack {name!r} would be imported as {module!r}, which Python has itself; choose another name")
    packs = discovery.registry().packs()
    if name == "briquette" or name.startswith("briquette-"):
        raise UsageError(f"{name!r} is a name that briquette's own packs have, and could take the place of one; choose another")
    for pack in packs:
        if pack.distribution != name and {*pack.names.get("stages", ()), *pack.names.get("presets", ())} & {name}:
            raise UsageError(f"a stage or preset {name!r} is registered by {pack.distribution} already; choose another name")
    if importlib.util.find_spec(module) is not None and not any(pack.distribution == name for pack in packs):
        raise UsageError(f"a module {module!r} is installed already, and {name!r} would hide it; choose another name")


def write(name: str, role: str, folder: Path) -> list[str]:
    """Write the pack's files to `folder`, all or none, and return their names; raise `UsageError` where it exists."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not empty; choose another name or --directory")
    folder.parent.mkdir(parents=True, exist_ok=True)
    words = {
        "my-pack": name,
        "my_pack": name.replace("-", "_"),
        "MyPack": "".join(part.capitalize() for part in name.split("-")),
        "MY-ROLE": ROLES[role],
    }
    written = []
    staging = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
    try:
        for part in (TEMPLATES / name for name in _PARTS[role]):
            for source in _files(part):
                path = _filled(source.relative_to(part).as_posix(), words)
                (staging / path).parent.mkdir(parents=True, exist_ok=True)
                (staging / path).write_text(_filled(source.read_text(encoding="utf-8"), words), encoding="utf-8")
                written.append(path)
        staging.chmod(0o777 & ~_umask())  # mkdtemp's is the owner's alone
        os.replace(staging, folder)  # an empty folder gives way
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return sorted(written)


def _files(folder: Path) -> list[Path]:
    # installers compile whatever ends in .py
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]


def _filled(text: str, words: dict[str, str]) -> str:
    return re.sub("|".join(map(re.escape, words)), lambda found: words[found[0]], text)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
