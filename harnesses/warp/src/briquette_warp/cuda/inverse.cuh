// The fused decompression kernel: one block decodes one archive chunk; any chunk, in any order.
// Role: composed with a generated `Chain` into an entry point of the CUDA target.
// Requires: device.cuh, outliers.cuh.
// Source: briquette.
#pragma once
#include <briquette_warp/cuda/device.cuh>
#include <briquette_warp/cuda/layout_device.cuh>
#include <briquette_warp/cuda/outliers.cuh>
#include <briquette_warp/cuda/select_device.cuh>

namespace briquette {
namespace device {

/// What a run gives the kernel; chunk `begin` is the first one to decode, `out` where its first element goes.
struct Inverse {
  void *out;
  uint64_t n, begin;
  const uint8_t *params;
  const void *stream;
  const uint32_t *sizes, *words;
  const uint64_t *blocks;
  uint64_t words_held;
  const uint32_t *side_sizes, *side;
  const uint64_t *side_blocks;
  uint64_t side_held;
  uint32_t *flag;
  uint64_t laid, wanted, wanted_end;  // of a chain with a LAYOUT: the laid-out element at which chunk `begin` starts, the part of the array at `out`
};

/// The same for a chain whose tiles come on a port of their own.
struct TiledInverse : Inverse {
  const uint32_t *tile_sizes, *tile_words;
  const uint64_t *tile_blocks;
  uint64_t tiles_held;
};

/// Dequantize one lane's row of shared memory in place, from the back: no code may be wider than a value.
template <class H, class X, class T> __device__ __noinline__ void dequantize_row(X *row, const typename H::Params *p) {
  static_assert(sizeof(T) <= sizeof(X), "codes fit in the values' place");
  const T *code = reinterpret_cast<const T *>(row);
#pragma unroll 1
  for (int m = per_lane - 1; m >= 0; m--) row[m] = H::Policy::dequantize(code[m], X(0), *p);
}

template <class H, class X, class T> __device__ __forceinline__ void dequantize_lane(const T (&c)[per_lane], X *tile, const uint8_t *params) {
  typedef typename H::Params P;
  const P p = *reinterpret_cast<const P *>(params);
  X *row = tile + threadIdx.x * pitch<X>;
  constexpr bool fast = has_fast<typename H::Policy, X, T, P>::out && sizeof(T) <= sizeof(X);
  constexpr int V = 16 / sizeof(X);
  bool sure = true;
  BRIQUETTE_UNROLL
  for (int k = 0; k < per_lane / V; k++) {  // values go to shared memory at once: a lane has no registers for both
    Vector held;
    X *x = reinterpret_cast<X *>(&held);
    BRIQUETTE_UNROLL
    for (int j = 0; j < V; j++) {
      if constexpr (fast) sure &= H::Policy::dequantize_fast(c[k * V + j], x[j], p);
      else x[j] = H::Policy::dequantize(c[k * V + j], X(0), p);
    }
    *reinterpret_cast<Vector *>(row + k * V) = held;
  }
  if constexpr (fast) {
    if (!sure) {
      write_row(reinterpret_cast<T *>(row), c);
      dequantize_row<H, X, T>(row, reinterpret_cast<const P *>(params));
    }
  }
}

/// Read modes and side elements of a chunk's tiles from their port. All lanes get the same answer: false where the words are damaged.
template <class C> __device__ __forceinline__ bool read_tiles(const TiledInverse &f, uint64_t id, uint32_t m, TileChoices<C, per_lane> &tiles) {
  typedef TileShape<C> S;
  __shared__ uint32_t scratch[lanes / 32];
  const uint32_t count = S::tiles(m), heads = S::heads(count), size = f.tile_sizes[id];
  const uint64_t base = chunk_offset(f.tile_blocks, f.tile_sizes, id);
  bool sound = size >= heads && size <= C::most_tile_words && base + size <= f.tiles_held;
  const uint32_t *in = f.tile_words + base;
  uint32_t mine = 0;
  bool bad = false;
  BRIQUETTE_UNROLL
  for (int k = 0; k < TileChoices<C, per_lane>::held; k++) {
    const uint32_t first = threadIdx.x * per_lane + k * TileChoices<C, per_lane>::each, tile = first / S::span;
    if (!sound || tile >= count) continue;
    const uint32_t bit = tile * S::mode_bits;
    uint32_t mode = in[bit / 32] >> bit % 32;
    if (bit % 32 + S::mode_bits > 32) mode |= in[bit / 32 + 1] << (32 - bit % 32);
    mode &= (1u << S::mode_bits) - 1u;
    if (mode >= S::modes) { bad = true; mode = 0; }
    tiles.mode[k] = mode;
    if (first % S::span == 0) mine += S::words(mode);
  }
  // what follows the modes in their last word is zero
  if (sound && threadIdx.x == 0 && count * S::mode_bits % 32 && in[heads - 1] >> count * S::mode_bits % 32) bad = true;
  uint32_t total, at = heads + block_sum(bad ? C::most_tile_words + 1 : mine, scratch, total);  // a bad lane's own share is too much
  sound = sound && heads + total == size;
  if (!sound) { tiles.clear(); return false; }
  BRIQUETTE_UNROLL
  for (int k = 0; k < TileChoices<C, per_lane>::held; k++) {
    const uint32_t first = threadIdx.x * per_lane + k * TileChoices<C, per_lane>::each;
    if (first % S::span || first >= m) continue;
    tiles.read(k, in + at);
    at += S::words(tiles.mode[k]);
  }
  return true;
}

/// Put the modes of the block's tiles together from what stood in their segments' spare bits; false where that is no mode.
template <class C, int Held> __device__ __forceinline__ bool take_modes(const uint32_t (&spare)[Held], TileChoices<C, per_lane> &tiles) {
  bool sound = true;
  BRIQUETTE_UNROLL
  for (int k = 0; k < Held; k++) {
    const int at = k * Segments<typename C::Tail>::each;
    const uint32_t segment = uint32_t(threadIdx.x * per_lane + at) % TileShape<C>::span / C::Tail::span;
    sound &= TileBits<C>::take(spare[k], segment, tiles.mode[at / tiles.each]);
  }
  BRIQUETTE_UNROLL
  for (int k = 0; k < tiles.held; k++) {
    const typename TileLanes<C, true>::Group g;
    tiles.mode[k] = TileBits<C>::carriers == 1 ? g.broadcast(tiles.mode[k], 0) : g.bit_or(tiles.mode[k]);
    if (tiles.mode[k] >= TileShape<C>::modes) { tiles.mode[k] = 0; sound = false; }
  }
  return sound;
}

/// Words that stand before the segment which begins at `first`: the side elements of the tile that begins there.
template <class C> __device__ __forceinline__ uint32_t lead_words(uint32_t first, int tile, uint32_t m, const TileChoices<C, per_lane> &tiles) {
  return first % TileShape<C>::span == 0 && first < m ? TileShape<C>::words(tiles.mode[tile]) : 0u;
}

template <class C, bool Whole> __device__ __forceinline__ void restore_lanes(typename C::First (&c)[per_lane], uint32_t mine, const uint8_t *params, const TileChoices<C, per_lane> &tiles) {
  restore_tiles<C, Whole, typename TileLanes<C>::Group>(c, mine, params, tiles);
}

template <class C, class Run> __device__ __forceinline__ void inverse(const Run &f) {
  typedef typename C::Source X;
  typedef typename C::First T;
  BRIQUETTE_DYNAMIC_SHARED(Vector, memory);
  __shared__ uint32_t sums[lanes / 32];
  const int t = int(threadIdx.x);
  const uint64_t id = f.begin + blockIdx.x, first = id * chunk;
  const uint32_t m = uint32_t(f.n - first < uint64_t(chunk) ? f.n - first : uint64_t(chunk));
  const uint32_t mine = m > uint32_t(t * per_lane) ? (m - t * per_lane < uint32_t(per_lane) ? m - t * per_lane : per_lane) : 0;
  T c[per_lane];
  constexpr bool carries = carries_tiles<C>::value;
  TileChoices<C, per_lane> tiles;
  if constexpr (C::has_selector) tiles.clear();

  if constexpr (C::has_tail) {
    typedef typename C::Tail Tail;
    typedef typename Tail::In L;
    typedef Segments<Tail> S;
    typename S::Group g;
    constexpr int M = int(Tail::Policy::meta_bytes);
    const uint8_t *params = f.params + C::tail_params;
    uint32_t *in = reinterpret_cast<uint32_t *>(memory);
    const uint32_t words = f.sizes[id], lead = ((m + Tail::span - 1) / Tail::span * M + 3) / 4;
    const uint64_t base = chunk_offset(f.blocks, f.sizes, id);  // by each warp for itself: cheaper than a barrier
    bool sound = words >= lead && words <= uint32_t(C::most_words) && base + words <= f.words_held;
    const uint8_t *metas = reinterpret_cast<const uint8_t *>(in);
    if (sound) for (uint32_t i = t; i < words; i += lanes) in[i] = f.words[base + i];
    __syncthreads();
    uint32_t meta[S::held], size[S::held], spare[S::held], mine_words = 0;
    BRIQUETTE_UNROLL
    for (int k = 0; k < S::held; k++) {
      meta[k] = size[k] = spare[k] = 0;
      const uint32_t segment = uint32_t(t * per_lane + k * S::each) / Tail::span;
      if (sound && segment * Tail::span < m) {
        BRIQUETTE_UNROLL
        for (int b = 0; b < M; b++) meta[k] |= uint32_t(metas[segment * M + b]) << (8 * b);
        if constexpr (carries) spare[k] = TileBits<C>::split(meta[k]);
        size[k] = tail_size<Tail, L>(meta[k], params);
        if (size[k] > words) size[k] = words + 1;  // makes the sum too large, and cannot wrap it: 256 lanes of at most 32 segments
      }
      mine_words += g.rank() == 0 ? size[k] : 0;
    }
    if constexpr (carries) {
      if (!take_modes<C>(spare, tiles)) mine_words = words + 1;  // too large, as below
      mine_words += tile_words<C>(tiles, m);
    }
    uint32_t total;
    // the metadata's padding is zero: a byte that is not makes the sum too large
    for (uint32_t b = (m + Tail::span - 1) / Tail::span * M + t; sound && b < lead * 4; b += lanes) if (metas[b]) mine_words = words + 1;
    uint32_t at = lead + block_sum(mine_words, sums, total);
    sound = sound && lead + total == words;  // the same in all lanes
    if (!sound) {  // decode something within the tile: the flag tells that it means nothing
      if (t == 0) *f.flag = damaged;
      at = 0;
      BRIQUETTE_UNROLL
      for (int k = 0; k < S::held; k++) meta[k] = size[k] = 0;
      if constexpr (carries) tiles.clear();
    }
    if constexpr (S::spread) at = g.broadcast(at, 0);
    auto &codes = as<L>(c);
    BRIQUETTE_UNROLL
    for (int k = 0; k < S::held; k++) {
      if constexpr (carries) {
        const int tile = k * S::each / tiles.each;
        const uint32_t before = lead_words<C>(t * per_lane + (k - g.rank()) * S::each, tile, m, tiles);
        if (before && g.rank() == 0) tiles.read(tile, in + at);
        at += before;
      }
      tail_decode<Tail>(meta[k], in + at, slice<S::each>(codes, k), g, params);
      tail_finish<Tail>(slice<S::each>(codes, k), g);
      at += size[k];
    }
    __syncthreads();  // the tile takes the words' place
  } else {
    load_tile(reinterpret_cast<const T *>(f.stream) + first, m, reinterpret_cast<T *>(memory));
    read_row(reinterpret_cast<const T *>(memory) + t * pitch<T>, c);
    __syncthreads();
  }

  if constexpr (C::has_selector && !carries) {
    if (!read_tiles<C>(f, id, m, tiles) && t == 0) *f.flag = damaged;
  }
  if (m == uint32_t(chunk)) {
    if constexpr (C::has_selector) restore_lanes<C, true>(c, mine, f.params, tiles);
    C::template inverse<true>(c, mine, f.params);
  } else {
    if constexpr (C::has_selector) restore_lanes<C, false>(c, mine, f.params, tiles);
    C::template inverse<false>(c, mine, f.params);
  }
  X *tile = reinterpret_cast<X *>(memory);
  if constexpr (C::has_head) dequantize_lane<typename C::Head>(c, tile, f.params + C::head_params);
  else write_row(reinterpret_cast<T *>(tile) + t * pitch<T>, c);

  if constexpr (C::has_layout) {
    scatter_tile<C>(reinterpret_cast<X *>(f.out), f.laid + uint64_t(blockIdx.x) * chunk, m, f.wanted, f.wanted_end, tile, f.params);
    return;
  }
  if constexpr (C::has_side) {
    const uint32_t side_words = f.side_sizes ? f.side_sizes[id] : 0;
    if (side_words) {
      const uint64_t base = chunk_offset(f.side_blocks, f.side_sizes, id);
      const bool sound = base + side_words <= f.side_held && restore_outliers<X>(f.side + base, side_words, m, tile);
      if (!__syncthreads_and(sound) && t == 0) *f.flag = damaged;
    }
  }
  store_tile(reinterpret_cast<X *>(f.out) + uint64_t(blockIdx.x) * chunk, m, tile);
}

/// What a run gives the kernel that restores values kept aside once a LAYOUT has been undone; chunks are the array's.
struct Restore {
  void *out;
  uint64_t n, begin;
  const uint32_t *sizes, *words;
  const uint64_t *blocks;
  uint64_t held;
  uint32_t *flag;
};
template <class X> __device__ __forceinline__ void restore_aside(const Restore &f) {
  const uint64_t id = f.begin + blockIdx.x, first = id * chunk;
  const uint32_t words = f.sizes[id];
  if (!words) return;
  const uint64_t base = chunk_offset(f.blocks, f.sizes, id);
  const uint32_t m = uint32_t(f.n - first < uint64_t(chunk) ? f.n - first : uint64_t(chunk));
  const bool sound = base + words <= f.held && restore_outliers<X, false>(f.words + base, words, m, reinterpret_cast<X *>(f.out) + uint64_t(blockIdx.x) * chunk);
  if (!__syncthreads_and(sound) && threadIdx.x == 0) *f.flag = damaged;
}

}  // namespace device
}  // namespace briquette
