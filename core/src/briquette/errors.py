"""The errors briquette raises.

Every error a caller can meet derives from `BriquetteError`; each class below says when it occurs.
Messages name what was wrong, with the value, and what to do about it.
"""

from __future__ import annotations


class BriquetteError(Exception):
    """Base of all briquette errors."""


class UsageError(BriquetteError, ValueError):
    """A call that cannot work as written: a bad bound, an unknown option, an output of the wrong size."""


class UnsupportedInput(UsageError, TypeError):
    """An input array whose dtype, rank or kind the pipeline cannot take."""


class PipelineError(UsageError):
    """A pipeline that is not well formed: a cycle, a dtype mismatch, an unknown port, a missing bound."""


class LookupFailed(UsageError, KeyError):
    """A stage, preset, harness or target name that nothing registered; lists what there is."""

    def __str__(self) -> str:  # KeyError quotes its message; ours is a sentence
        return str(self.args[0]) if self.args else ""


class Unreachable(UsageError):
    """A ratio or PSNR was asked for that no error bound gives on this array with this pipeline; says what can be had.

    Attributes
    ----------
    nearest : tuple of (float, float)
        The bounds tried that came nearest, with the ratio or PSNR of each; a lower one first.
    """

    def __init__(self, message: str, nearest: tuple[tuple[float, float], ...] = ()) -> None:
        super().__init__(message)
        self.nearest = nearest


class PackError(BriquetteError):
    """A pack that is broken, ambiguous, or outside the API ranges it was written for."""


class MissingPack(PackError):
    """An archive or pipeline names a stage whose pack is not installed.

    Attributes
    ----------
    stage, version, distribution : str
        The stage as the archive names it, the pack version that wrote it, and what to install.
    """

    def __init__(self, message: str, *, stage: str = "", version: str = "", distribution: str = "") -> None:
        super().__init__(message)
        self.stage = stage
        self.version = version
        self.distribution = distribution


class ArchiveError(BriquetteError):
    """Bytes that are not a readable archive: truncated, damaged, inconsistent."""


class ArchiveVersionError(ArchiveError):
    """An archive written by a newer major version, or needing a feature this reader lacks."""


class TargetUnavailable(BriquetteError):
    """A target that was asked for by name cannot run here; says what it lacks."""


class FusionError(BriquetteError):
    """`fusion="force"` was asked for and an edge did not fuse; carries the reasons."""


class OutOfMemory(BriquetteError, MemoryError):
    """An array that this machine has no memory for; says how many bytes were wanted. The archive may be in order."""


class CompileError(BriquetteError):
    """Generated source did not compile; names the pack that owns the policy at fault."""


class DeclarationError(PackError):
    """A stage declares something that contradicts itself, the harness or its own policy header."""


class BoundViolation(BriquetteError):
    """A reconstruction misses the stated bound (raised by `verify` only)."""
