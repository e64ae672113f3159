"""Find and load what packs register through entry points.

Names come from the metadata of installed distributions and cost no import. Objects are loaded one at a time, when
they are first asked for; one that fails is kept with its error, shown by `Registry.packs`, and stops nothing else.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from . import settings as _settings
from ._entries import Entry, Origin, Pack
from ._folders import normalized
from ._forklock import ForkLock
from ._load import guarded
from ._packstatus import PackStatus, status
from ._scan import BUILTIN, DISTRIBUTION, GROUPS, FoundPack, grouped, installed
from .errors import ArchiveError, ArchiveVersionError, DeclarationError, LookupFailed, MissingPack, PackError
from .harness import Harness
from .packinfo import PackInfo
from .stage import Stage
from .target import Target

if TYPE_CHECKING:
    from ._scan import AnyPoint
    from .hooks import Hooks

__all__ = ["Origin", "PackStatus", "PackWarning", "Registry", "hooks", "refresh", "registry", "settings", "use"]

_STAGES, _HARNESSES, _TARGETS = "briquette.stages", "briquette.harnesses", "briquette.targets"
_PRESETS, _INFOS, _PLUGINS, _ALIASES = "briquette.presets", "briquette.packs", "briquette.plugins", "briquette.aliases"


class PackWarning(UserWarning):
    """Part of a pack was left out, and the rest goes on."""


class Registry:
    """What a set of packs registers.

    Parameters
    ----------
    packs : iterable of FoundPack
        See `scan` and `from_entry_points`.
    disabled : iterable of str
        Distributions whose names are not to be used.
    """

    def __init__(self, packs: Iterable[FoundPack], disabled: Iterable[str] = ()) -> None:
        off = {normalized(name) for name in disabled}
        self._lock = ForkLock(reentrant=True, lost=self._interrupted)  # loading a pack may look up what another one registers
        self._packs: list[Pack] = []
        self._index: dict[str, dict[str, list[Entry]]] = {group: {} for group in GROUPS}
        self._origins: dict[type[Stage], Origin] = {}
        for found in packs:
            pack = Pack(found, disabled=found.distribution in off)
            self._packs.append(pack)
            pack.entries = [Entry(pack, point) for point in found.points]
            if found.shadowed:
                pack.state, pack.refusal = "shadowed", f"hidden by {found.shadowed}"
                continue
            if pack.disabled:
                pack.state, pack.refusal = "disabled", "disabled by disable_packs (BRIQUETTE_DISABLE_PACKS)"
                continue
            self._add(pack)

    @classmethod
    def scan(cls) -> Registry:
        """Return the registry of what is installed, less what the settings disable."""
        return cls(installed(), _settings.load().disable_packs)

    @classmethod
    def from_entry_points(cls, points: Iterable[AnyPoint], disabled: Iterable[str] = ()) -> Registry:
        """Return a registry of these entry points only."""
        return cls(grouped(points), disabled)

    def _add(self, pack: Pack) -> None:
        own: dict[tuple[str, str], Entry] = {}
        for entry in pack.entries:
            twin = own.setdefault((entry.point.group, entry.name), entry)
            if twin is not entry:
                if twin.point.value != entry.point.value:
                    twin.problem = entry.problem = f"it is registered twice, as {twin.point.value} and {entry.point.value}"
                continue
            self._index[entry.point.group].setdefault(entry.name.casefold(), []).append(entry)

    # -- lookup --------------------------------------------------------------------------------------------

    def names(self, group: str) -> tuple[str, ...]:
        """Return the names registered in `group`, sorted, without importing anything.

        A name that several packs share comes qualified, once for each; names that are not well formed are left out.
        """
        return tuple(sorted([*BUILTIN.get(group, ()), *(name for name, _ in self._named(group))]))

    def _named(self, group: str) -> list[tuple[str, Entry]]:
        out = []
        for candidates in self._index[group].values():
            usable = [e for e in candidates if not e.pack.refusal]
            out += [(e.qualified if len(usable) > 1 else e.name, e) for e in usable if not e.problem]
        return out

    def stages(self) -> tuple[str, ...]:
        """Return the names of all stages; see `names`."""
        return self.names(_STAGES)

    def presets(self) -> tuple[str, ...]:
        """Return the names of all presets; see `names`."""
        return self.names(_PRESETS)

    def stage_class(self, name: str) -> type[Stage]:
        """Return the stage registered as `name` or ``distribution:name``.

        Raises
        ------
        LookupFailed
            Nothing registers the name.
        MissingPack
            The distribution that a qualified name asks for is not installed.
        PackError
            Several packs register the name; or the pack that does is broken, incompatible or disabled.
        DeclarationError
            What is registered is not a `Stage` subclass of that name.
        """
        return cast("type[Stage]", self._get(_STAGES, name))

    def stage_origin(self, stage: type[Stage] | str) -> Origin:
        """Return which pack registers a stage, given by class or by name.

        Raises
        ------
        LookupFailed
            No pack registers it, so that no archive could name it.
        """
        if isinstance(stage, str):
            return self._find(_STAGES, stage).origin
        known = self._origins.get(stage)
        if known is not None:
            return known
        entries = [e for e in self._index[_STAGES].get(stage.name.casefold(), []) if not e.problem]
        here = f"{stage.__module__}:{stage.__qualname__}"
        for entry in sorted(entries, key=lambda e: e.point.value.replace(" ", "") != here):
            if self._try(entry) and entry.value is stage:
                self._origins[stage] = entry.origin
                return entry.origin
        raise LookupFailed(
            f"no pack registers the stage class {stage.__qualname__} as {stage.name!r}; add the entry point "
            f'{stage.name} = "{here}" to the group {_STAGES} of its distribution, and install that'
        )

    def qualified(self, stage: type[Stage] | str) -> str:
        """Return the ``distribution:name`` of a stage; raises like `stage_origin`."""
        return self.stage_origin(stage).qualified

    def harness(self, name: str) -> Harness:
        """Return one harness; raises like `stage_class`."""
        return cast(Harness, self._get(_HARNESSES, name))

    def harnesses(self) -> list[Harness]:
        """Return all harnesses that work, by name; for each of the others a `PackWarning` is issued once."""
        return [cast(Harness, e.value) for e in self._working(_HARNESSES)]

    def target(self, name: str) -> Target:
        """Return one target that a pack registers, whether or not it can run here; raises like `stage_class`."""
        return cast(Target, self._get(_TARGETS, name))

    def targets(self) -> list[Target]:
        """Return all targets of packs that load, by name; for each of the others a `PackWarning` is issued once."""
        return [cast(Target, e.value) for e in self._working(_TARGETS)]

    def preset(self, name: str) -> str:
        """Return the TOML text of a preset; raises like `stage_class`."""
        return cast(str, self._get(_PRESETS, name))

    def plugins(self) -> list[tuple[str, object]]:
        """Return all plugins that load, by qualified name; several packs may share a name."""
        return [(e.qualified, e.value) for e in self._working(_PLUGINS, shared=True)]

    def reject(self, plugin: str, error: BaseException) -> None:
        """Keep `error` with the plugin of that qualified name, which turned out to be unusable after it was loaded."""
        for pack in self._packs:
            for entry in pack.entries:
                if entry.point.group == _PLUGINS and entry.qualified == plugin:
                    entry.state, entry.error, entry.warned = "failed", error, True

    def resolve_archived(self, stage: str, format_version: int, pack_version: str) -> type[Stage]:
        """Return the class that decodes what an archive holds for `stage`.

        Parameters
        ----------
        stage : str
            ``pack:stage`` as the archive has it. Where the pack no longer registers the stage, an alias
            (group ``briquette.aliases``, name ``pack.stage``) of any pack stands in.
        format_version : int
            Of the stage's bytes.
        pack_version : str
            Of the pack that wrote them; for the message only.

        Raises
        ------
        MissingPack
            Names what to install.
        ArchiveVersionError
            The installed stage does not read `format_version`.
        PackError
            The pack is there, but broken, incompatible or disabled.
        """
        distribution, _, name = stage.partition(":")
        if not DISTRIBUTION.fullmatch(distribution) or not name:
            raise ArchiveError(f"the archive names a stage {stage!r}, which is not of the form pack:stage")
        distribution = normalized(distribution)
        pack = self._pack(distribution)
        entry = self._in(pack, _STAGES, name) if pack is not None else None
        if entry is None:
            aliases = self._index[_ALIASES].get(f"{distribution}.{name}", [])
            if not aliases:
                raise _missing(distribution, name, pack_version, pack)
            entry = self._only(aliases, f"{distribution}.{name}")
        cls = cast("type[Stage]", self._load(entry))
        if format_version not in cls.reads_versions:
            reads = ", ".join(map(str, cls.reads_versions))
            raise ArchiveVersionError(
                f"stage {distribution}:{name} was written in format version {format_version} by pack version {pack_version!r}; "
                f"the installed {entry.pack} reads {reads}; run: pip install --upgrade {entry.pack.found.distribution}"
            )
        return cls

    def _get(self, group: str, name: str) -> object:
        return self._load(self._find(group, name))

    def _pack(self, distribution: str) -> Pack | None:
        wanted = normalized(distribution)
        return next((p for p in self._packs if p.found.distribution == wanted and not p.found.shadowed), None)

    def _find(self, group: str, name: str) -> Entry:
        distribution, colon, bare = name.rpartition(":")
        kind = GROUPS[group]
        if not colon:
            candidates = self._index[group].get(name.casefold(), [])
            if candidates and (len(candidates) > 1 or candidates[0].name == name):
                only = self._only(candidates, name)
                if only.name == name:
                    return only
            raise LookupFailed(self._nothing(group, f"no {kind} {name!r} is registered", name))
        pack = self._pack(distribution)
        if pack is None:
            hidden = next((p.found for p in self._packs if p.found.distribution == normalized(distribution)), None)
            install = f"; run: pip install {normalized(distribution)}" if DISTRIBUTION.fullmatch(distribution) else ""
            where = f"hidden by {hidden.shadowed}; remove that" if hidden is not None else f"not installed{install}"
            raise MissingPack(
                f"{kind} {name!r} needs the pack {distribution!r}, which is {where}",
                stage=name,
                distribution=normalized(distribution),
            )
        entry = self._in(pack, group, bare)
        if entry is None:
            raise LookupFailed(self._nothing(group, f"pack {pack} registers no {kind} {bare!r}", bare))
        return entry

    @staticmethod
    def _in(pack: Pack, group: str, name: str) -> Entry | None:
        """Return what `pack` registers as `name`; a pack that is refused as a whole is an error that says why."""
        if pack.refusal:
            raise PackError(f"{GROUPS[group]} {name!r} cannot be used: pack {pack} is {pack.state}: {pack.refusal}")
        return next((e for e in pack.entries if e.point.group == group and e.name == name), None)

    def _only(self, candidates: Sequence[Entry], name: str) -> Entry:
        """Return the one candidate, leaving out those of packs that are refused; several are an error naming all."""
        if len(candidates) > 1:
            with self._lock.current:
                candidates = [e for e in candidates if self._admit(e.pack)] or candidates
        if len(candidates) == 1:
            return candidates[0]
        each = " and ".join(f"{e.name!r} of pack {e.pack}" for e in candidates)
        how = " or ".join(repr(e.qualified) for e in candidates)
        same = len({e.name for e in candidates}) == 1
        what = "is registered more than once" if same else "is registered in spellings that differ by case only"
        raise PackError(f"{candidates[0].kind} name {name!r} {what}: {each}; write {how}, or uninstall one of the packs")

    def _nothing(self, group: str, what: str, name: str) -> str:
        """Return the message of a failed lookup; loads the whole group, so that what it lists is what works."""
        entries = [(p, e) for p in self._packs for e in p.entries if e.point.group == group and not p.found.shadowed]
        off = [str(p) for p, e in entries if p.disabled and e.name == name]
        broken = [f"{e.name} of pack {p} ({e.fault()})" for p, e in entries if not p.disabled and not self._try(e)]
        working = [*BUILTIN.get(group, ()), *(n for n, e in self._named(group) if e.state == "loaded")]
        text = f"{what}; there are: {', '.join(sorted(working)) or 'none'}"
        from difflib import get_close_matches  # only where something is wrong

        near = get_close_matches(name.casefold(), working, 1)
        if near:
            text += f"; did you mean {near[0]!r}?"
        if broken:
            text += f"; broken: {', '.join(broken)}"
        if off:
            text += f"; disabled: {', '.join(off)}, which registers it"
        return text

    # -- loading -------------------------------------------------------------------------------------------

    def _load(self, entry: Entry) -> object:
        if self._try(entry):
            return entry.value
        if entry.state == "loading":
            raise PackError(f"{entry.label} is being loaded: importing its module asks for it again; look it up later")
        text = f"{entry.label} cannot be used: {entry.fault()}"
        if isinstance(entry.error, DeclarationError):
            raise DeclarationError(text) from entry.error
        raise PackError(text) from entry.error

    def _try(self, entry: Entry) -> bool:
        """Load an entry unless that was done before; return whether its value may be used."""
        if entry.state == "loaded":
            return True
        with self._lock.current:
            return self._try_locked(entry)

    def _try_locked(self, entry: Entry) -> bool:
        if entry.state != "unloaded":
            return entry.state == "loaded"
        if entry.problem or not self._admit(entry.pack):
            return False
        entry.state = "loading"
        try:
            outcome = guarded(entry.realize)
        finally:
            entry.state = "unloaded"  # an interrupt leaves it as it was
        entry.pack.notes += [f"{entry.name}: {note}" for note in outcome.notes]
        entry.value, entry.error = outcome.value, outcome.error
        entry.state = "failed" if outcome.error is not None else "loaded"
        return outcome.error is None

    def _admit(self, pack: Pack) -> bool:
        """Compare the API ranges a pack states with core's, before anything else of it is loaded."""
        if not pack.admitted and not pack.refusal:
            pack.admitted = True  # first, because the statement is an object of the pack too
            try:
                for entry in (e for e in pack.entries if e.point.group == _INFOS):
                    if not self._try(entry):
                        pack.state, pack.refusal = "broken", f"its API ranges cannot be read: {entry.fault()}"
                        break
                    refusal = cast(PackInfo, entry.value).refusal()
                    if refusal is not None:
                        pack.state, pack.refusal = "incompatible", refusal
                        break
            except BaseException:  # an interrupt: look again next time
                pack.admitted = False
                raise
        return not pack.refusal

    def _interrupted(self) -> None:
        """In a forked child, forget what another thread was loading when the parent forked: it will not finish."""
        for pack in self._packs:
            pack.admitted = False
            for entry in pack.entries:
                if entry.state == "loading":
                    entry.state = "unloaded"

    def _working(self, group: str, shared: bool = False) -> Iterator[Entry]:
        for key in sorted(self._index[group]):
            entries = self._index[group][key]
            if len(entries) > 1 and not shared:
                try:
                    entries = [self._only(entries, entries[0].name)]
                except PackError as exc:
                    _warn_once(entries[0], str(exc))
                    continue
            for entry in entries:
                if self._try(entry):
                    yield entry
                elif entry.state != "loading":
                    _warn_once(entry, f"{entry.label} is left out: {entry.fault()}")

    # -- listing -------------------------------------------------------------------------------------------

    def packs(self, load: bool = False) -> list[PackStatus]:
        """Return the state of every pack, by name.

        Parameters
        ----------
        load : bool
            Load everything first, so that whatever is broken shows; by default nothing is imported.
        """
        if load:
            for pack in self._packs:
                for entry in pack.entries:
                    if not pack.refusal:
                        self._try(entry)
        found = [status(pack, self._rivals) for pack in self._packs]
        return sorted(found, key=lambda s: (s.distribution, s.state == "shadowed"))

    def _rivals(self, entry: Entry) -> list[Entry]:
        if entry.point.group in (_INFOS, _PLUGINS):  # whose names nobody looks up
            return []
        return [e for e in self._index[entry.point.group].get(entry.name.casefold(), []) if e.pack is not entry.pack]


