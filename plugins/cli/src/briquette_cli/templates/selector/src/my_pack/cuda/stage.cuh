// The codes of a tile as they are, or less the tile's first code, whichever the coder makes less of. FILL IN
// Role: TILE_SELECTOR, code -> code; the first code is the side element of mode 1.
// Requires: 32- or 64-bit codes; any geometry; arithmetic modulo 2^bits.
// Source: FILL IN: where the method comes from.
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace my_pack {

struct MyPack {
  static constexpr int modes = 2;
  static constexpr int most_sides = 1;  // side elements of the mode that has most
  __device__ __forceinline__ static constexpr int sides(uint32_t mode) { return int(mode); }

  /// Choose, turn c into what the mode makes of it, and return the mode, the same in every lane. FILL IN
  template <class Tail, class T, int E, class G>
  __device__ __forceinline__ static uint32_t select(T (&c)[E], uint32_t, G g, const Tail &tail, T (&side)[most_sides]) {
    const T first = g.broadcast(c[0], 0);
    T based[E];
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) based[m] = add(c[m], first, true);
    // tail.words counts the segments that begin in this lane: every lane asks, the sum is the tile's
    const uint32_t plain_words = g.sum(tail.words(c));
    const uint32_t based_words = g.sum(tail.words(based)) + briquette::side_words<T>(1);
    const uint32_t mode = tail.modes() > 1 && based_words < plain_words ? 1 : 0;  // the lowest of equals
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = mode ? based[m] : c[m];
    side[0] = first;
    return mode;
  }
  /// Undo it. The tile's first lane has the side elements; elsewhere, and beyond sides(mode), they are 0. FILL IN
  template <class T, int E, class G> __device__ __forceinline__ static void restore(uint32_t, const T (&side)[most_sides], T (&c)[E], G g) {
    const T first = g.broadcast(side[0], 0);
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = add(c[m], first, false);
  }

 private:
  template <class T> __device__ __forceinline__ static T add(T a, T b, bool negative) {
    typedef briquette::unsigned_of<T> U;
    return T(negative ? U(U(a) - U(b)) : U(U(a) + U(b)));
  }
};

}  // namespace my_pack
