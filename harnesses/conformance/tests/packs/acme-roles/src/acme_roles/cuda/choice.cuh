// Codes as they are, or their differences within the tile, whichever the coder makes less of.
// Role: TILE_SELECTOR, code -> code; no side elements.
// Requires: any code type and geometry; arithmetic modulo 2^bits.
// Source: an example.
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace acme_roles {

struct Choice {
  static constexpr int modes = 2;
  static constexpr int most_sides = 1;  // an array holds one element at least; no mode uses it
  __device__ __forceinline__ static constexpr int sides(uint32_t) { return 0; }

  template <class Tail, class T, int E, class G>
  __device__ __forceinline__ static uint32_t select(T (&c)[E], uint32_t, G g, const Tail &tail, T (&)[1]) {
    typedef briquette::unsigned_of<T> U;
    T turned[E];
    const T before = g.shift_up(c[E - 1], T(0));
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) turned[m] = T(U(U(c[m]) - U(m ? c[m ? m - 1 : 0] : before)));
    const uint32_t plain = g.sum(tail.words(c)), differences = g.sum(tail.words(turned));
    const uint32_t mode = tail.modes() > 1 && differences < plain ? 1u : 0u;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = mode ? turned[m] : c[m];
    return mode;
  }
  template <class T, int E, class G> __device__ __forceinline__ static void restore(uint32_t mode, const T (&)[1], T (&c)[E], G g) {
    typedef briquette::unsigned_of<T> U;
    T sum[E];
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) sum[m] = T(U(U(c[m]) + U(m ? sum[m ? m - 1 : 0] : T(0))));
    const U base = U(g.exclusive_sum(sum[E - 1]));
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = mode ? T(U(U(sum[m]) + base)) : c[m];
  }
};

}  // namespace acme_roles
