"""Every policy that the installed packs bring for this harness, in every configuration that is known, for every code type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from briquette import pipeline_toml
from briquette.declare import FusionAccess
from briquette.discovery import Registry
from briquette.errors import BriquetteError, PipelineError
from briquette.harness import Member
from briquette.stage import Stage

from .chain import C_NAMES, is_selector, refuse_chain
from .harness import WarpHarness
from .probe import members_of

Variants = Mapping[str, Iterable[Mapping[str, Any]]]

_STRATEGY: Final = WarpHarness.name


@dataclass(frozen=True)
class Policy:
    """One stage with its parameters, fed with one type.

    Attributes
    ----------
    pack : str
        The distribution that registers the stage.
    name : str
        As registered.
    forward, inverse : Member
        The stage as the harness sees it.
    """

    pack: str
    name: str
    forward: Member
    inverse: Member

    @property
    def dtype(self) -> str:
        return self.forward.main_in.dtype

    @property
    def title(self) -> str:
        """Name and parameters, as in ``plain-rate(segment=32)``."""
        given = ", ".join(f"{key}={value!s}" for key, value in self.forward.stage.parameters().items())
        return f"{self.name}({given})"


@dataclass(frozen=True)
class Survey:
    """What was found.

    Attributes
    ----------
    policies : tuple of Policy
    left_out : tuple of str
        Stages that have no policy for this harness, with the reason.
    problems : tuple of str
        What keeps a stage from being looked at, with the pack's name.
    """

    policies: tuple[Policy, ...]
    left_out: tuple[str, ...]
    problems: tuple[str, ...]


def survey(registry: Registry, variants: Variants | None = None) -> Survey:
    """Look at every stage of `registry`: with its default parameters, as presets use it, and as `variants` asks for.

    Parameters
    ----------
    registry : Registry
    variants : mapping of stage name to parameter sets, optional
    """
    policies: list[Policy] = []
    left_out: list[str] = []
    problems: list[str] = []
    used = used_by_presets(registry, problems)
    for name in sorted({*registry.stages(), *(variants or {})}):
        try:
            cls, origin = registry.stage_class(name), registry.stage_origin(name)
        except BriquetteError as exc:
            problems.append(f"stage {name}: {exc}")
            continue
        asked = [*used.get(cls, ()), *(variants or {}).get(name, ())]
        found = list(_configured(cls, asked, f"stage {name} of {origin.distribution}", problems))
        policies += _policies(origin.distribution, name, found, left_out, problems)
    return Survey(tuple(policies), tuple(dict.fromkeys(left_out)), tuple(problems))


def used_by_presets(registry: Registry, problems: list[str]) -> dict[type[Stage], list[Mapping[str, Any]]]:
    """Return the parameters with which presets use each stage; what keeps a preset from being read is added to `problems`."""
    used: dict[type[Stage], list[Mapping[str, Any]]] = {}
    for preset in registry.presets():
        try:
            for spec in pipeline_toml.loads(registry.preset(preset), f"preset {preset}").stages:
                used.setdefault(registry.stage_class(spec.stage), []).append(spec.params)
                for other in spec.when:
                    if other.stage:
                        used.setdefault(registry.stage_class(other.stage), []).append(other.params)
        except BriquetteError as exc:
            problems.append(f"preset {preset}: {exc}")
    return used


def _configured(cls: type[Stage], asked: Iterable[Mapping[str, Any]], label: str, problems: list[str]) -> Iterator[Stage]:
    """Yield the stage in each configuration once, the default first."""
    seen: list[Stage] = []
    failed = ""
    for parameters in ({}, *asked):
        try:
            stage = cls.from_parameters(parameters)
        except Exception as exc:  # a pack's own code
            if parameters:
                problems.append(f"{label}: it cannot be made with {dict(parameters)}: {exc}")
            else:
                failed = f"{label}: it has no default parameters ({exc}) and no preset uses it; name a configuration"
            continue
        if stage not in seen:
            seen.append(stage)
            yield stage
    if failed and not seen:
        problems.append(failed)


def _policies(pack: str, name: str, stages: Iterable[Stage], left_out: list[str], problems: list[str]) -> Iterator[Policy]:
    for stage in stages:
        try:
            ops = [op for op in (stage.fused_op(), stage.inverse_fused_op()) if op is not None and _STRATEGY in op.strategies]
            if len(ops) < 2:
                left_out.append(f"{name} of {pack}: it declares no {_STRATEGY} policy for both directions")
                continue
            if stage.fusion_spec().access is FusionAccess.LAYOUT:
                left_out.append(f"{name} of {pack}: it is a LAYOUT, which loads and stores carry out")
                continue
            if any(op.geometry.get("element_form") for op in ops):
                left_out.append(f"{name} of {pack}: its policy is in the element form, which has one geometry")
                continue
            made = list(_typed(pack, name, stage))
        except Exception as exc:  # a pack's own code
            problems.append(f"stage {name} of {pack}: its declarations fail: {exc}")
            continue
        yield from made
        if not made:
            problems.append(f"stage {name} of {pack}: no type that this harness computes with suits it")


def _typed(pack: str, name: str, stage: Stage) -> Iterator[Policy]:
    for dtype in C_NAMES:
        try:
            forward, inverse = members_of(stage, dtype)
        except PipelineError:
            continue
        # a selector runs with its coder only, and is looked at with a stand-in: how it is declared shows in its inverse
        looked_at = (inverse,) if is_selector(forward) else (forward, inverse)
        if all(refuse_chain([member], member.spec.span, "inverse") is None for member in looked_at):
            yield Policy(pack, name, forward, inverse)
