// The fused compression kernel: one block codes one archive chunk, in one pass over the data.
// Role: composed with a generated `Chain` into an entry point of the CUDA target.
// Requires: device.cuh.
// Source: briquette; memory plan after SZp and cuSZp (Huang et al., SC 2023), one coder segment a lane.
#pragma once
#include <briquette_warp/cuda/device.cuh>

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
  uint32_t *kept, *kept_counts; // a bit an element, a count a chunk
  unsigned long long *totals;   // words, values kept aside
};

/// Quantize one lane's row again, exactly, where the fast form would not answer for it. Returns the mask of values to keep aside.
template <class H, class X, class T> __device__ __noinline__ uint32_t quantize_row(const X *row, T *code, const typename H::Params *p) {
  uint32_t kept = 0;
#pragma unroll 1
  for (int m = 0; m < per_lane; m++) {
    T made;
    kept |= uint32_t(H::Policy::quantize(row[m], made, *p) ? 0 : 1) << m;
    code[m] = made;
  }
  return kept;
}

template <class H, class X, class T> __device__ __forceinline__ uint32_t quantize_lane(const X *tile, T (&c)[per_lane], const uint8_t *params) {
  typedef typename H::Params P;
  const P p = *reinterpret_cast<const P *>(params);
  X x[per_lane];
  read_row(tile, x);
  uint32_t kept = 0;
  if constexpr (has_fast<typename H::Policy, X, T, P>::in) {
    int sure = 1;
    BRIQUETTE_UNROLL
    for (int m = 0; m < per_lane; m++) sure &= H::Policy::quantize_fast(x[m], c[m], p) ? 1 : 0;
    if (!sure) {
      T again[per_lane];
      kept = quantize_row<H>(tile + threadIdx.x * pitch<X>, again, reinterpret_cast<const P *>(params));
      BRIQUETTE_UNROLL
      for (int m = 0; m < per_lane; m++) c[m] = again[m];
    }
  } else {
    BRIQUETTE_UNROLL
    for (int m = 0; m < per_lane; m++) kept |= uint32_t(H::Policy::quantize(x[m], c[m], p) ? 0 : 1) << m;
  }
  return kept;
}

template <class C> __device__ __forceinline__ void forward(const Forward &f) {
  typedef typename C::Source X;
  typedef typename C::First T;
  extern __shared__ Vector memory[];
  X *tile = reinterpret_cast<X *>(memory);
  __shared__ uint32_t sums[lanes / 32], counts[lanes / 32];
  __shared__ unsigned long long drawn, placed;
  const int t = int(threadIdx.x);
  const uint64_t id = C::has_tail ? f.lookback.ticket(&drawn) : blockIdx.x;
  const uint64_t first = id * chunk;
  const uint32_t m = uint32_t(f.n - first < uint64_t(chunk) ? f.n - first : uint64_t(chunk));
  const uint32_t mine = m > uint32_t(t * per_lane) ? (m - t * per_lane < uint32_t(per_lane) ? m - t * per_lane : per_lane) : 0;
  load_tile(reinterpret_cast<const X *>(f.in) + first, m, tile);

  T c[per_lane];
  if constexpr (C::has_head) {
    uint32_t kept = quantize_lane<typename C::Head>(tile, c, f.params + C::head_params);
    if constexpr (C::has_side) {
      kept &= mine < uint32_t(per_lane) ? (1u << mine) - 1u : 0xffffffffu;
      if (__syncthreads_or(kept != 0)) {
        uint32_t total;
        f.kept[id * lanes + t] = kept;
        block_sum(uint32_t(__popc(kept)), counts, total);
        if (t == 0) { f.kept_counts[id] = total; atomicAdd(f.totals + 1, (unsigned long long)(total)); }
      } else if (t == 0) f.kept_counts[id] = 0;
    } else __syncthreads();
  } else {
    read_row(reinterpret_cast<const T *>(tile), c);
    __syncthreads();
  }
  C::forward(c, mine, f.params);

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
      meta[k] = tail_cost<Tail>(slice<S::each>(const_cast<const L(&)[per_lane]>(codes), k), g, params);
      const bool real = uint32_t(t * per_lane + k * S::each - g.rank() * S::each) < m;
      size[k] = real ? tail_size<Tail, L>(meta[k], params) : 0;
      if (!real) meta[k] = 0;
      words += g.rank() == 0 ? size[k] : 0;
    }
    const uint32_t lead = ((m + Tail::span - 1) / Tail::span * M + 3) / 4;
    uint32_t total;
    uint32_t at = lead + block_sum(words, sums, total);  // its barrier also ends the use of the tile
    total += lead;
    f.lookback.announce(id, total);
    if constexpr (S::spread) at = g.broadcast(at, 0);
    uint32_t *out = reinterpret_cast<uint32_t *>(memory);
    uint8_t *metas = reinterpret_cast<uint8_t *>(out);
    if (g.rank() == 0) {
      BRIQUETTE_UNROLL
      for (int k = 0; k < S::held; k++) {
        const uint32_t segment = uint32_t(t * per_lane + k * S::each) / Tail::span;
        BRIQUETTE_UNROLL
        for (int b = 0; b < M; b++) if (segment * M + b < lead * 4) metas[segment * M + b] = uint8_t(meta[k] >> (8 * b));
      }
    }
    // the padding of the metadata behind the last segment's lane
    if (t == 0) for (uint32_t b = lanes * per_lane / Tail::span * M; b < lead * 4; b++) metas[b] = 0;
    BRIQUETTE_UNROLL
    for (int k = 0; k < S::held; k++) {
      if (size[k] || S::spread) tail_pack<Tail>(slice<S::each>(const_cast<const L(&)[per_lane]>(codes), k), meta[k], g, out + at, params);
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
    __syncthreads();
    const uint64_t base = placed;
    if (base + total <= f.words_room) {
      uint32_t *to = f.words + base;
      for (uint32_t i = t; i < total; i += lanes) to[i] = out[i];
    }
  } else {
    write_row(reinterpret_cast<T *>(memory), c);
    store_tile(reinterpret_cast<T *>(f.stream) + first, m, reinterpret_cast<const T *>(memory));
  }
}

}  // namespace device
}  // namespace briquette
