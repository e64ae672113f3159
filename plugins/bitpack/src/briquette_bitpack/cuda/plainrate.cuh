// Plain-rate coder: every value of a segment in as many bits as the segment's widest needs.
// Role: SEGMENT_CODEC.
// Requires: segments of a multiple of 32 elements; any code type and geometry.
// Source: fixed-length encoding of SZp (Agarwal et al. 2024) and of cuSZp's plain mode; layout in docs/format.md.
#pragma once
#include <briquette_warp/cuda/bits.cuh>

namespace briquette_bitpack {

struct PlainRate {
  static constexpr uint32_t meta_bytes = 1;
  /// High bits of the metadata that no width takes.
  template <class T> static constexpr uint32_t spare_meta_bits = sizeof(T) == 2 ? 3 : sizeof(T) == 4 ? 2 : 1;

  template <class T, int S> __device__ __forceinline__ static uint32_t size(uint32_t width) {
    return width <= uint32_t(briquette::bits_of<T>) ? briquette::packed_words<S>(width) : briquette::bad_size;
  }
  /// Fold signs once; cost and pack see folded codes, decode gives them.
  template <class T, int E, class G> __device__ __forceinline__ static void prepare(T (&c)[E], G) {
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = T(briquette::fold(c[m]));
  }
  template <class T, int E, class G> __device__ __forceinline__ static void finish(T (&c)[E], G) {
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = briquette::unfold<T>(briquette::unsigned_of<T>(c[m]));
  }
  template <class T, int E, class G> __device__ __forceinline__ static uint32_t cost(const T (&c)[E], G g) {
    briquette::unsigned_of<T> all = 0;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) all = briquette::unsigned_of<T>(all | briquette::unsigned_of<T>(c[m]));
    return briquette::bit_length(g.bit_or(all));
  }
  /// The same gathered code by code. A number and its double, signs included, differ in as many bits as its folded form has.
  template <class T> using Sum = briquette::unsigned_of<T>;
  template <class T> __device__ __forceinline__ static void add(Sum<T> &sum, T code) {
    typedef briquette::unsigned_of<T> U;
    if constexpr (briquette::is_signed<T>) sum = U(sum | U(U(code) ^ U(U(code) << 1)));
    else sum = U(sum | code);
  }
  template <class T, class G> __device__ __forceinline__ static uint32_t measure(Sum<T> sum, G g) { return briquette::bit_length(g.bit_or(sum)); }
  template <class T, int E, class G> __device__ __forceinline__ static void pack(const T (&c)[E], uint32_t width, G g, uint32_t *out) {
    briquette::pack_span(briquette::as_unsigned(c), width, g, out);
  }
  template <class T, int E, class G> __device__ __forceinline__ static void decode(uint32_t width, const uint32_t *in, T (&c)[E], G g) {
    briquette::unpack_span(in, width, g, briquette::as_unsigned(c));
  }
};

}  // namespace briquette_bitpack
