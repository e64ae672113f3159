// A number added to each code. FILL IN
// Role: ELEMENTWISE, code -> code.
// Requires: any code type and geometry; parameter offset (int64); arithmetic modulo 2^bits.
// Source: FILL IN: where the method comes from.
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace my_pack {

struct MyPack {
  // FILL IN: what NumPy's forward does to each of the E codes of this lane
  template <class T, class G, int E, class P> __device__ __forceinline__ static void forward(T (&c)[E], G, const P &p) {
    typedef briquette::unsigned_of<T> U;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = T(U(U(c[m]) + U(p.offset)));
  }
  // FILL IN: undo it exactly
  template <class T, class G, int E, class P> __device__ __forceinline__ static void inverse(T (&c)[E], G, const P &p) {
    typedef briquette::unsigned_of<T> U;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = T(U(U(c[m]) - U(p.offset)));
  }
};

}  // namespace my_pack
