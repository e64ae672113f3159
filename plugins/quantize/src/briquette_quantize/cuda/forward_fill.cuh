// Replace marked codes, the lowest of their type, by the last code before them in the region, at its start by the first one after.
// Role: REGION_LOCAL, code -> code; the inverse leaves codes as they are.
// Requires: signed code types, any geometry. What was marked comes back through the outliers of the quantizer.
// Source: "forward fill", as in pandas; briquette.
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace briquette_quantize {

struct ForwardFill {
  template <class T, class G, int E> __device__ __forceinline__ static void forward(T (&c)[E], G g) {
    const T marker = T(briquette::unsigned_of<T>(1) << (briquette::bits_of<T> - 1));
    int marked = 0;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) marked |= c[m] == marker ? 1 : 0;
    if (!g.any(marked != 0)) return;
    T first = marker, last = marker;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      first = first == marker ? c[m] : first;
      last = c[m] == marker ? last : c[m];
    }
    T held;
    if constexpr (G::size == 1) held = first == marker ? T(0) : first;
    else {
      // bit r: lane r has a code to give
      const uint32_t with = g.bit_or(last == marker ? 0u : 1u << g.rank());
      const uint32_t below = with & ((1u << g.rank()) - 1u);
      const int before = int(briquette::bit_length(below)) - 1, after = int(briquette::bit_length(with & (0u - with))) - 1;
      const T from_before = g.broadcast(last, before < 0 ? 0 : before), from_after = g.broadcast(first, after < 0 ? 0 : after);
      held = below ? from_before : with ? from_after : T(0);
    }
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      held = c[m] == marker ? held : c[m];
      c[m] = held;
    }
  }
  template <class T, class G, int E> __device__ __forceinline__ static void inverse(T (&)[E], G) {}
};

}  // namespace briquette_quantize
