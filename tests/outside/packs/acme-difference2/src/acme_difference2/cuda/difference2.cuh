// Second-order differences within a region: the first-order difference, twice; codes before the region count as 0.
// Role: REGION_LOCAL, code -> code.
// Requires: any code type and geometry; arithmetic modulo 2^bits.
// Source: linear extrapolation, the second of the curve-fitting predictors of SZ (Di and Cappello, IPDPS 2016).
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace acme_difference2 {

template <class T> __device__ __forceinline__ T minus(T a, T b) { return T(briquette::unsigned_of<T>(a) - briquette::unsigned_of<T>(b)); }
template <class T> __device__ __forceinline__ T plus(T a, T b) { return T(briquette::unsigned_of<T>(a) + briquette::unsigned_of<T>(b)); }

struct Difference2 {
  template <class T, class G, int E> __device__ __forceinline__ static void forward(T (&c)[E], G g) { difference(c, g); difference(c, g); }
  template <class T, class G, int E> __device__ __forceinline__ static void inverse(T (&c)[E], G g) { sum(c, g); sum(c, g); }

 private:
  template <class T, class G, int E> __device__ __forceinline__ static void difference(T (&c)[E], G g) {
    const T before = g.shift_up(c[E - 1], T(0));  // the last element of the lane below; the region's first lane gets 0
    BRIQUETTE_UNROLL
    for (int m = E - 1; m > 0; m--) c[m] = minus(c[m], c[m - 1]);
    c[0] = minus(c[0], before);
  }
  template <class T, class G, int E> __device__ __forceinline__ static void sum(T (&c)[E], G g) {
    BRIQUETTE_UNROLL
    for (int m = 1; m < E; m++) c[m] = plus(c[m], c[m - 1]);
    const T base = g.exclusive_sum(c[E - 1]);  // what the lanes below add up to
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = plus(c[m], base);
  }
};

}  // namespace acme_difference2
