// Adaptive bit planes: a segment's signs, then as many planes of magnitude bits as its largest code needs.
// Role: SEGMENT_CODEC.
// Requires: segments of a multiple of 32 elements; any code type and geometry.
// Source: block encoding of cuSZp (Huang et al., SC 2023); layout in docs/format.md.
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace briquette_bitpack {

struct AdaptiveBitplane {
  static constexpr uint32_t meta_bytes = 1;
  /// High bits of the metadata that no number of planes takes.
  template <class T> static constexpr uint32_t spare_meta_bits = sizeof(T) == 2 ? 3 : sizeof(T) == 4 ? 2 : 1;

  template <class T> static constexpr uint32_t sign_planes = briquette::is_signed<T> ? 1u : 0u;

  /// How a segment's rows of 32 elements, which stand one after another in a plane, lie on the lanes.
  template <int E, class G> struct Rows {
    static constexpr int all = E * G::size / 32;
    static constexpr int lanes = E < 32 ? 32 / E : 1;  // that share a row
    static constexpr int mine = E < 32 ? 1 : E / 32;   // of which this lane holds something
    static constexpr int elements = E < 32 ? E : 32;   // of a row, in this lane
  };

  template <class T, int S> __device__ __forceinline__ static uint32_t size(uint32_t planes) {
    if (planes > uint32_t(briquette::bits_of<T>)) return briquette::bad_size;
    return planes ? uint32_t(S / 32) * (planes + sign_planes<T>) : 0u;
  }
  template <class T, int E, class G> __device__ __forceinline__ static uint32_t cost(const T (&c)[E], G g) {
    briquette::unsigned_of<T> all = 0;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) all = briquette::unsigned_of<T>(all | briquette::magnitude(c[m]));
    return briquette::bit_length(g.bit_or(all));
  }
  /// The same gathered code by code.
  template <class T> using Sum = briquette::unsigned_of<T>;
  template <class T> __device__ __forceinline__ static void add(Sum<T> &sum, T code) { sum = Sum<T>(sum | briquette::magnitude(code)); }
  template <class T, class G> __device__ __forceinline__ static uint32_t measure(Sum<T> sum, G g) { return briquette::bit_length(g.bit_or(sum)); }
  template <class T, int E, class G> __device__ __forceinline__ static void pack(const T (&c)[E], uint32_t planes, G g, uint32_t *out) {
    if (planes == 0) return;
    typedef Rows<E, G> L;
    constexpr int R = L::elements;
    const int first = g.rank() / L::lanes * L::mine, at = g.rank() % L::lanes * R;
    BRIQUETTE_UNROLL
    for (int k = 0; k < L::mine; k++) {
      uint32_t bits[R];
      if constexpr (briquette::is_signed<T>) {
        uint32_t sign = 0;
        BRIQUETTE_UNROLL
        for (int m = 0; m < R; m++) sign |= uint32_t(c[k * R + m] < 0) << (at + m);
        BRIQUETTE_UNROLL
        for (int step = L::lanes / 2; step; step >>= 1) sign |= g.exchange(sign, step);
        if (at == 0) out[first + k] = sign;
      }
      BRIQUETTE_UNROLL
      for (int half = 0; half < int(sizeof(T) + 3) / 4; half++) {
        BRIQUETTE_UNROLL
        for (int m = 0; m < R; m++) bits[m] = uint32_t(uint64_t(briquette::magnitude(c[k * R + m])) >> (32 * half));
        briquette::bit_transpose(bits, g);
        BRIQUETTE_UNROLL
        for (int m = 0; m < R; m++) {
          const uint32_t plane = uint32_t(32 * half + at + m);
          if (plane < planes) out[(plane + sign_planes<T>) * L::all + first + k] = bits[m];
        }
      }
    }
  }
  template <class T, int E, class G> __device__ __forceinline__ static void decode(uint32_t planes, const uint32_t *in, T (&c)[E], G g) {
    typedef briquette::unsigned_of<T> U;
    typedef Rows<E, G> L;
    constexpr int R = L::elements;
    const int first = g.rank() / L::lanes * L::mine, at = g.rank() % L::lanes * R;
    BRIQUETTE_UNROLL
    for (int k = 0; k < L::mine; k++) {
      uint64_t value[R];
      BRIQUETTE_UNROLL
      for (int m = 0; m < R; m++) value[m] = 0;
      BRIQUETTE_UNROLL
      for (int half = 0; half < int(sizeof(T) + 3) / 4; half++) {
        uint32_t bits[R];
        BRIQUETTE_UNROLL
        for (int m = 0; m < R; m++) {
          const uint32_t plane = uint32_t(32 * half + at + m);
          bits[m] = plane < planes ? in[(plane + sign_planes<T>) * L::all + first + k] : 0u;
        }
        if (planes > uint32_t(32 * half)) briquette::bit_transpose(bits, g);
        BRIQUETTE_UNROLL
        for (int m = 0; m < R; m++) value[m] |= uint64_t(bits[m]) << (32 * half);
      }
      const uint32_t sign = briquette::is_signed<T> && planes ? in[first + k] : 0u;
      BRIQUETTE_UNROLL
      for (int m = 0; m < R; m++) {
        const U negative = U(U(0) - U((sign >> (at + m)) & 1u));
        c[k * R + m] = T(U(U(U(value[m]) ^ negative) - negative));
      }
    }
  }
};

}  // namespace briquette_bitpack
