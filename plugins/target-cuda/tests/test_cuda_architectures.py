"""Which code a device gets: case N1, by simulation, without a GPU or NVRTC."""

from __future__ import annotations

import pytest

from briquette.errors import CompileError
from briquette_target_cuda import compiler

KNOWN = (75, 80, 86, 89, 90, 100, 120)


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (9, 0), (12, 0)])
def test_a_known_device_gets_its_own_cubin(capability: tuple[int, int]) -> None:
    assert compiler.code_for(capability, KNOWN) == ("cubin", f"sm_{capability[0]}{capability[1]}")


@pytest.mark.parametrize(("capability", "newest"), [((13, 0), 120), ((10, 3), 100), ((8, 7), 86)])
def test_an_unknown_device_gets_ptx_of_the_newest_older_one(capability: tuple[int, int], newest: int) -> None:
    assert compiler.code_for(capability, KNOWN) == ("ptx", f"compute_{newest}")


def test_a_device_older_than_all_is_refused_with_the_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "nvrtc", lambda: ((13, 5), KNOWN))
    words = r"NVRTC 13\.5 compiles for sm_75 and newer, this device is sm_61: install an older NVRTC"
    with pytest.raises(CompileError, match=words):
        compiler.code_for((6, 1), KNOWN)
