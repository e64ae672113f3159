// First-order differences within a region: each code minus its predecessor, the region's first code kept.
// Role: REGION_LOCAL, code -> code.
// Requires: any code type and geometry; arithmetic modulo 2^bits.
// Source: Lorenzo predictor (Ibarria et al., Computer Graphics Forum 2003) on quantization codes, as in cuSZ (Tian et al., PACT 2020).
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace briquette_lorenzo {

struct Lorenzo1D {
  template <class T, class G, int E> __device__ __forceinline__ static void forward(T (&c)[E], G g) {
    typedef briquette::unsigned_of<T> U;
    const T before = g.shift_up(c[E - 1], T(0));
    BRIQUETTE_UNROLL
    for (int m = E - 1; m > 0; m--) c[m] = T(U(U(c[m]) - U(c[m - 1])));
    c[0] = T(U(U(c[0]) - U(before)));
  }
  template <class T, class G, int E> __device__ __forceinline__ static void inverse(T (&c)[E], G g) { briquette::inclusive_sum(c, g); }
};

}  // namespace briquette_lorenzo
