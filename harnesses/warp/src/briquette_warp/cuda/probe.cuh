// Kernels' bodies that run one policy alone, from memory to memory, at a geometry chosen from outside.
// Role: none; composed by probe.py to compile a policy by itself and to compare its results between geometries.
// Requires: select.cuh; lane l holds the elements [l * E, l * E + E), G::size neighbouring lanes a span.
// Source: briquette's policy contract (docs/contracts.md).
#pragma once
#include <briquette_warp/cuda/select.cuh>

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

/// Selector: chooses by the bits of a segment's widest code, a segment being 32 elements where that divides the tile.
struct Widest {
  static constexpr uint32_t meta_bytes = 1;
  template <class T, int S> __device__ __forceinline__ static uint32_t size(uint32_t width) { return width; }
  template <class T, int E, class G> __device__ __forceinline__ static uint32_t cost(const T (&c)[E], G g) {
    unsigned_of<T> all = 0;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) add<T>(all, c[m]);
    return measure<T>(all, g);
  }
  template <class T> using Sum = unsigned_of<T>;
  template <class T> __device__ __forceinline__ static void add(Sum<T> &sum, T code) { sum = Sum<T>(sum | fold(code)); }
  template <class T, class G> __device__ __forceinline__ static uint32_t measure(Sum<T> sum, G g) { return bit_length(g.bit_or(sum)); }
};
#if BRIQUETTE_HOST
template <int N> struct LanesAs { typedef OneLane Group; };
#else
template <int N> struct LanesAs { typedef WarpLanes<N> Group; };
template <> struct LanesAs<1> { typedef OneLane Group; };
#endif
template <class O, int E> struct SelectorChain {
  typedef typename O::In First;
  typedef O Selector;
  static constexpr int segment = O::span % 32 ? int(O::span) : 32;
  typedef Op<Widest, void, segment, First, First> Tail;
  typedef typename LanesAs<(segment > E ? segment / E : 1)>::Group SegmentGroup;
  static constexpr bool has_selector = true, carries = false;
  static constexpr uint32_t most_words = O::span * 2, selector_params = 0, tail_params = 0;
  template <int N> __device__ __forceinline__ static void later_each(First (&)[N], const uint8_t *) {}
  template <int N> __device__ __forceinline__ static void later_undo(First (&)[N], const uint8_t *) {}
};
/// Words of a tile: its mode, then its side elements.
template <class C, class T = TileShape<C>> constexpr uint32_t tile_record = 1 + T::Policy::most_sides * (sizeof(typename T::T) > 4 ? 2 : 1);
template <class O, int E, class G> __device__ __forceinline__ void choose(uint32_t lane, const uint8_t *in, uint8_t *out, uint32_t *words, const uint8_t *params) {
  typedef SelectorChain<O, E> C;
  typename O::In c[E];
  TileChoices<C, E> tiles;
  load(in, lane, c);
  choose_tiles<C, true, G, typename C::SegmentGroup>(c, E, O::span, params, tiles);
  for (int k = 0; k < tiles.held && G().rank() == 0; k++) {
    uint32_t *record = words + (lane / G::size * tiles.held + k) * tile_record<C>;
    record[0] = tiles.mode[k];
    tiles.write(k, record + 1);
  }
  store(c, lane, out);
}
template <class O, int E, class G> __device__ __forceinline__ void restore(uint32_t lane, const uint8_t *in, uint8_t *out, const uint32_t *words, const uint8_t *params) {
  typedef SelectorChain<O, E> C;
  typename O::Out c[E];
  TileChoices<C, E> tiles;
  load(in, lane, c);
  tiles.clear();
  for (int k = 0; k < tiles.held; k++) {
    const uint32_t *record = words + (lane / G::size * tiles.held + k) * tile_record<C>;
    tiles.mode[k] = record[0] < TileShape<C>::modes ? record[0] : 0;
    if (G().rank() == 0) tiles.read(k, record + 1);
  }
  restore_tiles<C, true, G>(c, E, params, tiles);
  store(c, lane, out);
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
