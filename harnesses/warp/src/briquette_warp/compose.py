"""Composes the source of a fused kernel from the policies a chain names."""

from __future__ import annotations

from collections.abc import Iterator

from briquette.harness import Direction, Member
from briquette.ports import TileInfo
from briquette.target import KernelSource

from .chain import C_NAMES, Composition, slice_span
from .element import device_pass, in_element_form, policy_type

ENTRY = {"forward": "briquette_forward", "inverse": "briquette_inverse"}


#: kernels of the CUDA dialect: the two directions, and what a quantizer head needs beside them
CUDA_ENTRIES = {"forward": ("forward", "survey", "aside"), "inverse": ("inverse",)}
#: what writes and restores values kept aside where a LAYOUT has chunks of its own
ASIDE = {"forward": "aside", "inverse": "restore"}


def host_source(parts: Composition, direction: Direction) -> KernelSource:
    """Return the C++ translation unit of a chain for the one-lane host geometry."""
    tail = [
        f'extern "C" __attribute__((visibility("default"))) int32_t {ENTRY[direction]}(uint64_t *slots) {{',
        f"  return briquette::host::{direction}<Chain>(slots);",
        "}",
    ]
    entries = [ENTRY[direction]]
    if parts.layout is not None and parts.side is not None:  # values kept aside stand in the array's order: a pass of its own
        name = ASIDE[direction]
        tail += [
            f'extern "C" __attribute__((visibility("default"))) int32_t briquette_{name}(uint64_t *slots) {{',
            f"  return briquette::host::{name}<Chain>(slots);",
            "}",
        ]
        entries.append(f"briquette_{name}")
    return _unit(parts, direction, ["host"], "each_{0}<Op{1}>(c, briquette::OneLane(), ", tail, tuple(entries))


def cuda_source(parts: Composition, direction: Direction, blocks: int) -> KernelSource:
    """Return the CUDA translation unit of a chain; `blocks` are to be resident on a multiprocessor."""
    tiled = "Tiled" if parts.tiles_sink else ""  # the run's block has a second sink then
    kernels = {
        "forward": (f"__launch_bounds__(256, {blocks})", f"{tiled}Forward", "forward<Chain>"),
        "inverse": (f"__launch_bounds__(256, {blocks})", f"{tiled}Inverse", "inverse<Chain>"),
        "survey": ("__launch_bounds__(256)", "Survey", "survey<Chain>"),
        "aside": ("__launch_bounds__(256)", "Aside", "encode_outliers<Chain::Source>"),
        "restore": ("__launch_bounds__(256)", "Restore", "restore_aside<Chain::Source>"),
    }
    names = [n for n in CUDA_ENTRIES[direction] if n in ENTRY or parts.head is not None]
    names = [n for n in names if n != "aside" or parts.side is not None]
    if direction == "inverse" and parts.layout is not None and parts.side is not None:
        names.append(ASIDE[direction])
    tail = []
    for name in names:
        bounds, block, body = kernels[name]
        tail += [
            f'extern "C" __global__ void {bounds} briquette_{name}(const __grid_constant__ briquette::device::{block} run) {{',
            f"  briquette::device::{body}(run);",
            "}",
        ]
    headers = ["forward", "extent", "outliers"] if direction == "forward" else ["inverse"]
    if any(map(in_element_form, parts.members)):
        headers.append("element")
    return _unit(parts, direction, headers, "device::lane_{0}<Op{1}>(c, ", tail, tuple(f"briquette_{n}" for n in names))


def _unit(
    parts: Composition, direction: Direction, skeletons: list[str], call: str, tail: list[str], entries: tuple[str, ...]
) -> KernelSource:
    policies = [m.op.op_name for m in parts.members]
    lines = [
        # policies' names only: node names are an archive's own text, which has no place in code
        f"// {direction}: {' + '.join(policies)}; composed by briquette-warp",
        *(f"#include <briquette_warp/cuda/{name}.cuh>" for name in skeletons),
        *(f"#include <{header}>" for header in sorted({m.op.include_header for m in parts.members})),
        "",
        "namespace {",
        *_ops(parts),
        *_chain(parts, call),
        "}  // namespace",
        "",
        *tail,
        "",
    ]
    return KernelSource(f"warp-{direction}-{'-'.join(policies)}", "\n".join(lines), entries)


