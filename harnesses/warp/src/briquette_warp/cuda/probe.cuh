// Kernels' bodies that run one policy alone, from memory to memory, at a geometry chosen from outside.
// Role: none; composed by probe.py to compile a policy by itself and to compare its results between geometries.
// Requires: calls.cuh; lane l holds the elements [l * E, l * E + E), G::size neighbouring lanes a span.
// Source: briquette's policy contract (docs/contracts.md).
#pragma once
#include <briquette_warp/cuda/calls.cuh>

namespace briquette {
namespace probe {

template <class T, int E> __device__ __forceinline__ void load(const uint8_t *from, uint32_t lane, T (&c)[E]) {
  const T *p = reinterpret_cast<const T *>(from) + uint64_t(lane) * E;
  BRIQUETTE_UNROLL
  for (int m = 0; m < E; m++) c[m] = p[m];
}
template <class T, int E> __device__ __forceinline__ void store(const T (&c)[E], uint32_t lane, uint8_t *to) {
  T *p = reinterpret_cast<T *>(to) + uint64_t(lane) * E;
  BRIQUETTE_UNROLL
  for (int m = 0; m < E; m++) p[m] = c[m];
}

/// Code to code.
template <class O, int E, class G> __device__ __forceinline__ void forward(uint32_t lane, const uint8_t *in, uint8_t *out, const uint8_t *params) {
  typename O::In c[E];
  load(in, lane, c);
  each_forward<O>(c, G(), params);
  store(c, lane, out);
}
template <class O, int E, class G> __device__ __forceinline__ void inverse(uint32_t lane, const uint8_t *in, uint8_t *out, const uint8_t *params) {
  typename O::Out c[E];
  load(in, lane, c);
  each_inverse<O>(c, G(), params);
  store(c, lane, out);
}

/// Head: values to codes and back; `kept` has a word for each value, 1 where it is kept aside.
template <class O, int E> __device__ __forceinline__ void quantize(uint32_t lane, const uint8_t *in, uint8_t *out, uint32_t *kept, const uint8_t *params) {
  typename O::In x[E];
  typename O::Out c[E];
  uint8_t aside[E];
  load(in, lane, x);
  const bool none = head_quantize<O>(x, c, aside, params);
  BRIQUETTE_UNROLL
  for (int m = 0; m < E; m++) kept[uint64_t(lane) * E + m] = none ? 0u : uint32_t(aside[m]);
  store(c, lane, out);
}
template <class O, int E> __device__ __forceinline__ void dequantize(uint32_t lane, const uint8_t *in, uint8_t *out, const uint8_t *params) {
  typename O::In x[E];
  typename O::Out c[E];
  load(in, lane, c);
  head_dequantize<O>(c, x, params);
  store(x, lane, out);
}

/// Tail: segment s takes `Room` words at `words`; its metadata and its size in words stand in words 2 s and 2 s + 1 at `table`.
template <class O, int E, class G, uint32_t Room> __device__ __forceinline__ void encode(uint32_t lane, const uint8_t *in, uint32_t *table, uint32_t *words, const uint8_t *params) {
  typedef typename O::In T;
  const G g;
  const uint32_t segment = lane / G::size;
  T c[E];
  load(in, lane, c);
  tail_prepare<O>(c, g);
  const uint32_t meta = tail_cost<O>(c, g, params), size = tail_size<O, T>(meta, params);
  if (size <= Room) tail_pack<O>(c, meta, g, words + uint64_t(segment) * Room, params);
  if (g.rank() == 0) { table[2 * segment] = meta; table[2 * segment + 1] = size; }
}
template <class O, int E, class G, uint32_t Room> __device__ __forceinline__ void decode(uint32_t lane, const uint32_t *table, uint8_t *out, const uint32_t *words, const uint8_t *params) {
  typedef typename O::In T;
  const G g;
  const uint32_t segment = lane / G::size, meta = table[2 * segment];
  T c[E];
  BRIQUETTE_UNROLL
  for (int m = 0; m < E; m++) c[m] = T(0);
  if (tail_size<O, T>(meta, params) <= Room) tail_decode<O>(meta, words + uint64_t(segment) * Room, c, g, params);
  tail_finish<O>(c, g);
  store(c, lane, out);
}

}  // namespace probe
}  // namespace briquette
