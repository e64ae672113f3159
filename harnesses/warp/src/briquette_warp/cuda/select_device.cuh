// Tiles on the lanes of a block: which lane has a tile's side elements, and how many words they take.
// Role: shared by the forward and inverse kernels of the CUDA target.
// Requires: device.cuh, select.cuh.
// Source: briquette.
#pragma once
#include <briquette_warp/cuda/device.cuh>
#include <briquette_warp/cuda/select.cuh>

namespace briquette {
namespace device {

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
