// First-order differences within a block, of codes that the predictor quantizes itself.
// Role: REGION_LOCAL, element form: values to differences of codes, and back to codes.
// Requires: parameters that begin with the inverse of the quantizer's step; blocks of 32 * elems_per_lane elements.
// Source: the predictor of SZp and cuSZp (Huang et al., SC 2023).
#pragma once
#include <briquette_warp/cuda/policy.cuh>

namespace acme_warp {

struct WarpDifference {
  struct Params {
    float inv2eb;
    uint32_t elems_per_lane;
  };
  const float *in;
  size_t n;
  Params p;

  __device__ static WarpDifference fromParams(const float *in, size_t n, const void *params) {
    return WarpDifference{in, n, *static_cast<const Params *>(params)};
  }
  __device__ unsigned code(float x) const { return unsigned(int(rintf(x * p.inv2eb))); }

  /// Element m * 32 + lane of block b.
  __device__ int delta(uint32_t lane, size_t b, int m) const {
    const size_t within = size_t(m) * 32 + lane, at = b * 32 * p.elems_per_lane + within;
    if (at >= n) return 0;
    return int(code(in[at]) - (within ? code(in[at - 1]) : 0u));
  }
  /// A running sum over rows of 32, each from the end of the one before.
  template <int EPL> __device__ static void undelta(int (&d)[EPL], uint32_t lane) {
    unsigned before = 0;
#pragma unroll
    for (int m = 0; m < EPL; m++) {
      unsigned sum = unsigned(d[m]);
      for (int step = 1; step < 32; step <<= 1) {
        const unsigned got = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= unsigned(step)) sum += got;
      }
      d[m] = int(sum + before);
      before += __shfl_sync(0xffffffffu, sum, 31);
    }
  }
};

}  // namespace acme_warp
