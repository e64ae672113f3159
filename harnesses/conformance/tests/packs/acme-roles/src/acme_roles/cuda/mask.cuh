// Flips the bits that are set in a mask.
// Role: ELEMENTWISE, code -> code.
// Requires: any code type and geometry; parameter mask (int64).
// Source: an example.
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace acme_roles {

struct Mask {
  template <class T, class G, int E, class P> __device__ __forceinline__ static void forward(T (&c)[E], G, const P &p) {
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = T(c[m] ^ T(p.mask));
  }
  template <class T, class G, int E, class P> __device__ __forceinline__ static void inverse(T (&c)[E], G g, const P &p) { forward(c, g, p); }
};

}  // namespace acme_roles