def _missing(distribution: str, name: str, version: str, pack: Pack | None) -> MissingPack:
    if pack is None:
        text = f"which is not installed; if you trust the archive, run: pip install {distribution}"
    else:
        text = f"but the installed {pack.found.version} registers no such stage; run: pip install --upgrade {distribution}"
    return MissingPack(
        f"the archive needs stage {name!r} of pack {distribution} (it was written by version {version!r}), {text}",
        stage=f"{distribution}:{name}",
        version=version,
        distribution=distribution,
    )


def _warn_once(entry: Entry, text: str) -> None:
    if not entry.warned:
        entry.warned = True
        warnings.warn(text, PackWarning, stacklevel=4)


_current: Registry | None = None
_current_lock = ForkLock(reentrant=True)


def registry() -> Registry:
    """Return the registry of what is installed; scanned once (see `refresh`)."""
    global _current
    found = _current
    if found is None:
        with _current_lock.current:
            if _current is None:
                _current = Registry.scan()
            found = _current
    return found


def refresh() -> Registry:
    """Scan again, for packs installed or settings changed since; modules already imported stay as they are."""
    global _current
    import importlib

    importlib.invalidate_caches()
    fresh = Registry.scan()
    with _current_lock.current:
        _current = fresh
    return fresh


@contextmanager
def use(replacement: Registry) -> Iterator[Registry]:
    """Make `registry` return `replacement` inside a ``with`` block, in all threads (for tests and embedding)."""
    global _current
    with _current_lock.current:
        before, _current = _current, replacement
    try:
        yield replacement
    finally:
        with _current_lock.current:
            _current = before


def settings() -> _settings.Settings:
    """Return the settings in force now; see `briquette.settings.load`."""
    return _settings.load()


def hooks() -> Hooks:
    """Return what calls the hooks of all plugins; see `briquette.hooks.Hooks`."""
    from .hooks import Hooks  # pluggy is not needed before the first run

    return Hooks()
