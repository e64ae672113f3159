// The fused compression kernel: one block codes one archive chunk, in one pass over the data.
// Role: composed with a generated `Chain` into an entry point of the CUDA target.
// Requires: device.cuh.
// Source: briquette; memory plan after SZp and cuSZp (Huang et al., SC 2023), one coder segment a lane.
#pragma once
#include <briquette_warp/cuda/device.cuh>

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

template <class C> __device__ __forceinline__ void forward(const Forward &f) {
  typedef typename C::Source X;
  typedef typename C::First T;
  extern __shared__ Vector memory[];
  X *tile = reinterpret_cast<X *>(memory);
  __shared__ uint32_t sums[lanes / 32];
  __shared__ unsigned long long drawn, placed;
  const int t = int(threadIdx.x);
  // one block a chunk: blocks that stay and draw their next chunk early make all others wait for it (docs/notes/cuda.md)
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
      if (__any_sync(0xffffffffu, kept != 0)) {  // no barrier: most warps keep nothing
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
  if (m == uint32_t(chunk)) C::template forward<true>(c, mine, f.params);
  else C::template forward<false>(c, mine, f.params);

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
    const uint32_t lead = ((m + Tail::span - 1) / Tail::span * M + 3) / 4;
    uint32_t total;
    uint32_t at = lead + block_sum(words, sums, total);  // its barrier also ends the use of the tile
    total += lead;
    briquette_doze(1);
    f.lookback.announce(id, total);
    briquette_doze(2);
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
    write_row(reinterpret_cast<T *>(memory) + t * pitch<T>, c);
    store_tile(reinterpret_cast<T *>(f.stream) + first, m, reinterpret_cast<const T *>(memory));
  }
}

}  // namespace device
}  // namespace briquette
