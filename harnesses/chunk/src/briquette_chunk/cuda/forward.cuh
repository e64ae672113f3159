// The fused compression kernel: one block codes one archive chunk, whose intermediates lie in shared memory.
// Role: composed with a generated `Chain` into an entry point of the CUDA target.
// Requires: passes.cuh; of the warp-register harness what a run gives a kernel, look-back and the branch-free heads.
// Source: briquette; execution model after the LC framework (Burtscher et al.) and PFPL (Fallin et al., 2025).
#pragma once
#include <briquette_chunk/cuda/passes.cuh>
#include <briquette_warp/cuda/forward.cuh>

namespace briquette {
namespace chunks {

constexpr int lanes = device::lanes;
typedef ChunkLanes<lanes> Lanes;

/// What lies in shared memory beside the two buffers and the coder's scratch.
struct Desk {
  unsigned long long sums[lanes / 32];  // the group's scratch
  unsigned long long drawn, placed;
  uint32_t kept_count;
  uint32_t kept[256];  // a bit an element: chunks whose head keeps values aside have at most 8192
};

/// The elements [at, at + E) of a chunk of m, zeros beyond.
template <class X, int E> __device__ __forceinline__ void load_elements(const X *in, uint32_t at, uint32_t m, bool wide, X (&x)[E]) {
  constexpr int V = int(16 / sizeof(X));
  if (E % V == 0 && wide && at + E <= m) {
    BRIQUETTE_UNROLL
    for (int k = 0; k < E; k += V) read_elements(in + at + k, slice<(E < V ? E : V)>(x, k / V));
  } else {
    BRIQUETTE_UNROLL
    for (int k = 0; k < E; k++) x[k] = at + k < m ? in[at + k] : X(0);
  }
}

__device__ __forceinline__ void keep_aside(uint32_t kept, uint32_t at, Desk &desk) {
  if (!kept) return;
  atomicOr(&desk.kept[at >> 5], kept << (at & 31));
  atomicAdd(&desk.kept_count, uint32_t(__popc(kept)));
}

/// Quantize exactly where the fast form would not answer: row r of this lane's values where bit r of `rows` is set.
template <class C, int E, int Step> __device__ __noinline__ void load_exactly(const typename C::Source *in, uint32_t rows, uint32_t m, typename C::First *to, const uint8_t *params, Desk *desk) {
  typedef typename C::Head H;
#pragma unroll 1
  for (; rows; rows &= rows - 1) {
    const uint32_t at = (uint32_t(__ffs(int(rows))) - 1) * Step + threadIdx.x * E;
    uint32_t kept = 0;
#pragma unroll 1
    for (int k = 0; k < E; k++) {
      const bool there = at + k < m;
      if (!H::Policy::quantize(there ? in[at + k] : typename C::Source(0), to[at + k], *reinterpret_cast<const typename H::Params *>(params + C::head_params)) && there) kept |= 1u << k;
    }
    if (C::has_side) keep_aside(kept, at, *desk);
    alignas(16) typename C::First c[E];
    read_elements(to + at, c);
    C::Front::forward(c, params);
    write_elements(to + at, c);
  }
}

/// Values to codes in `to`, ELEMENTWISE ops applied.
template <class C> __device__ __forceinline__ void load(const device::Forward &f, uint64_t first, uint32_t m, uint8_t *to, Desk &desk) {
  typedef typename C::Source X;
  typedef typename C::First T;
  constexpr int E = at_once<T, Lanes>, rows = (C::bytes / 16 + lanes - 1) / lanes, step = lanes * E;
  const X *in = reinterpret_cast<const X *>(f.in) + first;
  const bool wide = device::aligned16(in);
  uint32_t unsure = 0;
  X x[rows][E];
  BRIQUETTE_UNROLL
  for (int r = 0; r < rows; r++) {  // all of them under way before the first is looked at
    const uint32_t at = r * step + threadIdx.x * E;
    if (at < m) load_elements(in, at, m, wide, x[r]);
  }
  BRIQUETTE_UNROLL
  for (int r = 0; r < rows; r++) {
    const uint32_t at = r * step + threadIdx.x * E;
    if (at >= m) break;
    alignas(16) T c[E];
    if constexpr (C::has_head) {
      typedef typename C::Head H;
      typedef typename H::Params P;
      const P &p = *reinterpret_cast<const P *>(f.params + C::head_params);
      uint32_t kept = 0;
      bool sure = true;
      BRIQUETTE_UNROLL
      for (int k = 0; k < E; k++) {
        if constexpr (device::has_fast<typename H::Policy, X, T, P>::in) sure &= H::Policy::quantize_fast(x[r][k], c[k], p);
        else kept |= uint32_t(H::Policy::quantize(x[r][k], c[k], p) ? 0 : 1) << k;
      }
      if (!sure) unsure |= 1u << r;
      if (C::has_side) keep_aside(m - at < uint32_t(E) ? kept & ((1u << (m - at)) - 1u) : kept, at, desk);
    } else {
      BRIQUETTE_UNROLL
      for (int k = 0; k < E; k++) c[k] = T(x[r][k]);
    }
    C::Front::forward(c, f.params);
    write_elements(reinterpret_cast<T *>(to) + at, c);
  }
  if constexpr (C::has_head) {
    if (unsure) load_exactly<C, E, step>(in, unsure, m, reinterpret_cast<T *>(to), f.params, &desk);
  }
}

template <class C> __device__ __forceinline__ void forward(const device::Forward &f) {
  typedef typename C::First T;
#if BRIQUETTE_EMULATED
  Quad *const memory = static_cast<Quad *>(emulator::shared_memory());
#else
  extern __shared__ Quad memory[];
#endif
  __shared__ Desk desk;
  const Lanes g{reinterpret_cast<uint32_t *>(desk.sums)};
  uint8_t *const a = reinterpret_cast<uint8_t *>(memory), *const b = a + C::bytes;
  [[maybe_unused]] alignas(16) __shared__ uint8_t scratch[C::scratch];
  const uint32_t t = threadIdx.x;
  if constexpr (C::has_side) {
    desk.kept[t] = 0;
    if (t == 0) desk.kept_count = 0;
    if constexpr (!C::has_tail) __syncthreads();
  }
  const uint64_t id = C::has_tail ? f.lookback.ticket(&desk.drawn) : blockIdx.x;
  const uint64_t first = id * C::chunk;
  const uint32_t m = uint32_t(f.n - first < C::chunk ? f.n - first : C::chunk), bytes = m * uint32_t(sizeof(T));
  load<C>(f, first, m, a, desk);
  __syncthreads();
  if constexpr (C::has_side) {
    if (desk.kept_count) {  // of most chunks nothing is kept
      f.kept[id * 256 + t] = desk.kept[t];
      if (t == 0) {
        f.kept_warps[id] = 255;
        atomicAdd(f.totals + 1, (unsigned long long)(desk.kept_count));
      }
    }
  }
  uint8_t *const data = C::Interior::template forward<C::bytes>(a, b, bytes, g, f.params);
  if constexpr (C::has_tail) {
    uint8_t *coded = data == a ? b : a;
    const uint32_t whole = (bytes + 3) / 4;
    uint32_t used = chunk_encode<typename C::Tail, C::bytes>(data, coded, bytes, scratch, g, f.params);
    uint32_t size = used < bytes ? (used + 3) / 4 : whole;
    if (size >= whole) { coded = data; used = bytes; size = whole; }
    f.lookback.announce(id, size);
    if (t < 32) {
      const uint64_t base = f.lookback.before(id, size);
      if (t == 0) {
        desk.placed = base;
        f.sizes[id] = size;
        if ((id & 63) == 0) f.blocks[id >> 6] = base;
        if (id == gridDim.x - 1) f.totals[0] = base + size;
      }
    }
    __syncthreads();
    const uint64_t base = desk.placed;
    if (base + size <= f.words_room) {
      uint32_t *to = f.words + base;
      const uint32_t *from = reinterpret_cast<const uint32_t *>(coded);
#pragma unroll 4
      for (uint32_t i = t; i + 1 < size; i += lanes) to[i] = from[i];
      if (t == 0 && size) to[size - 1] = from[size - 1] & (0xffffffffu >> (32 * size - 8 * used));  // zeros behind the last byte
    }
  } else {
    T *out = reinterpret_cast<T *>(f.stream) + first;
    const T *from = reinterpret_cast<const T *>(data);
    constexpr int E = at_once<T, Lanes>;
    const bool wide = device::aligned16(out);
    for (uint32_t at = t * E; at < m; at += lanes * E) {
      if (wide && at + E <= m) *reinterpret_cast<Quad *>(out + at) = *reinterpret_cast<const Quad *>(from + at);
      else for (uint32_t k = at; k < m && k < at + E; k++) out[k] = from[k];
    }
  }
}

}  // namespace chunks
}  // namespace briquette
