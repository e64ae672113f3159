"""Composes the source of a fused kernel from the chunk policies a chain names."""

from __future__ import annotations

from collections.abc import Iterator

from briquette.harness import Direction, Member
from briquette.target import KernelSource
from briquette_warp.chain import C_NAMES
from briquette_warp.compose import CUDA_ENTRIES, ENTRY

from .chain import ChunkComposition, code_type, on_chunks


def host_source(parts: ChunkComposition, direction: Direction) -> KernelSource:
    """Return the C++ translation unit of a chain: one lane owns a chunk."""
    tail = [
        f'extern "C" __attribute__((visibility("default"))) int32_t {ENTRY[direction]}(uint64_t *slots) {{',
        f"  return briquette::chunks::{direction}<Chain>(slots);",
        "}",
    ]
    return unit(parts, direction, ["briquette_chunk/cuda/host.cuh"], tail, (ENTRY[direction],))


def cuda_source(parts: ChunkComposition, direction: Direction, blocks: int) -> KernelSource:
    """Return the CUDA translation unit of a chain; `blocks` are to be resident on a multiprocessor."""
    kernels = {
        "forward": (f"__launch_bounds__(256, {blocks})", "Forward", "chunks::forward<Chain>"),
        "inverse": (f"__launch_bounds__(256, {blocks})", "Inverse", "chunks::inverse<Chain>"),
        "survey": ("__launch_bounds__(256)", "Survey", "device::survey<Chain>"),
        "aside": ("__launch_bounds__(256)", "Aside", f"device::encode_outliers<Chain::Source, {parts.chunk}>"),
    }
    names = [n for n in CUDA_ENTRIES[direction] if n in ENTRY or parts.head is not None]
    names = [n for n in names if n != "aside" or parts.side is not None]
    tail = []
    for name in names:
        bounds, block, body = kernels[name]
        tail += [
            f'extern "C" __global__ void {bounds} briquette_{name}(const __grid_constant__ briquette::device::{block} run) {{',
            f"  briquette::{body}(run);",
            "}",
        ]
    headers = [f"briquette_chunk/cuda/{direction}.cuh"]
    headers += ["briquette_warp/cuda/extent.cuh", "briquette_warp/cuda/outliers.cuh"] if direction == "forward" else []
    return unit(parts, direction, headers, tail, tuple(f"briquette_{n}" for n in names))


def unit(
    parts: ChunkComposition, direction: Direction, skeletons: list[str], tail: list[str], entries: tuple[str, ...]
) -> KernelSource:
    """Return a translation unit: the skeletons, the policies, the chain of them, and the entry points `tail`."""
    policies = [m.op.op_name for m in parts.members]
    lines = [
        # policies' names only: node names are an archive's own text, which has no place in code
        f"// {direction}: {' + '.join(policies)}; composed by briquette-chunk",
        *(f"#include <{header}>" for header in [*skeletons, *sorted({m.op.include_header for m in parts.members})]),
        "",
        "namespace {",
        *_ops(parts),
        *_each(parts),
        *_chain(parts),
        "}  // namespace",
        "",
        *tail,
        "",
    ]
    return KernelSource(f"chunk-{direction}-{'-'.join(policies)}", "\n".join(lines), entries)


def _element(member: Member, dtype: str) -> str:
    return C_NAMES[dtype] if not on_chunks(member) and dtype in C_NAMES else code_type(dtype)


def _ops(parts: ChunkComposition) -> Iterator[str]:
    for i, member in enumerate(parts.members):
        params, policy = "void", member.op.qualified
        if member.op.geometry.get("per_type"):
            policy += f"<briquette::unsigned_of<{code_type(member.main_in.dtype)}>>"
        if member.op.params is not None:
            params = f"Params{i}"
            yield member.op.params.c_source(params, policy)
        if on_chunks(member):
            yield f"typedef briquette::chunks::ChunkOp<{policy}, {params}, {parts.offsets[i]}> Op{i};"
        else:
            types = f"{_element(member, member.main_in.dtype)}, {_element(member, member.main_out.dtype)}"
            yield f"typedef briquette::Op<{policy}, {params}, 0, {types}> Op{i};"


def runs(parts: ChunkComposition) -> list[tuple[int | None, list[int]]]:
    """Return ops on chunks, each with the ELEMENTWISE ops behind it; the first entry has those before any, and no op."""
    found: list[tuple[int | None, list[int]]] = [(None, [])]
    for index, member in enumerate(parts.members):
        if member is parts.head or member is parts.coder:
            continue
        if on_chunks(member):
            found.append((index, []))
        else:
            found[-1][1].append(index)
    return found


def _each(parts: ChunkComposition) -> Iterator[str]:
    """Yield a struct for each run of ELEMENTWISE ops."""
    for at, (_, ops) in enumerate(runs(parts)):
        if not ops:
            continue
        yield f"struct Each{at} {{"
        yield "  static constexpr bool empty = false;"
        for direction, order in (("forward", ops), ("inverse", ops[::-1])):
            yield "  template <class T, int E>"
            yield f"  __device__ __forceinline__ static void {direction}(T (&c)[E], const uint8_t *params) {{"
            yield "    (void)params;"
            for index in order:
                yield f"    briquette::op_{direction}<Op{index}>(c, briquette::OneLane(), params + {parts.offsets[index]});"
            yield "  }"
        yield "};"


def _chain(parts: ChunkComposition) -> Iterator[str]:
    last = len(parts.members) - 1
    found = runs(parts)
    each = [f"Each{at}" if ops else "briquette::chunks::Nothing" for at, (_, ops) in enumerate(found)]
    first = code_type(parts.first)
    passes = []
    for at, (index, _) in enumerate(found):
        if index is not None:
            passes.append(f"briquette::chunks::Pass<Op{index}, {each[at]}, {code_type(parts.members[index].main_out.dtype)}>")
    yield "struct Chain {"
    yield f"  typedef {parts.value_type} Source;"
    yield f"  typedef {first} First;"
    yield f"  static constexpr int lane = {parts.lane};"
    yield f"  static constexpr uint64_t chunk = {parts.chunk};"
    yield f"  static constexpr int bytes = {parts.nbytes};"
    for what, index in (("head", 0 if parts.head else None), ("tail", last if parts.coder else None)):
        yield f"  static constexpr bool has_{what} = {'true' if index is not None else 'false'};"
        yield f"  static constexpr uint32_t {what}_params = {parts.offsets[index] if index is not None else 0};"
        yield f"  typedef {f'Op{index}' if index is not None else 'void'} {what.title()};"
    yield f"  static constexpr int scratch = {f'Tail::Policy::scratch_bytes({parts.nbytes}) + 16' if parts.coder else '16'};"
    yield f"  static constexpr bool has_side = {'true' if parts.side else 'false'};"
    yield f"  static constexpr bool resolves = {'true' if parts.resolves else 'false'};"
    yield f"  static constexpr bool skips = {'true' if parts.missing else 'false'};"
    yield f"  typedef {each[0]} Front;"
    yield f"  typedef briquette::chunks::Passes<{', '.join(passes)}> Interior;"
    yield "};"
