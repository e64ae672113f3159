// Bit planes of a segment's magnitudes, as many as the largest needs, behind a plane of signs: a ballot a word.
// Role: SEGMENT_CODEC, element form.
// Requires: nothing; little-endian words.
// Source: the fixed-length bit-plane coding of cuSZp (Huang et al., SC 2023); layout in the pack's README.
#pragma once
#include <briquette_warp/cuda/policy.cuh>

namespace acme_warp {

struct WarpPlanes {
  static constexpr uint32_t meta_bytes = 1;  // planes

  __device__ static unsigned magnitude(int d) { return d < 0 ? 0u - unsigned(d) : unsigned(d); }

  template <int EPL> __device__ static uint32_t size(const uint8_t *meta, uint32_t word_bytes) {
    if (meta[0] > 32) return briquette::bad_size;
    return meta[0] ? word_bytes * (meta[0] + 1u) : 0u;
  }
  template <int EPL> __device__ static void cost(const int (&d)[EPL], uint32_t lane, uint32_t word_bytes, size_t, uint8_t *meta, uint32_t *cost) {
    unsigned any = 0;
#pragma unroll
    for (int m = 0; m < EPL; m++) any |= magnitude(d[m]);
    const unsigned planes = 32u - unsigned(__clz(int(__reduce_or_sync(0xffffffffu, any))));
    if (lane == 0) {
      meta[0] = uint8_t(planes);
      *cost = planes ? word_bytes * (planes + 1) : 0;
    }
  }
  template <int EPL> __device__ static void pack(const int (&d)[EPL], uint32_t lane, uint32_t word_bytes, size_t, const uint8_t *meta, uint8_t *base) {
    for (uint32_t plane = 0; plane <= meta[0]; plane++) {
      uint32_t *words = reinterpret_cast<uint32_t *>(base + plane * word_bytes);
#pragma unroll
      for (int m = 0; m < EPL; m++) {
        const unsigned word = __ballot_sync(0xffffffffu, plane ? magnitude(d[m]) >> (plane - 1) & 1u : d[m] < 0);
        if (lane == unsigned(m)) words[m] = word;
      }
    }
  }
  template <int EPL> __device__ static void decode(const uint8_t *meta, const uint8_t *base, uint32_t word_bytes, size_t, uint32_t lane, int (&d)[EPL]) {
    const uint32_t *words = reinterpret_cast<const uint32_t *>(base);
#pragma unroll
    for (int m = 0; m < EPL; m++) {
      unsigned value = 0;
      for (uint32_t plane = 1; plane <= meta[0]; plane++) value |= (words[plane * (word_bytes / 4) + m] >> lane & 1u) << (plane - 1);
      d[m] = int(meta[0] && (words[m] >> lane & 1u) ? 0u - value : value);
    }
  }
};

}  // namespace acme_warp
