// First-order differences within a region; what lies before it counts as 0. FILL IN
// Role: REGION_LOCAL, code -> code.
// Requires: any code type and geometry; arithmetic modulo 2^bits.
// Source: FILL IN: where the method comes from.
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace my_pack {

struct MyPack {
  // FILL IN: what NumPy's forward does. c holds this lane's E codes, consecutive in the stream; the lanes of g hold one region.
  template <class T, class G, int E> __device__ __forceinline__ static void forward(T (&c)[E], G g) {
    typedef briquette::unsigned_of<T> U;
    const T before = g.shift_up(c[E - 1], T(0));  // the last code of the lane below; the region's first lane gets 0
    BRIQUETTE_UNROLL
    for (int m = E - 1; m > 0; m--) c[m] = T(U(U(c[m]) - U(c[m - 1])));
    c[0] = T(U(U(c[0]) - U(before)));
  }
  // FILL IN: undo it exactly
  template <class T, class G, int E> __device__ __forceinline__ static void inverse(T (&c)[E], G g) {
    typedef briquette::unsigned_of<T> U;
    BRIQUETTE_UNROLL
    for (int m = 1; m < E; m++) c[m] = T(U(U(c[m]) + U(c[m - 1])));
    const T base = g.exclusive_sum(c[E - 1]);  // what the lanes below add up to
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = T(U(U(c[m]) + U(base)));
  }
};

}  // namespace my_pack
