// Byte-granular coder: each half of a segment in as many whole bytes a value as its largest value needs.
// Role: SEGMENT_CODEC.
// Requires: any code type and geometry; parameter center (int64); little-endian words.
// Source: byte-aligned integer coding (Lemire and Boytsov, SP&E 2015); layout in the pack's README.
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace acme_coder {

template <class T> __device__ __forceinline__ T minus(T a, T b) { return T(briquette::unsigned_of<T>(a) - briquette::unsigned_of<T>(b)); }

struct ByteCoder {
  static constexpr uint32_t meta_bytes = 2;  // bytes a value, in the first half and in the second

  template <class T, int S, class P> __device__ __forceinline__ static uint32_t size(uint32_t meta, const P &) {
    const uint32_t low = meta & 255u, high = meta >> 8;
    return low <= sizeof(T) && high <= sizeof(T) ? uint32_t(S / 8) * (low + high) : briquette::bad_size;
  }
  template <class T, int E, class G, class P> __device__ __forceinline__ static uint32_t cost(const T (&c)[E], G g, const P &p) {
    briquette::unsigned_of<T> low = 0, high = 0;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) (2 * (g.rank() * E + m) < E * G::size ? low : high) |= briquette::fold(minus(c[m], T(p.center)));
    return (briquette::bit_length(g.bit_or(low)) + 7) / 8 | (briquette::bit_length(g.bit_or(high)) + 7) / 8 << 8;
  }
  template <class T, int E, class G, class P> __device__ __forceinline__ static void pack(const T (&c)[E], uint32_t meta, G g, uint32_t *out, const P &p) {
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const Place at(g.rank() * E + m, E * G::size, meta);
      const briquette::unsigned_of<T> value = briquette::fold(minus(c[m], T(p.center)));
      uint8_t *to = reinterpret_cast<uint8_t *>(out) + at.byte;
      for (uint32_t b = 0; b < at.width; b++) to[b] = uint8_t(value >> (8 * b));
    }
  }
  template <class T, int E, class G, class P> __device__ __forceinline__ static void decode(uint32_t meta, const uint32_t *in, T (&c)[E], G g, const P &p) {
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const Place at(g.rank() * E + m, E * G::size, meta);
      const uint8_t *from = reinterpret_cast<const uint8_t *>(in) + at.byte;
      uint64_t value = 0;
      for (uint32_t b = 0; b < at.width; b++) value |= uint64_t(from[b]) << (8 * b);
      c[m] = minus(briquette::unfold<T>(briquette::unsigned_of<T>(value)), minus(T(0), T(p.center)));
    }
  }

 private:
  /// Where element i of a segment of S stands, and in how many bytes.
  struct Place {
    uint32_t byte, width;
    __device__ __forceinline__ Place(int i, int S, uint32_t meta) {
      const bool second = 2 * i >= S;
      width = second ? meta >> 8 : meta & 255u;
      byte = second ? uint32_t(S / 2) * (meta & 255u) + uint32_t(i - S / 2) * width : uint32_t(i) * width;
    }
  };
};

}  // namespace acme_coder
