// Tiles on the lanes of a block: which lane has a tile's side elements, and how many words they take.
// Role: shared by the forward and inverse kernels of the CUDA target.
// Requires: device.cuh, select.cuh.
// Source: briquette.
#pragma once
#include <briquette_warp/cuda/device.cuh>
#include <briquette_warp/cuda/select.cuh>

namespace briquette {
namespace device {

/// A selector all whose lanes take one way through its collectives, whatever their tiles choose, says so by `lockstep`.
template <class Q> struct in_lockstep {
  template <class R> __device__ static constexpr bool test(decltype(R::lockstep) *) { return R::lockstep; }
  template <class R> __device__ static constexpr bool test(...) { return false; }
  static constexpr bool value = test<Q>(nullptr);
};
/// The lanes that a tile is spread over.
template <bool Spread, int N, bool Lockstep> struct LanesOf { typedef WarpLanes<N, Lockstep> Group; };
template <int N, bool Lockstep> struct LanesOf<false, N, Lockstep> { typedef OneLane Group; };
template <class C, bool Lockstep = in_lockstep<typename C::Selector::Policy>::value> struct TileLanes {
  static constexpr bool spread = C::Selector::span > per_lane;
  typedef typename LanesOf<spread, spread ? C::Selector::span / per_lane : 2, Lockstep>::Group Group;
};

/// Words of the side elements of the tiles that begin in this lane.
template <class C> __device__ __forceinline__ uint32_t tile_words(const TileChoices<C, per_lane> &tiles, uint32_t m) {
  uint32_t found = 0;
  BRIQUETTE_UNROLL
  for (int k = 0; k < TileChoices<C, per_lane>::held; k++) {
    const uint32_t first = threadIdx.x * per_lane + k * TileChoices<C, per_lane>::each;
    if (first % TileShape<C>::span == 0 && first < m) found += TileShape<C>::words(tiles.mode[k]);
  }
  return found;
}

}  // namespace device
}  // namespace briquette
