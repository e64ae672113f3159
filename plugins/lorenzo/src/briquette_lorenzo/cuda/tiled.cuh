// Lorenzo differences of one, two or three dimensions within tiles of 64 codes: along the last axis, then along the one before.
// Role: REGION_LOCAL, code -> code; span 64.
// Requires: tiles as the stage tile-order lays them out; any code type, lanes that hold a power of two of elements.
// Source: Lorenzo predictor (Ibarria et al., Computer Graphics Forum 2003) on quantization codes; tiles as in cuSZp3 (Huang et al., SC 2025).
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace briquette_lorenzo {

struct TiledLorenzo {
  template <class T, class G, int E, class P> __device__ __forceinline__ static void forward(T (&c)[E], G g, const P &p) {
    if (p.axes == 1) Axis<1, 64>::difference(c, g);
    else if (p.axes == 2) { Axis<1, 8>::difference(c, g); Axis<8, 8>::difference(c, g); }
    else { Axis<1, 4>::difference(c, g); Axis<4, 4>::difference(c, g); Axis<16, 4>::difference(c, g); }
  }
  template <class T, class G, int E, class P> __device__ __forceinline__ static void inverse(T (&c)[E], G g, const P &p) {
    if (p.axes == 1) Axis<1, 64>::sum(c, g);
    else if (p.axes == 2) { Axis<8, 8>::sum(c, g); Axis<1, 8>::sum(c, g); }
    else { Axis<16, 4>::sum(c, g); Axis<4, 4>::sum(c, g); Axis<1, 4>::sum(c, g); }
  }

 private:
  /// An axis of L codes that stand S apart. Of a row of S codes a lane holds some whole ones, or a share of one.
  template <int S, int L> struct Axis {
    template <class T, class G, int E> __device__ __forceinline__ static void difference(T (&c)[E], G g) {
      typedef briquette::unsigned_of<T> U;
      constexpr int share = S < E ? S : E, apart = S < E ? 1 : S / E;  // codes of a row in a lane; lanes from a row to the next
      T before[share];
      BRIQUETTE_UNROLL
      for (int k = 0; k < share; k++) before[k] = below(c[E - share + k], apart, g);
      BRIQUETTE_UNROLL
      for (int m = E - 1; m >= 0; m--)
        if ((g.rank() * E + m) / S % L) c[m] = T(U(U(c[m]) - U(m >= S ? c[m - S < 0 ? 0 : m - S] : before[m % share])));
    }
    template <class T, class G, int E> __device__ __forceinline__ static void sum(T (&c)[E], G g) {
      typedef briquette::unsigned_of<T> U;
      constexpr int share = S < E ? S : E, apart = S < E ? 1 : S / E, rows = S < E ? E / S : 1;
      BRIQUETTE_UNROLL
      for (int m = S; m < E; m++)
        if (m / S % L) c[m] = T(U(U(c[m]) + U(c[m - S])));
      if constexpr (rows < L) {  // the axis goes on in other lanes: add what those before this one come to
        constexpr int lanes = L / rows;
        const int at = g.rank() / apart % lanes;
        U carried[share];
        BRIQUETTE_UNROLL
        for (int k = 0; k < share; k++) {
          const U own = U(c[E - share + k]);
          U all = own;
          BRIQUETTE_UNROLL
          for (int step = 1; step < lanes; step <<= 1) {
            const U got = U(below(T(all), step * apart, g));
            if (at >= step) all = U(all + got);
          }
          carried[k] = U(all - own);
        }
        BRIQUETTE_UNROLL
        for (int m = 0; m < E; m++) c[m] = T(U(U(c[m]) + carried[m % share]));
      }
    }
  };
  /// The value of the lane so many below, of the group's last ones where there is none.
  template <class T, class G> __device__ __forceinline__ static T below(T x, int lanes, G g) {
    return g.broadcast(x, (g.rank() - lanes) & (G::size - 1));
  }
};

}  // namespace briquette_lorenzo
