// Plain-rate coder that may keep a segment's first value aside: the width of the others, and a word of what the first has above.
// Role: SEGMENT_CODEC.
// Requires: segments of a multiple of 32 elements; any code type and geometry.
// Source: plain and outlier blocks of cuSZp2 (Huang et al., SC 2024); layout in docs/format.md.
#pragma once
#include <briquette_warp/cuda/bits.cuh>

namespace briquette_bitpack {

struct OutlierCoder {
  static constexpr uint32_t meta_bytes = 1;
  /// High bits of the metadata that are never set: it is below twice the code type's bits.
  template <class T> static constexpr uint32_t spare_meta_bits = sizeof(T) == 2 ? 3 : sizeof(T) == 4 ? 2 : 1;

  template <class T, int S> __device__ __forceinline__ static uint32_t size(uint32_t meta) {
    return meta < 2u * briquette::bits_of<T> ? briquette::packed_words<S>(width<T>(meta)) + aside<T>(meta) : briquette::bad_size;
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
    typedef briquette::unsigned_of<T> U;
    constexpr uint32_t bits = uint32_t(briquette::bits_of<T>);
    U others = g.rank() ? U(c[0]) : U(0);
    BRIQUETTE_UNROLL
    for (int m = 1; m < E; m++) others = U(others | U(c[m]));
    others = g.bit_or(others);
    const U first = g.broadcast(U(c[0]), 0);
    const uint32_t whole = briquette::bit_length(U(others | first)), length = briquette::bit_length(first), rest = briquette::bit_length(others);
    const uint32_t least = length > rest + 32u ? length - 32u : rest;  // one word holds 32 bits of the first
    constexpr int S = E * G::size;
    const bool shorter = briquette::packed_words<S>(least) + 1u < briquette::packed_words<S>(whole) && least + 2u <= bits;
    return shorter ? least + bits + 1u : whole;
  }
  template <class T, int E, class G> __device__ __forceinline__ static void pack(const T (&c)[E], uint32_t meta, G g, uint32_t *out) {
    typedef briquette::unsigned_of<T> U;
    const uint32_t bits = width<T>(meta), before = aside<T>(meta);
    U value[E];
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) value[m] = U(c[m]);
    if (before && g.rank() == 0) {
      out[0] = uint32_t(uint64_t(value[0]) >> bits);
      value[0] = U(value[0] & U((U(1) << bits) - U(1)));
    }
    briquette::pack_span(value, bits, g, out + before);
  }
  template <class T, int E, class G> __device__ __forceinline__ static void decode(uint32_t meta, const uint32_t *in, T (&c)[E], G g) {
    typedef briquette::unsigned_of<T> U;
    const uint32_t bits = width<T>(meta), before = aside<T>(meta);
    briquette::unpack_span(in + before, bits, g, briquette::as_unsigned(c));
    if (before && g.rank() == 0) c[0] = T(U(U(c[0]) | U(U(in[0]) << bits)));
  }

 private:
  template <class T> __device__ __forceinline__ static uint32_t aside(uint32_t meta) { return meta > uint32_t(briquette::bits_of<T>) ? 1u : 0u; }
  template <class T> __device__ __forceinline__ static uint32_t width(uint32_t meta) { return aside<T>(meta) ? meta - uint32_t(briquette::bits_of<T>) - 1u : meta; }
};

}  // namespace briquette_bitpack