def _ops(parts: Composition) -> Iterator[str]:
    for i, member in enumerate(parts.members):
        params = "void"
        if member.op.params is not None:
            params = f"Params{i}"
            yield member.op.params.c_source(params, member.op.qualified)
        types = f"{C_NAMES[member.main_in.dtype]}, {C_NAMES[member.main_out.dtype]}"
        if member is parts.selector and parts.tiles is not None:
            yield from _declared_sides(member, parts.tiles)
        yield f"typedef briquette::Op<{policy_type(member)}, {params}, {slice_span(member)}, {types}> Op{i};"


def _declared_sides(member: Member, tiles: TileInfo) -> Iterator[str]:
    """Hold the policy's side elements to what the stage declares."""
    item = max(1, member.main_in.numpy.itemsize // 4)
    for mode, words in enumerate(tiles.side_words):
        yield f'static_assert({member.op.qualified}::sides({mode}) * {item} == {words}, "side elements as declared");'


def _chain(parts: Composition, call: str) -> Iterator[str]:
    last = len(parts.members) - 1
    interior = [(parts.members.index(m), m) for m in parts.interior]
    middle = parts.members.index(parts.selector) if parts.selector else len(parts.members)
    earlier = [(i, m) for i, m in interior if i < middle and m is not parts.layout]  # which loads and stores carry out
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
    layout = parts.members.index(parts.layout) if parts.layout else None
    yield f"  static constexpr bool has_layout = {'true' if layout is not None else 'false'};"
    if layout is not None:
        yield f"  static constexpr uint32_t layout_params = {parts.offsets[layout]};"
        yield f"  typedef Op{layout} Layout;"
    yield f"  static constexpr bool resolves = {'true' if parts.resolves else 'false'};"
    yield f"  static constexpr bool skips = {'true' if parts.missing else 'false'};"
    yield f"  static constexpr bool has_selector = {'true' if parts.selector else 'false'};"
    if parts.selector:
        yield from _selector(parts, middle)
    yield from _pass("forward", parts, earlier, call)
    yield from _pass("inverse", parts, earlier[::-1], call)
    yield "};"


def _selector(parts: Composition, index: int) -> Iterator[str]:
    """The chain's tiles, and the ELEMENTWISE ops behind the selector, which take any number of elements."""
    assert parts.tiles is not None
    last = len(parts.members) - (1 if parts.coder else 0)
    later = range(index + 1, last)
    yield f"  typedef Op{index} Selector;"
    yield f"  static constexpr uint32_t selector_params = {parts.offsets[index]};"
    yield f"  static constexpr bool carries = {'true' if parts.carries else 'false'};"
    yield f"  static constexpr uint32_t most_tile_words = {parts.most_tile_words};"
    yield f'  static_assert(Selector::Policy::modes == {len(parts.tiles.side_words)}, "modes as declared");'
    if parts.carries and parts.coder is not None:
        spare = f"Tail::Policy::template spare_meta_bits<{C_NAMES[parts.coder.main_in.dtype]}>"
        bits = parts.coder.stage.spare_meta_bits(parts.coder.main_in.dtype)
        yield f'  static_assert({spare} == {bits}, "spare bits as declared");'
    for name, way, ops in (("later_each", "forward", later), ("later_undo", "inverse", later[::-1])):
        yield f"  template <int E> __device__ __forceinline__ static void {name}(First (&c)[E], const uint8_t *params) {{"
        yield "    (void)c, (void)params;"
        for i in ops:
            yield f"    briquette::each_{way}<Op{i}>(c, briquette::OneLane(), params + {parts.offsets[i]});"
        yield "  }"


def _pass(direction: Direction, parts: Composition, ops: list[tuple[int, Member]], call: str) -> Iterator[str]:
    qualifier = "__device__ __forceinline__ static"
    # Whole: the lane's array lies within the stream, so that nothing is to be set to zero
    yield "  template <bool Whole, int E>"
    yield f"  {qualifier} void {direction}(First (&c)[E], uint32_t count, const uint8_t *params) {{"
    yield "    (void)params;"
    if any(map(in_element_form, parts.members)):
        yield from device_pass(direction, parts, ops)
        yield "  }"
        return
    yield "    if (!Whole) briquette::zero_from(c, count);"
    for index, _ in ops:
        yield f"    briquette::{call.format(direction, index)}params + {parts.offsets[index]});"
        yield "    if (!Whole) briquette::zero_from(c, count);"
    yield "  }"
