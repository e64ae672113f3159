// Zigzag: signed codes to unsigned ones, small magnitudes of either sign to small numbers.
// Role: ELEMENTWISE, code -> code.
// Requires: a signed code type going in; the array holds the unsigned type's bits coming out.
// Source: Protocol Buffers encoding, "signed integers"; used by SZp and cuSZp3.
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace briquette_transforms {

struct Zigzag {
  template <class T, class G, int E> __device__ __forceinline__ static void forward(T (&c)[E], G) {
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = T(briquette::fold(c[m]));
  }
  template <class U, class G, int E> __device__ __forceinline__ static void inverse(U (&c)[E], G) {
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = U(U(c[m] >> 1) ^ U(U(0) - U(c[m] & 1)));
  }
};

}  // namespace briquette_transforms
