"""Composes the source of a fused kernel from the policies a chain names."""

from __future__ import annotations

from collections.abc import Iterator

from briquette.harness import Direction, Member
from briquette.target import KernelSource

from .chain import C_NAMES, Composition

ENTRY = {"forward": "briquette_forward", "inverse": "briquette_inverse"}


def host_source(parts: Composition, direction: Direction) -> KernelSource:
    """Return the C++ translation unit of a chain for the one-lane host geometry."""
    lines = [
        f"// {direction}: {' + '.join(m.node for m in parts.members)}; composed by briquette-warp",
        "#include <briquette_warp/cuda/host.cuh>",
        *(f"#include <{header}>" for header in sorted({m.op.include_header for m in parts.members})),
        "",
        "namespace {",
        *_ops(parts),
        *_chain(parts),
        "}  // namespace",
        "",
        f'extern "C" __attribute__((visibility("default"))) int32_t {ENTRY[direction]}(uint64_t *slots) {{',
        f"  return briquette::host::{direction}<Chain>(slots);",
        "}",
        "",
    ]
    return KernelSource(
        f"warp-{direction}-{'-'.join(m.op.op_name for m in parts.members)}", "\n".join(lines), (ENTRY[direction],)
    )


def _ops(parts: Composition) -> Iterator[str]:
    for i, member in enumerate(parts.members):
        params = "void"
        if member.op.params is not None:
            params = f"Params{i}"
            yield member.op.params.c_source(params, member.op.qualified)
        types = f"{C_NAMES[member.main_in.dtype]}, {C_NAMES[member.main_out.dtype]}"
        yield f"typedef briquette::Op<{member.op.qualified}, {params}, {member.spec.span}, {types}> Op{i};"


def _chain(parts: Composition) -> Iterator[str]:
    last = len(parts.members) - 1
    interior = [(parts.members.index(m), m) for m in parts.interior]
    yield "struct Chain {"
    yield f"  typedef {C_NAMES[parts.source]} Source;"
    yield f"  typedef {C_NAMES[parts.first]} First;"
    yield f"  static constexpr int lane = {parts.lane};"
    yield f"  static constexpr uint64_t chunk = {parts.chunk};"
    yield f"  static constexpr uint32_t most_words = {parts.most_words};"
    for what, index in (("head", 0 if parts.head else None), ("tail", last if parts.coder else None)):
        yield f"  static constexpr bool has_{what} = {'true' if index is not None else 'false'};"
        yield f"  static constexpr uint32_t {what}_params = {parts.offsets[index] if index is not None else 0};"
        yield f"  typedef {f'Op{index}' if index is not None else 'void'} {what.title()};"
    yield f"  static constexpr bool has_side = {'true' if parts.side else 'false'};"
    yield from _pass("forward", parts, interior)
    yield from _pass("inverse", parts, interior[::-1])
    yield "};"


def _pass(direction: Direction, parts: Composition, ops: list[tuple[int, Member]]) -> Iterator[str]:
    yield "  template <int E> static inline __attribute__((always_inline))"
    yield f"  void {direction}(First (&c)[E], uint32_t count, const uint8_t *params) {{"
    yield "    (void)params;"
    yield "    briquette::zero_from(c, count);"
    for index, _ in ops:
        yield f"    briquette::each_{direction}<Op{index}>(c, briquette::OneLane(), params + {parts.offsets[index]});"
        yield "    briquette::zero_from(c, count);"
    yield "  }"
