"""Optional methods of policies: one that the skeletons would not call, for what it takes, does not compile."""

from __future__ import annotations

import numpy as np
import pytest

from briquette import discovery
from briquette.errors import CompileError
from briquette.target import KernelSource

CODES = "template <class T, int E, class G> static void"
PREPARE, FINISH = f"{CODES} prepare(T (&c)[E], G) {{ c[0] += 1; }}", f"{CODES} finish(T (&c)[E], G) {{ c[0] -= 1; }}"
WITH_PARAMETERS = f"{CODES} prepare(T (&c)[E], G, const int &p) {{ c[0] += p; }}"


def source(*methods: str) -> KernelSource:
    text = f"""#include <briquette_warp/cuda/calls.cuh>
struct Policy {{ {" ".join(methods)} }};
typedef briquette::Op<Policy, void, 32, int32_t, int32_t> Tail;
extern "C" __attribute__((visibility("default"))) int prepared(const uint64_t *) {{
  int32_t c[32] = {{0}};
  briquette::tail_prepare<Tail>(c, briquette::OneLane());
  return c[0];
}}
"""
    return KernelSource("prepared", text, ("prepared",))


@pytest.mark.parametrize(("methods", "value"), [((PREPARE, FINISH), 1), ((), 0)])
def test_both_are_called_and_none_is_fine(methods: tuple[str, ...], value: int) -> None:
    module = discovery.registry().target("host").compile(source(*methods))
    assert module.call("prepared", np.zeros(1, np.uint64)) == value


@pytest.mark.parametrize("methods", [(PREPARE,), (FINISH,), (WITH_PARAMETERS, FINISH), ("static int prepare();",)])
def test_what_would_be_ignored_does_not_compile(methods: tuple[str, ...]) -> None:
    with pytest.raises(CompileError, match=r"both prepare\(c, g\) and finish\(c, g\)"):
        discovery.registry().target("host").compile(source(*methods))
