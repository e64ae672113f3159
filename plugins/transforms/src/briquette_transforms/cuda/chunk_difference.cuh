// Differences of successive words within a chunk, modulo 2^bits.
// Role: REGION_LOCAL on chunks of bytes.
// Requires: coop.cuh; U, the unsigned type of the words. A stream's bytes are whole words.
// Source: the DIFF component of the LC framework (Burtscher et al.); the inverse is a scan by rows of a warp.
#pragma once
#include <briquette_chunk/cuda/coop.cuh>
#include <briquette_warp/cuda/group.cuh>

namespace briquette_transforms {

template <class U> struct ChunkDifference {
  /// The words [at, at + E) of the output, each from two of the input.
  template <int E> __device__ __forceinline__ static void gather(const U *in, uint32_t at, U (&c)[E]) {
    const U before = at ? in[at - 1] : U(0);
    alignas(16) U x[E];
    briquette::read_elements(in + at, x);
    c[0] = U(x[0] - before);
    BRIQUETTE_UNROLL
    for (int k = 1; k < E; k++) c[k] = U(x[k] - x[k - 1]);
  }
  template <int BYTES, class G> __device__ __forceinline__ static void inverse(const uint8_t *in, uint8_t *out, uint32_t bytes, G g) {
    inverse_after<BYTES>(in, out, bytes, g, [](auto &) {});
  }

  /// The inverse of what `each` makes of the input.
  template <int BYTES, class G, class F> __device__ __forceinline__ static void inverse_after(const uint8_t *in, uint8_t *out, uint32_t bytes, G g, F each) {
    const U *x = reinterpret_cast<const U *>(in);
    U *y = reinterpret_cast<U *>(out);
    const uint32_t n = bytes / sizeof(U);
    if constexpr (G::size == 1) {
      constexpr int E = briquette::at_once<U, G>;
      U sum = 0;
      for (uint32_t at = 0; at < n; at += E) {
        U c[E];
        briquette::read_elements(x + at, c);
        each(c);
        c[0] = U(c[0] + sum);
        briquette::inclusive_sum(c, briquette::OneLane());
        sum = c[E - 1];
        briquette::write_elements(y + at, c);
      }
    } else {
      // a warp sums rows of 32 times 16 bytes, one behind the other; what lies beyond the last word is summed too, for nobody
      constexpr int E = 16 / sizeof(U), rows = (BYTES / 16 + G::size - 1) / G::size;
      constexpr bool holds = sizeof(U) >= 4;  // narrower words would take a register each: they are read and summed again
      const uint32_t first = (g.warp() * rows * 32 + g.lane()) * E;
      alignas(16) U c[holds ? rows : 1][E];
      U before[rows], sum = 0;
      BRIQUETTE_UNROLL
      for (int r = 0; r < rows; r++) {
        U(&mine)[E] = c[holds ? r : 0];
        sum_row(x, first + r * 32 * E, n, mine, each);
        const U up_to = g.warp_inclusive_sum(mine[E - 1]);
        before[r] = U(sum + up_to - mine[E - 1]);
        sum = U(sum + g.shuffle(up_to, 31));
      }
      const U base = g.warp_base(sum);
      BRIQUETTE_UNROLL
      for (int r = 0; r < rows; r++) {
        U(&mine)[E] = c[holds ? r : 0];
        if (!holds) sum_row(x, first + r * 32 * E, n, mine, each);
        const U add = U(base + before[r]);
        BRIQUETTE_UNROLL
        for (int k = 0; k < E; k++) mine[k] = U(mine[k] + add);
        if (first + r * 32 * E < n) briquette::write_elements(y + first + r * 32 * E, mine);
      }
    }
  }

 private:
  template <int E, class F> __device__ __forceinline__ static void sum_row(const U *x, uint32_t at, uint32_t n, U (&c)[E], F each) {
    BRIQUETTE_UNROLL
    for (int k = 0; k < E; k++) c[k] = 0;
    if (at >= n) return;
    briquette::read_elements(x + at, c);
    each(c);
    BRIQUETTE_UNROLL
    for (int k = 1; k < E; k++) c[k] = U(c[k] + c[k - 1]);
  }
};

}  // namespace briquette_transforms
