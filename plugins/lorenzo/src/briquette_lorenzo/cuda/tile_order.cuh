// The order of tiles: where in the array the elements of 8 x 8, 4 x 4 x 4 or 64 x 1 tiles stand, one tile after another.
// Role: LAYOUT over 64 elements.
// Requires: lengths, tiles and edges (powers of two) along the last three axes; what is before them is a batch.
// Source: briquette; tiles as in cuSZp3 (Huang et al., SC 2025).
#pragma once
#include <briquette_warp/cuda/policy.cuh>

namespace briquette_lorenzo {

struct TileOrder {
  /// A tile: its first element, and how many elements of it the array has along each axis.
  struct Origin {
    uint64_t first;
    uint8_t inside[3];
  };
  template <class P> __device__ __forceinline__ static Origin origin(uint64_t tile, const P &p) {
    uint64_t a, b, c;
    split(tile, p.tiles2, c);
    split(tile, p.tiles1, b);
    split(tile, p.tiles0, a);
    a <<= p.edge0, b <<= p.edge1, c <<= p.edge2;
    return {((tile * p.length0 + a) * p.length1 + b) * p.length2 + c, {inside(p.length0 - a, p.edge0), inside(p.length1 - b, p.edge1), inside(p.length2 - c, p.edge2)}};
  }
  template <class P> __device__ __forceinline__ static bool place(const Origin &tile, uint32_t within, uint64_t &at, const P &p) {
    const uint32_t c = within & ((1u << p.edge2) - 1u), b = within >> p.edge2 & ((1u << p.edge1) - 1u), a = within >> (p.edge2 + p.edge1);
    const uint32_t i = least(a, tile.inside[0]), j = least(b, tile.inside[1]), k = least(c, tile.inside[2]);
    at = tile.first + (i * p.length1 + j) * p.length2 + k;
    return i == a && j == b && k == c;
  }

 private:
  /// Divide: 64-bit division is slow on GPUs.
  __device__ __forceinline__ static void split(uint64_t &x, uint64_t by, uint64_t &rest) {
    if ((x | by) >> 32) { rest = x % by; x /= by; }
    else { rest = uint32_t(x) % uint32_t(by); x = uint32_t(x) / uint32_t(by); }
  }
  __device__ __forceinline__ static uint8_t inside(uint64_t left, uint32_t edge) { return uint8_t(left < uint64_t(1) << edge ? left : uint64_t(1) << edge); }
  __device__ __forceinline__ static uint32_t least(uint32_t at, uint32_t inside) { return at < inside ? at : inside - 1u; }
};

}  // namespace briquette_lorenzo
