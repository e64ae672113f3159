// Negabinary: integers in base -2, so that small magnitudes of either sign have few bits set at the top.
// Role: ELEMENTWISE, code -> code.
// Requires: codes of any width; the array holds the unsigned type's bits coming out.
// Source: Schroeppel, HAKMEM item 128; used by ZFP (Lindstrom, 2014) and the LC framework's DIFFNB component (Burtscher et al.).
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace briquette_transforms {

struct Negabinary {
  template <class T> static constexpr briquette::unsigned_of<T> mask = briquette::unsigned_of<T>(0xaaaaaaaaaaaaaaaaull);

  template <class T, class G, int E> __device__ __forceinline__ static void forward(T (&c)[E], G) {
    typedef briquette::unsigned_of<T> U;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = T(U(U(U(c[m]) + mask<T>) ^ mask<T>));
  }
  template <class T, class G, int E> __device__ __forceinline__ static void inverse(T (&c)[E], G) {
    typedef briquette::unsigned_of<T> U;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = T(U(U(U(c[m]) ^ mask<T>) - mask<T>));
  }
};

}  // namespace briquette_transforms
