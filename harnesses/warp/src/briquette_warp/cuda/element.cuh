// Policies in the element form, plain CUDA on a warp's striped elements, as ops of the device skeleton.
// Role: adapts fromParams/delta/undelta, apply/invert and cost/pack/decode to what the skeleton calls.
// Requires: device.cuh; 32-bit codes, spans of 32 elements times a power of two up to 32.
// Source: the striped warp layout of cuSZp (Huang et al., SC 2023); the contract is in docs/contracts.md, "Element form".
#pragma once
#include <briquette_warp/cuda/device.cuh>

namespace briquette {
namespace element {

constexpr int rows = device::per_lane;  // a warp holds 32 rows of 32 elements
constexpr int warps = device::lanes / 32;
constexpr unsigned all = 0xffffffffu;

__device__ __forceinline__ uint32_t lane_of() { return threadIdx.x & 31u; }
__device__ __forceinline__ uint32_t warp_of() { return threadIdx.x >> 5; }

/// From 32 neighbouring elements a lane to element 32 * k + lane in slot k, and back: the transpose of the warp's matrix.
template <class T> __device__ __forceinline__ void turn(T (&c)[rows]) {
  static_assert(sizeof(T) == 4, "the element form works on 32-bit codes");
  BRIQUETTE_UNROLL
  for (int step = 16; step; step >>= 1) {
    const bool upper = (lane_of() & uint32_t(step)) != 0;
    BRIQUETTE_UNROLL
    for (int k = 0; k < rows; k++) {
      if (k & step) continue;
      const T got = T(__shfl_xor_sync(all, int(upper ? c[k] : c[k | step]), step));
      if (upper) c[k] = got;
      else c[k | step] = got;
    }
  }
}

/// Set what lies beyond the stream's end to zero; `count` are the lane's elements before it, where neighbours lie together.
template <class T> __device__ __forceinline__ void zero_striped(T (&c)[rows], uint32_t count) {
  const uint32_t real = __reduce_add_sync(all, count);
  BRIQUETTE_UNROLL
  for (int k = 0; k < rows; k++) if (uint32_t(k) * 32u + lane_of() >= real) c[k] = T(0);
}

/// Elements a lane holds of one block of the op; an ELEMENTWISE op takes all its rows as one.
template <class O> constexpr int held = O::span ? O::span / 32 : rows;

/// A predictor's codes become values that its own quantization turns into the same codes: the middles of the steps. A code
/// that float32 cannot carry there and back is reported in the word behind the parameters, and the run is done otherwise.
template <class O, int Slot, class T> __device__ __forceinline__ void predict(T (&c)[rows], const uint8_t *params) {
  constexpr int E = held<O>;
  __shared__ float shared[warps][32 * E];
  float *values = shared[warp_of()];
  auto &d = as<int32_t>(c);
  const float inverse = *reinterpret_cast<const float *>(params), step = inverse > 0.0f ? 1.0f / inverse : 0.0f;
  bool carried = true;
  BRIQUETTE_UNROLL
  for (int k = 0; k < rows / E; k++) {
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const float code = float(d[k * E + m]), value = code * step;
      carried &= (fabsf(code) <= 2097152.0f) & (fabsf(value * inverse - code) <= 0.25f);
      values[m * 32 + lane_of()] = value;
    }
    __syncwarp();
    const auto policy = O::Policy::fromParams(static_cast<const float *>(values), size_t(32 * E), static_cast<const void *>(params));
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) d[k * E + m] = policy.delta(lane_of(), size_t(0), m);
    __syncwarp();
  }
  if (!__all_sync(all, carried) && lane_of() == 0) atomicOr(reinterpret_cast<uint32_t *>(const_cast<uint8_t *>(params) + Slot), 1u);
}
template <class O, class T> __device__ __forceinline__ void unpredict(T (&c)[rows], const uint8_t *) {
  constexpr int E = held<O>;
  auto &d = as<int32_t>(c);
  BRIQUETTE_UNROLL
  for (int k = 0; k < rows / E; k++) O::Policy::template undelta<E>(slice<E>(d, k), lane_of());
}

