"""``briquette presets``, ``stages``, ``targets`` and ``packs``: what is installed, and what is wrong with it."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from briquette import discovery, pipeline_toml
from briquette.errors import BriquetteError
from briquette.selection import REFERENCE, choose_target, why_unavailable
from briquette.stage import Stage

from . import capabilities, options, tables

#: facts of targets that only --json shows
_LONG_FACTS = ("flags", "cache")


@click.command()
@click.argument("name", required=False)
@options.json_option
def presets(name: str | None, as_json: bool) -> None:
    """List the presets; with NAME, print that one as TOML, to start a pipeline of your own from."""
    registry = discovery.registry()
    if name is not None:
        text = registry.preset(name)
        if as_json:
            tables.print_json({"name": name, "toml": text})
        else:
            click.echo(text.rstrip("\n"))
        return
    found = [_preset(registry, each) for each in registry.presets()]
    if as_json:
        tables.print_json({"presets": found})
        return
    rows = [(p["name"], p["error"] or " + ".join(p["stages"]), p["description"]) for p in found]
    tables.print_table(["preset", "stages", "what for"], rows)


def _preset(registry: discovery.Registry, name: str) -> dict[str, Any]:
    """Read one preset without loading its stages, so that it can be listed where they are missing."""
    facts: dict[str, Any] = {"name": name, "title": "", "description": "", "stages": [], "error": None}
    try:
        spec = pipeline_toml.loads(registry.preset(name), f"preset {name}")
    except BriquetteError as exc:
        return {**facts, "error": str(exc)}
    names = [s.stage.rpartition(":")[2] for s in spec.stages]  # presets name their packs, which people need not read here
    return {**facts, "title": spec.title, "description": spec.description, "stages": names}


@click.command()
@options.json_option
def stages(as_json: bool) -> None:
    """List the stages that pipelines can be made of: whose they are, roles, element types, targets, ports, parameters.

    Element types are those of the main input ("codes" are integers of 16 to 64 bits), targets those that run the stage compiled,
    here or elsewhere; numpy runs every stage. Both are asked of the stage with its default parameters.
    """
    registry = discovery.registry()
    found = [_stage(registry, name) for name in registry.stages()]
    if as_json:
        tables.print_json({"stages": found})
        return
    rows = [
        (
            s["name"],
            s["pack"],
            s["role"],
            capabilities.words_of(s["dtypes"]),
            ", ".join(s["targets"]) or "-",
            ", ".join([*s["inputs"], *(f"{p}?" for p in s["optional_inputs"])]) + " -> " + ", ".join(s["outputs"])
            if not s["error"]
            else s["error"],
            ", ".join(f"{k}={v}" if v is not None else k for k, v in s["parameters"].items()) or "-",
        )
        for s in found
    ]
    tables.print_table(["stage", "pack", "role", "types", "targets", "ports", "parameters"], rows)


def _stage(registry: discovery.Registry, name: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": name, "pack": "", "role": "", "span": None, "inputs": (), "outputs": (), "parameters": {}}
    facts |= {"optional_inputs": (), "dtypes": [], "targets": []}
    facts |= {"format_version": None, "summary": "", "error": None}
    try:
        facts["pack"] = registry.stage_origin(name).distribution
        cls = registry.stage_class(name)
    except BriquetteError as exc:
        return {**facts, "error": str(exc)}
    facts |= {"inputs": cls.inputs, "outputs": cls.outputs, "parameters": _parameters(cls), "format_version": cls.format_version}
    facts["optional_inputs"] = cls.optional_inputs
    facts["summary"] = (cls.__doc__ or "").strip().partition("\n")[0]
    try:
        stage = cls()
        spec = stage.fusion_spec()
        dtypes = capabilities.dtypes_of(stage)
        targets = capabilities.targets_of(stage, dtypes)
    except Exception:  # a parameter without a default, or the pack's own code
        return {**facts, "role": "depends on parameters", "targets": [REFERENCE]}
    facts |= {"role": spec.access.name.lower().replace("_", "-"), "span": spec.span, "unit": spec.unit}
    return {**facts, "dtypes": dtypes, "targets": targets}


def _parameters(cls: type[Stage]) -> dict[str, Any]:
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return {f.name: None if f.default is dataclasses.MISSING else f.default for f in fields}


@click.command()
@options.json_option
def targets(as_json: bool) -> None:
    """List the targets, whether they can run here, and which one is used by default."""
    found = target_facts()
    if as_json:
        tables.print_json({"targets": found})
        return
    rows = [
        (
            t["name"],
            "default" if t["default"] else "",
            t["unavailable"] or "yes",
            ", ".join(f"{k} {v}" for k, v in t["facts"].items() if k not in _LONG_FACTS) or "-",
        )
        for t in found
    ]
    tables.print_table(["target", "", "runs here", "facts"], rows)


def target_facts() -> list[dict[str, Any]]:
    """Return what is known about every target, the reference first."""
    try:
        default = choose_target(None)
        name: str | None = default.name if default is not None else REFERENCE
    except BriquetteError:  # the environment asks for one that is not there
        name = None
    found: list[dict[str, Any]] = [
        {"name": REFERENCE, "default": name == REFERENCE, "unavailable": None, "facts": {"what": "reference, always there"}}
    ]
    for target in discovery.registry().targets():
        reason = why_unavailable(target)
        facts = dict(target.describe()) if reason is None else {}
        found.append({"name": target.name, "default": name == target.name, "unavailable": reason, "facts": facts})
    return found


@click.command()
@click.option("--no-load", is_flag=True, help="Import nothing; what is broken does not show then.")
@options.json_option
def packs(no_load: bool, as_json: bool) -> None:
    """List the installed packs: version, state, what they register, where they lie, what is wrong with them.

    Everything is loaded, so broken packs show with their errors. BRIQUETTE_DISABLE_PACKS, or disable_packs in the configuration
    file, names packs to leave alone.
    """
    found = discovery.registry().packs(load=not no_load)
    if as_json:
        tables.print_json({"packs": [{**dataclasses.asdict(p), "reason": p.reason} for p in found]})
        return
    rows = [
        (
            p.distribution,
            p.version,
            p.state,
            "; ".join(f"{kind}: {', '.join(names)}" for kind, names in p.names.items()) or "-",
            "; ".join([*p.reasons, *p.notes]) or "-",
            p.location or "-",
        )
        for p in found
    ]
    tables.print_table(["pack", "version", "state", "registers", "remarks", "from"], rows)
