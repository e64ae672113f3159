// The fused decompression kernel: one block decodes one archive chunk; any chunk, in any order.
// Role: composed with a generated `Chain` into an entry point of the CUDA target.
// Requires: passes.cuh; of the warp-register harness what a run gives a kernel, and outliers.
// Source: briquette.
#pragma once
#include <briquette_chunk/cuda/passes.cuh>
#include <briquette_warp/cuda/inverse.cuh>

namespace briquette {
namespace chunks {

constexpr int lanes = device::lanes;
typedef ChunkLanes<lanes> Lanes;

/// Dequantize exactly where the fast form would not answer: row r of this lane's codes where bit r of `rows` is set.
template <class C, int E, int Step> __device__ __noinline__ void store_exactly(const typename C::First *from, uint32_t rows, uint32_t m, typename C::Source *out, const uint8_t *params) {
  typedef typename C::Head H;
#pragma unroll 1
  for (; rows; rows &= rows - 1) {
    const uint32_t at = (uint32_t(__ffs(int(rows))) - 1) * Step + threadIdx.x * E;
    alignas(16) typename C::First c[E];
    read_elements(from + at, c);
    C::Front::inverse(c, params);
    BRIQUETTE_UNROLL
    for (int k = 0; k < E; k++)
      if (at + k < m) out[at + k] = H::Policy::dequantize(c[k], typename C::Source(0), *reinterpret_cast<const typename H::Params *>(params + C::head_params));
  }
}

/// Codes in `from` to values, ELEMENTWISE ops undone.
template <class C> __device__ __forceinline__ void store(typename C::Source *out, uint32_t m, const uint8_t *from, const uint8_t *params) {
  typedef typename C::Source X;
  typedef typename C::First T;
  constexpr int E = at_once<T, Lanes>, V = int(16 / sizeof(X)), each = E < V ? E : V;
  constexpr int rows = (C::bytes / 16 + lanes - 1) / lanes, step = lanes * E;
  const bool wide = E % V == 0 && device::aligned16(out);
  uint32_t unsure = 0;
  BRIQUETTE_UNROLL
  for (int r = 0; r < rows; r++) {
    const uint32_t at = r * step + threadIdx.x * E;
    if (at >= m) break;
    alignas(16) T c[E];
    alignas(16) X x[E];
    read_elements(reinterpret_cast<const T *>(from) + at, c);
    C::Front::inverse(c, params);
    if constexpr (C::has_head) {
      typedef typename C::Head H;
      typedef typename H::Params P;
      const P &p = *reinterpret_cast<const P *>(params + C::head_params);
      bool sure = true;
      BRIQUETTE_UNROLL
      for (int k = 0; k < E; k++) {
        if constexpr (device::has_fast<typename H::Policy, X, T, P>::out) sure &= H::Policy::dequantize_fast(c[k], x[k], p);
        else x[k] = H::Policy::dequantize(c[k], X(0), p);
      }
      if (!sure) {
        unsure |= 1u << r;
        continue;
      }
    } else {
      BRIQUETTE_UNROLL
      for (int k = 0; k < E; k++) x[k] = X(c[k]);
    }
    if (wide && at + E <= m) {
      BRIQUETTE_UNROLL
      for (int k = 0; k < E; k += V) write_elements(out + at + k, slice<each>(x, k / each));
    } else {
      BRIQUETTE_UNROLL
      for (int k = 0; k < E; k++) if (at + k < m) out[at + k] = x[k];
    }
  }
  if constexpr (C::has_head) {
    if (unsure) store_exactly<C, E, step>(reinterpret_cast<const T *>(from), unsure, m, out, params);
  }
}

template <class C> __device__ __forceinline__ void inverse(const device::Inverse &f) {
  typedef typename C::Source X;
  typedef typename C::First T;
#if BRIQUETTE_EMULATED
  Quad *const memory = static_cast<Quad *>(emulator::shared_memory());
#else
  extern __shared__ Quad memory[];
#endif
  __shared__ unsigned long long sums[lanes / 32];
  const Lanes g{reinterpret_cast<uint32_t *>(sums)};
  uint8_t *const a = reinterpret_cast<uint8_t *>(memory), *const b = a + C::bytes;
  [[maybe_unused]] alignas(16) __shared__ uint8_t scratch[C::scratch];
  const uint32_t t = threadIdx.x;
  const uint64_t id = f.begin + blockIdx.x, first = id * C::chunk;
  const uint32_t m = uint32_t(f.n - first < C::chunk ? f.n - first : C::chunk), bytes = m * uint32_t(sizeof(T));

  if constexpr (C::has_tail) {
    const uint32_t words = f.sizes[id], whole = (bytes + 3) / 4;
    const uint64_t base = device::chunk_offset(f.blocks, f.sizes, id);  // by each warp for itself: cheaper than a barrier
    bool sound = words <= whole && base + words <= f.words_held;
    if (sound) {
      uint32_t *in = reinterpret_cast<uint32_t *>(words == whole ? b : a);
#pragma unroll 4
      for (uint32_t i = t; i < words; i += lanes) in[i] = f.words[base + i];
    }
    __syncthreads();
    if (sound && words == whole) {  // as it is; what pads it is zero
      for (uint32_t i = bytes; i < 4 * whole; i++) sound = sound && !b[i];
    } else if (sound) sound = chunk_decode<typename C::Tail, C::bytes>(a, 4 * words, b, bytes, scratch, g, f.params);
    if (!sound) {  // the same in all lanes
      if (t == 0) *f.flag = device::damaged;
      return;
    }
  } else {
    constexpr int E = at_once<T, Lanes>;
    const T *in = reinterpret_cast<const T *>(f.stream) + first;
    const bool wide = device::aligned16(in);
    T *to = reinterpret_cast<T *>(b);
    for (uint32_t at = t * E; at < m; at += lanes * E) {
      if (wide && at + E <= m) *reinterpret_cast<Quad *>(to + at) = *reinterpret_cast<const Quad *>(in + at);
      else for (uint32_t k = at; k < m && k < at + E; k++) to[k] = in[k];
    }
  }
  __syncthreads();
  uint8_t *const data = C::Interior::template inverse<C::bytes>(b, a, bytes, g, f.params);
  X *out = reinterpret_cast<X *>(f.out) + uint64_t(blockIdx.x) * C::chunk;
  store<C>(out, m, data, f.params);
  if constexpr (C::has_side) {
    const uint32_t side_words = f.side_sizes ? f.side_sizes[id] : 0;
    if (side_words) {
      const uint64_t base = device::chunk_offset(f.side_blocks, f.side_sizes, id);
      __syncthreads();  // outliers overwrite what stands there
      const bool sound = base + side_words <= f.side_held && device::restore_outliers<X, false>(f.side + base, side_words, m, out);
      if (!__syncthreads_and(sound) && t == 0) *f.flag = device::damaged;
    }
  }
}

}  // namespace chunks
}  // namespace briquette