/// A transform, either way.
template <class O, class T> __device__ __forceinline__ void apply(T (&c)[rows], const uint8_t *params) {
  constexpr int E = held<O>;
  auto &d = as<int32_t>(c);
  BRIQUETTE_UNROLL
  for (int k = 0; k < rows / E; k++) {
    if constexpr (no_params<typename O::Params>) O::Policy::template apply<E>(slice<E>(d, k), lane_of());
    else O::Policy::template apply<E>(slice<E>(d, k), lane_of(), *reinterpret_cast<const typename O::Params *>(params));
  }
}
template <class O, class T> __device__ __forceinline__ void invert(T (&c)[rows], const uint8_t *params) {
  constexpr int E = held<O>;
  auto &d = as<int32_t>(c);
  BRIQUETTE_UNROLL
  for (int k = 0; k < rows / E; k++) {
    if constexpr (no_params<typename O::Params>) O::Policy::template invert<E>(slice<E>(d, k), lane_of());
    else O::Policy::template invert<E>(slice<E>(d, k), lane_of(), *reinterpret_cast<const typename O::Params *>(params));
  }
}

/// A coder in the element form as the skeleton's tail. The skeleton asks lane E * k for block k's metadata, and calls with
/// the whole warp; codes are striped already. A block's metadata are four bytes at most, held in a word.
template <class Q, int E> struct Coder {
  static constexpr uint32_t meta_bytes = Q::meta_bytes;
  static constexpr bool together = true;  // the whole warp packs a block
  static constexpr uint32_t word_bytes = 4 * E, count = 32 * E;
  static_assert(meta_bytes <= 4, "a coder has at most 4 bytes of metadata a segment");

  template <class T, class G, class... P> __device__ __forceinline__ static uint32_t cost(const T (&c)[rows], G, const P &...p) {
    __shared__ uint32_t metas[warps], costs[warps];
    auto &d = as<int32_t>(const_cast<T(&)[rows]>(c));
    uint32_t mine = 0;
    BRIQUETTE_UNROLL
    for (int k = 0; k < rows / E; k++) {
      if (lane_of() == 0) metas[warp_of()] = 0;
      __syncwarp();
      Q::template cost<E>(slice<E>(const_cast<const int32_t(&)[rows]>(d), k), lane_of(), word_bytes, size_t(count), reinterpret_cast<uint8_t *>(&metas[warp_of()]), &costs[warp_of()], p...);
      __syncwarp();
      const uint32_t meta = metas[warp_of()];
#if BRIQUETTE_EMULATED
      if (costs[warp_of()] != bytes(meta, p...)) briquette::emulator::fail("thread %u: cost() says %u bytes, size() of its metadata %u", threadIdx.x, costs[warp_of()], bytes(meta, p...));
#endif
      __syncwarp();
      if (lane_of() / E == uint32_t(k)) mine = meta;
    }
    return mine;
  }
  template <class T, int S, class... P> __device__ __forceinline__ static uint32_t size(uint32_t meta, const P &...p) {
    const uint32_t found = bytes(meta, p...);
    return found == bad_size || found & 3u ? bad_size : found / 4u;
  }
  /// `size` words of block k, of which lane E * k knows where they go.
  template <class T, class... P> __device__ __forceinline__ static void pack_together(const T (&c)[rows], uint32_t meta, uint32_t size, uint32_t *out, const P &...p) {
    auto &d = as<int32_t>(const_cast<T(&)[rows]>(c));
    BRIQUETTE_UNROLL
    for (int k = 0; k < rows / E; k++) {
      const uint32_t own = __shfl_sync(all, meta, k * E);
      uint8_t *to = reinterpret_cast<uint8_t *>(__shfl_sync(all, (unsigned long long)(out), k * E));
      if (__shfl_sync(all, size, k * E)) Q::template pack<E>(slice<E>(const_cast<const int32_t(&)[rows]>(d), k), lane_of(), word_bytes, size_t(count), reinterpret_cast<const uint8_t *>(&own), to, p...);
    }
  }
  template <class T, class G, class... P> __device__ __forceinline__ static void decode(uint32_t meta, const uint32_t *in, T (&c)[rows], G, const P &...p) {
    auto &d = as<int32_t>(c);
    BRIQUETTE_UNROLL
    for (int k = 0; k < rows / E; k++) {
      const uint32_t own = __shfl_sync(all, meta, k * E);
      const uint8_t *from = reinterpret_cast<const uint8_t *>(__shfl_sync(all, (unsigned long long)(in), k * E));
      Q::template decode<E>(reinterpret_cast<const uint8_t *>(&own), from, word_bytes, size_t(count), lane_of(), slice<E>(d, k), p...);
    }
  }

 private:
  template <class... P> __device__ __forceinline__ static uint32_t bytes(uint32_t meta, const P &...p) {
    return Q::template size<E>(reinterpret_cast<const uint8_t *>(&meta), word_bytes, p...);
  }
};

}  // namespace element
}  // namespace briquette
