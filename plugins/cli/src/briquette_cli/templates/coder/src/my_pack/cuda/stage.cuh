// Each value of a segment in as many whole bytes as the segment's largest needs. FILL IN
// Role: SEGMENT_CODEC.
// Requires: segments of a multiple of 4 codes; any code type and geometry; little-endian words.
// Source: FILL IN: where the method comes from; the layout is in stage.py.
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace my_pack {

struct MyPack {
  static constexpr uint32_t meta_bytes = 1;  // FILL IN: bytes of metadata a segment, 0 to 4; here those of a value

  /// Words of a segment of S codes. Metadata come from archives: refuse what `cost` never says.
  template <class T, int S> __device__ __forceinline__ static uint32_t size(uint32_t width) {
    return width <= sizeof(T) ? width * uint32_t(S / 4) : briquette::bad_size;
  }
  /// The segment's metadata, the same in every lane. FILL IN
  template <class T, int E, class G> __device__ __forceinline__ static uint32_t cost(const T (&c)[E], G g) {
    briquette::unsigned_of<T> all = 0;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) all |= briquette::fold(c[m]);
    return (briquette::bit_length(g.bit_or(all)) + 7) / 8;
  }
  /// Write exactly size(width) words. FILL IN
  template <class T, int E, class G> __device__ __forceinline__ static void pack(const T (&c)[E], uint32_t width, G g, uint32_t *out) {
    uint8_t *to = reinterpret_cast<uint8_t *>(out) + g.rank() * E * width;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const briquette::unsigned_of<T> value = briquette::fold(c[m]);
      for (uint32_t b = 0; b < width; b++) to[m * width + b] = uint8_t(value >> (8 * b));
    }
  }
  /// Read no more than size(width) words. FILL IN
  template <class T, int E, class G> __device__ __forceinline__ static void decode(uint32_t width, const uint32_t *in, T (&c)[E], G g) {
    typedef briquette::unsigned_of<T> U;
    const uint8_t *from = reinterpret_cast<const uint8_t *>(in) + g.rank() * E * width;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      uint64_t value = 0;
      for (uint32_t b = 0; b < width; b++) value |= uint64_t(from[m * width + b]) << (8 * b);
      c[m] = briquette::unfold<T>(U(value));
    }
  }
};

}  // namespace my_pack
