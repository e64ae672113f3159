// Every second code less the one before it.
// Role: REGION_LOCAL transform over 32 elements, element form.
// Requires: nothing.
// Source: the lifting scheme (Sweldens, SIAM J. Math. Anal. 1998), its prediction step for the Haar wavelet.
#pragma once
#include <briquette_warp/cuda/policy.cuh>

namespace acme_warp {

struct WarpLift {
  template <int EPL> __device__ static void apply(int (&d)[EPL], uint32_t lane) {
#pragma unroll
    for (int m = 0; m < EPL; m++) {
      const unsigned other = unsigned(__shfl_xor_sync(0xffffffffu, d[m], 1));
      if (lane & 1) d[m] = int(unsigned(d[m]) - other);
    }
  }
  template <int EPL> __device__ static void invert(int (&d)[EPL], uint32_t lane) {
#pragma unroll
    for (int m = 0; m < EPL; m++) {
      const unsigned other = unsigned(__shfl_xor_sync(0xffffffffu, d[m], 1));
      if (lane & 1) d[m] = int(unsigned(d[m]) + other);
    }
  }
};

}  // namespace acme_warp
