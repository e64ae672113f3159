// The fused compression kernel: one block codes one archive chunk, in one pass over the data.
// Role: composed with a generated `Chain` into an entry point of the CUDA target.
// Requires: device.cuh.
// Source: briquette; memory plan after SZp and cuSZp (Huang et al., SC 2023), one coder segment a lane.
#pragma once
#include <briquette_warp/cuda/device.cuh>
#include <briquette_warp/cuda/layout_device.cuh>
#include <briquette_warp/cuda/select_device.cuh>

#ifndef briquette_doze  // a stress test puts delays here
#define briquette_doze(salt)
#endif

namespace briquette {
namespace device {

/// What a run gives the kernel.
struct Forward {
  const void *in;
  uint64_t n;
  const uint8_t *params;
  void *stream;                 // where codes go when the chain has no tail
  uint32_t *sizes, *words;      // of the archive
  uint64_t *blocks;             // word offset of every 64th chunk
  uint64_t words_room;
  Lookback lookback;
  uint32_t *kept, *kept_warps;  // a bit an element, written by warps that keep any; a bit a warp, in a word a chunk
  unsigned long long *totals;   // words, values kept aside
};

/// The same for a chain whose tiles leave the group on a port of their own.
struct TiledForward : Forward {
  uint32_t *tile_sizes, *tile_words;
  uint64_t *tile_blocks;
  uint64_t tiles_room;
  Lookback tiles_lookback;
  unsigned long long *tiles_total;
};

/// Quantize one lane's row of shared memory in place, exactly, where the fast form would not answer for it: codes take the
/// values' places from the front, so none may be wider. Returns the mask of values to keep aside.
/// (An array handed over in local memory instead would be written by every lane, slow path or not.)
template <class H, class X, class T> __device__ __noinline__ uint32_t quantize_row(X *row, const typename H::Params *p) {
  static_assert(sizeof(T) <= sizeof(X), "codes fit in the values' place");
  T *code = reinterpret_cast<T *>(row);
  uint32_t kept = 0;
#pragma unroll 1
  for (int m = 0; m < per_lane; m++) {
    T made;
    kept |= uint32_t(H::Policy::quantize(row[m], made, *p) ? 0 : 1) << m;
    code[m] = made;
  }
  return kept;
}

template <class H, class X, class T> __device__ __forceinline__ uint32_t quantize_lane(X *tile, T (&c)[per_lane], const uint8_t *params) {
  typedef typename H::Params P;
  const P p = *reinterpret_cast<const P *>(params);
  X *row = tile + threadIdx.x * pitch<X>;
  constexpr bool fast = has_fast<typename H::Policy, X, T, P>::in && sizeof(T) <= sizeof(X);
  constexpr int V = 16 / sizeof(X);
  uint32_t kept = 0;
  bool sure = true;
  BRIQUETTE_UNROLL
  for (int k = 0; k < per_lane / V; k++) {
    const Vector held = *reinterpret_cast<const Vector *>(row + k * V);
    const X *x = reinterpret_cast<const X *>(&held);
    BRIQUETTE_UNROLL
    for (int j = 0; j < V; j++) {
      const int m = k * V + j;
      if constexpr (fast) sure &= H::Policy::quantize_fast(x[j], c[m], p);
      else kept |= uint32_t(H::Policy::quantize(x[j], c[m], p) ? 0 : 1) << m;
    }
  }
  if constexpr (fast) {
    if (!sure) {
      kept = quantize_row<H, X, T>(row, reinterpret_cast<const P *>(params));
      read_row(reinterpret_cast<const T *>(row), c);
    }
  }
  return kept;
}

/// Choose for the block's tiles: slices of a lane, or lanes of a warp, as their span is.
template <class C, bool Whole> __device__ __forceinline__ void choose_lanes(typename C::First (&c)[per_lane], uint32_t mine, uint32_t m, const uint8_t *params, TileChoices<C, per_lane> &tiles) {
  constexpr uint32_t span = TileShape<C>::span;
  const uint32_t first = threadIdx.x * per_lane / span * span, at = span > per_lane ? first : threadIdx.x * per_lane;
  choose_tiles<C, Whole, typename TileLanes<C>::Group, typename Segments<typename C::Tail>::Group>(c, mine, m > at ? m - at : 0u, params, tiles);
}

/// Write modes and side elements of a chunk's tiles to `out`, which is zero up to `heads`; side words of this lane at `at`.
template <class C> __device__ __forceinline__ void write_tiles(const TileChoices<C, per_lane> &tiles, uint32_t m, uint32_t at, uint32_t *out) {
  typedef TileShape<C> S;
  BRIQUETTE_UNROLL
  for (int k = 0; k < TileChoices<C, per_lane>::held; k++) {
    const uint32_t first = threadIdx.x * per_lane + k * TileChoices<C, per_lane>::each, mode = tiles.mode[k];
    if (first % S::span || first >= m) continue;
    const uint32_t bit = first / S::span * S::mode_bits;
    atomicOr(out + bit / 32, mode << bit % 32);
    if (bit % 32 + S::mode_bits > 32) atomicOr(out + bit / 32 + 1, mode >> (32 - bit % 32));
    tiles.write(k, out + at);
    at += S::words(mode);
  }
}
template <class C, class Run> __device__ __forceinline__ void forward(const Run &f) {
  typedef typename C::Source X;
  typedef typename C::First T;
  BRIQUETTE_DYNAMIC_SHARED(Vector, memory);
  X *tile = reinterpret_cast<X *>(memory);
  __shared__ uint32_t sums[lanes / 32];
  __shared__ unsigned long long drawn, placed;
  const int t = int(threadIdx.x);
  // one block a chunk: blocks that stay and draw their next chunk early make all others wait for it (docs/notes/cuda.md)
  const uint64_t id = C::has_tail ? f.lookback.ticket(&drawn) : blockIdx.x;
  const uint64_t first = id * chunk;
  const uint32_t m = uint32_t(f.n - first < uint64_t(chunk) ? f.n - first : uint64_t(chunk));
  const uint32_t mine = m > uint32_t(t * per_lane) ? (m - t * per_lane < uint32_t(per_lane) ? m - t * per_lane : per_lane) : 0;
  if constexpr (C::has_layout) gather_tile<C>(reinterpret_cast<const X *>(f.in), first, m, tile, f.params);
  else load_tile(reinterpret_cast<const X *>(f.in) + first, m, tile);

  T c[per_lane];
  if constexpr (C::has_head) {
    uint32_t kept = quantize_lane<typename C::Head>(tile, c, f.params + C::head_params);
    if constexpr (C::has_side) {
      kept &= mine < uint32_t(per_lane) ? (1u << mine) - 1u : 0xffffffffu;
      if constexpr (C::has_layout) { if (kept) mark_kept<C>(kept, first, f.kept, f.kept_warps, f.totals + 1, f.params); }
      else if (__any_sync(0xffffffffu, kept != 0)) {  // no barrier: most warps keep nothing
        f.kept[id * lanes + t] = kept;
        const uint32_t count = __reduce_add_sync(0xffffffffu, uint32_t(__popc(kept)));
        if ((t & 31) == 0) {
          atomicOr(f.kept_warps + id, 1u << (t >> 5));
          atomicAdd(f.totals + 1, (unsigned long long)(count));
        }
      }
    }
    if constexpr (!C::has_tail) __syncthreads();
  } else {
    read_row(reinterpret_cast<const T *>(tile) + t * pitch<T>, c);
    __syncthreads();
  }
  TileChoices<C, per_lane> tiles;
  if (m == uint32_t(chunk)) {
    C::template forward<true>(c, mine, f.params);
    if constexpr (C::has_selector) choose_lanes<C, true>(c, mine, m, f.params, tiles);
  } else {
    C::template forward<false>(c, mine, f.params);
    if constexpr (C::has_selector) choose_lanes<C, false>(c, mine, m, f.params, tiles);
  }

  if constexpr (C::has_tail) {
    typedef typename C::Tail Tail;
    typedef typename Tail::In L;
    typedef Segments<Tail> S;
    typename S::Group g;
    constexpr int M = int(Tail::Policy::meta_bytes);
    const uint8_t *params = f.params + C::tail_params;
    auto &codes = as<L>(c);
    uint32_t meta[S::held], size[S::held], words = 0;
    BRIQUETTE_UNROLL
    for (int k = 0; k < S::held; k++) {
      tail_prepare<Tail>(slice<S::each>(codes, k), g);
      meta[k] = tail_cost<Tail>(slice<S::each>(const_cast<const L(&)[per_lane]>(codes), k), g, params);
      const bool real = uint32_t(t * per_lane + k * S::each - g.rank() * S::each) < m;
      size[k] = real ? tail_size<Tail, L>(meta[k], params) : 0;
      if (!real) meta[k] = 0;
      words += g.rank() == 0 ? size[k] : 0;
    }
    constexpr bool carries = carries_tiles<C>::value, tiled = C::has_selector && !carries;
    if constexpr (carries) words += tile_words<C>(tiles, m);
    if constexpr (tiled) words |= tile_words<C>(tiles, m) << 16;  // both sums fit 16 bits: a chunk fits shared memory
    const uint32_t lead = ((m + Tail::span - 1) / Tail::span * M + 3) / 4;
    uint32_t total;
    uint32_t *side = nullptr;
    if constexpr (tiled) {
      __shared__ uint32_t room[C::most_tile_words];
      side = room;
      for (uint32_t i = t; i < TileShape<C>::heads(chunk / TileShape<C>::span); i += lanes) side[i] = 0;
    }
    uint32_t at = block_sum(words, sums, total);  // its barrier also ends the use of the tile
    uint32_t side_at = 0, side_total = 0;
    if constexpr (tiled) {
      const uint32_t heads = TileShape<C>::heads(TileShape<C>::tiles(m));
      side_at = heads + (at >> 16);
      side_total = heads + (total >> 16);
      at &= 0xffffu;
      total &= 0xffffu;
      f.tiles_lookback.announce(id, side_total);
    }
    at += lead;
    total += lead;
    briquette_doze(1);
    f.lookback.announce(id, total);
    briquette_doze(2);
    if constexpr (S::spread) at = g.broadcast(at, 0);
    uint32_t *out = reinterpret_cast<uint32_t *>(memory);
    uint8_t *metas = reinterpret_cast<uint8_t *>(out);
    uint32_t written[S::held];
    BRIQUETTE_UNROLL
    for (int k = 0; k < S::held; k++) {
      written[k] = meta[k];
      if constexpr (carries) {
        const uint32_t first = uint32_t(t * per_lane + k * S::each);
        if (first < m) written[k] |= TileBits<C>::put(tiles.mode[k * S::each / tiles.each], first % TileShape<C>::span / Tail::span);
      }
    }
    if (g.rank() == 0) {
      BRIQUETTE_UNROLL
      for (int k = 0; k < S::held; k++) {
        const uint32_t segment = uint32_t(t * per_lane + k * S::each) / Tail::span;
        BRIQUETTE_UNROLL
        for (int b = 0; b < M; b++) if (segment * M + b < lead * 4) metas[segment * M + b] = uint8_t(written[k] >> (8 * b));
      }
    }
    // the padding of the metadata behind the last segment's lane
    if (t == 0) for (uint32_t b = lanes * per_lane / Tail::span * M; b < lead * 4; b++) metas[b] = 0;
    if constexpr (tiled) write_tiles<C>(tiles, m, side_at, side);
    BRIQUETTE_UNROLL
    for (int k = 0; k < S::held; k++) {
      if constexpr (carries) {  // before the words of the tile's first segment
        const uint32_t first = uint32_t(t * per_lane + k * S::each - g.rank() * S::each);
        if (first % TileShape<C>::span == 0 && first < m) {
          const int tile = k * S::each / tiles.each;
          if (g.rank() == 0) tiles.write(tile, out + at);
          at += TileShape<C>::words(tiles.mode[tile]);
        }
      }
      if constexpr (S::together) pack_together<Tail>(slice<S::each>(const_cast<const L(&)[per_lane]>(codes), k), meta[k], size[k], out + at, params);
      else if (size[k] || S::spread) tail_pack<Tail>(slice<S::each>(const_cast<const L(&)[per_lane]>(codes), k), meta[k], g, out + at, params);
      at += size[k];
    }
    if (t < 32) {
      const uint64_t base = f.lookback.before(id, total);
      if (t == 0) {
        placed = base;
        f.sizes[id] = total;
        if ((id & 63) == 0) f.blocks[id >> 6] = base;
        if (id == gridDim.x - 1) f.totals[0] = base + total;
      }
    }
    if constexpr (tiled) {  // by another warp at the same time
      __shared__ unsigned long long side_placed;
      if (t >= 32 && t < 64) {
        const uint64_t base = f.tiles_lookback.before(id, side_total);
        if (t == 32) {
          side_placed = base;
          f.tile_sizes[id] = side_total;
          if ((id & 63) == 0) f.tile_blocks[id >> 6] = base;
          if (id == gridDim.x - 1) *f.tiles_total = base + side_total;
        }
      }
      __syncthreads();
      const uint64_t base = side_placed;
      if (base + side_total <= f.tiles_room)
        for (uint32_t i = t; i < side_total; i += lanes) f.tile_words[base + i] = side[i];
    } else __syncthreads();
    const uint64_t base = placed;
    if (base + total <= f.words_room) {
      uint32_t *to = f.words + base;
      for (uint32_t i = t; i < total; i += lanes) to[i] = out[i];
    }
  } else {
    write_row(reinterpret_cast<T *>(memory) + t * pitch<T>, c);
    store_tile(reinterpret_cast<T *>(f.stream) + first, m, reinterpret_cast<const T *>(memory));
  }
}

}  // namespace device
}  // namespace briquette
