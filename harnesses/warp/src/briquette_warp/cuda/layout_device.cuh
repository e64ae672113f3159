// A block's elements gathered from where they stand in the array, and scattered back; what it keeps aside marked there.
// Role: shared by the kernels of the CUDA target, for chains with a LAYOUT op.
// Requires: device.cuh, layout.cuh; spans of a power of two from 32 elements up.
// Source: briquette.
#pragma once
#include <briquette_warp/cuda/device.cuh>
#include <briquette_warp/cuda/layout.cuh>

namespace briquette {
namespace device {

/// Find what is common to each span of the chunk that begins at the laid-out element `first`. Ends with a barrier.
template <class C> __device__ __forceinline__ const typename Laid<C>::Origin *origins(uint64_t first, uint32_t count, const uint8_t *params) {
  typedef Laid<C> L;
  static_assert(L::span >= uint32_t(per_lane), "a lane has at most two spans");
  struct alignas(16) Room { uint8_t bytes[(sizeof(typename L::Origin) + 15) / 16 * 16 * (chunk / L::span)]; };
  __shared__ Room room;
  typename L::Origin *found = reinterpret_cast<typename L::Origin *>(room.bytes);
  for (uint32_t k = threadIdx.x; k * L::span < count; k += lanes) found[k] = L::origin(first / L::span + k, params);
  __syncthreads();
  return found;
}

/// Gather `count` elements from the laid-out one `first` on into the rows of `tile`; what lies beyond is zero. Ends with a barrier.
template <class C, class X> __device__ __forceinline__ void gather_tile(const X *in, uint64_t first, uint32_t count, X *tile, const uint8_t *params) {
  typedef Laid<C> L;
  const typename L::Origin *origin = origins<C>(first, count, params);
  for (uint32_t i = threadIdx.x; i < uint32_t(chunk); i += lanes) {
    X x = X(0);
    if (i < count) {
      uint64_t at;
      (void)L::place(origin[i / L::span], i % L::span, at, params);
      x = in[at];
    }
    tile[(i / per_lane) * pitch<X> + i % per_lane] = x;
  }
  __syncthreads();
}

/// Scatter the rows of `tile` to where they stand, as far as they are wanted. Begins with a barrier.
template <class C, class X> __device__ __forceinline__ void scatter_tile(X *out, uint64_t first, uint32_t count, uint64_t wanted, uint64_t wanted_end, const X *tile, const uint8_t *params) {
  typedef Laid<C> L;
  const typename L::Origin *origin = origins<C>(first, count, params);
  for (uint32_t i = threadIdx.x; i < count; i += lanes) {
    uint64_t at;
    if (L::place(origin[i / L::span], i % L::span, at, params) && at >= wanted && at < wanted_end) out[at - wanted] = tile[(i / per_lane) * pitch<X> + i % per_lane];
  }
}

/// Mark in the array which of this lane's elements are kept aside: a bit an element, and one a warp's share of a chunk.
template <class C> __device__ __noinline__ void mark_kept(uint32_t kept, uint64_t first, uint32_t *bits, uint32_t *warps, unsigned long long *total, const uint8_t *params) {
  typedef Laid<C> L;
  uint32_t count = 0;
  const uint64_t mine = first + threadIdx.x * per_lane;
  const typename L::Origin origin = L::origin(mine / L::span, params);
  for (uint32_t rest = kept; rest; rest &= rest - 1) {
    uint64_t at;
    if (!L::place(origin, uint32_t(mine % L::span) + uint32_t(__ffs(int(rest))) - 1u, at, params)) continue;
    const uint32_t within = uint32_t(at % chunk);
    atomicOr(bits + at / chunk * lanes + within / 32, 1u << within % 32);
    atomicOr(warps + at / chunk, 1u << within / (32 * per_lane));
    count++;
  }
  if (count) atomicAdd(total, (unsigned long long)(count));
}

}  // namespace device
}  // namespace briquette
