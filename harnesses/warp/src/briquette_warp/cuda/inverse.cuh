// The fused decompression kernel: one block decodes one archive chunk; any chunk, in any order.
// Role: composed with a generated `Chain` into an entry point of the CUDA target.
// Requires: device.cuh, outliers.cuh.
// Source: briquette.
#pragma once
#include <briquette_warp/cuda/device.cuh>
#include <briquette_warp/cuda/outliers.cuh>

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

template <class C> __device__ __forceinline__ void inverse(const Inverse &f) {
  typedef typename C::Source X;
  typedef typename C::First T;
  extern __shared__ Vector memory[];
  __shared__ uint32_t sums[lanes / 32];
  const int t = int(threadIdx.x);
  const uint64_t id = f.begin + blockIdx.x, first = id * chunk;
  const uint32_t m = uint32_t(f.n - first < uint64_t(chunk) ? f.n - first : uint64_t(chunk));
  const uint32_t mine = m > uint32_t(t * per_lane) ? (m - t * per_lane < uint32_t(per_lane) ? m - t * per_lane : per_lane) : 0;
  T c[per_lane];

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
    uint32_t meta[S::held], size[S::held], mine_words = 0;
    BRIQUETTE_UNROLL
    for (int k = 0; k < S::held; k++) {
      meta[k] = size[k] = 0;
      const uint32_t segment = uint32_t(t * per_lane + k * S::each) / Tail::span;
      if (sound && segment * Tail::span < m) {
        BRIQUETTE_UNROLL
        for (int b = 0; b < M; b++) meta[k] |= uint32_t(metas[segment * M + b]) << (8 * b);
        size[k] = tail_size<Tail, L>(meta[k], params);
        if (size[k] > words) size[k] = words + 1;  // makes the sum too large, and cannot wrap it: 256 lanes of at most 32 segments
      }
      mine_words += g.rank() == 0 ? size[k] : 0;
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
    }
    if constexpr (S::spread) at = g.broadcast(at, 0);
    auto &codes = as<L>(c);
    BRIQUETTE_UNROLL
    for (int k = 0; k < S::held; k++) {
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

  if (m == uint32_t(chunk)) C::template inverse<true>(c, mine, f.params);
  else C::template inverse<false>(c, mine, f.params);
  X *tile = reinterpret_cast<X *>(memory);
  if constexpr (C::has_head) dequantize_lane<typename C::Head>(c, tile, f.params + C::head_params);
  else write_row(reinterpret_cast<T *>(tile) + t * pitch<T>, c);

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

}  // namespace device
}  // namespace briquette
