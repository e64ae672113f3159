// Tuple order: interleaved components of tuples, one component after another.
// Role: REGION_LOCAL over a byte-chunk.
// Requires: chunks of 4096, 8192 or 16384 bytes.
// Source: TUPL of the LC framework (Azami, Fallin, Burtscher, ASPLOS 2025).
#pragma once
#include <briquette_lc/cuda/words.cuh>

namespace briquette_lc {

/// W bytes a word, S words a tuple; what is left behind the last whole tuple is copied.
template <int W, int S> struct TupleOrder {
  typedef word_of<W> U;

  template <int BYTES, class G> __device__ static void forward(const uint8_t *in, uint8_t *out, uint32_t bytes, G g) {
    const uint32_t tuples = bytes / (W * S);
    for (uint32_t t = g.rank(); t < tuples; t += G::size) {
      BRIQUETTE_UNROLL
      for (uint32_t k = 0; k < S; k++) put_item<U>(out, k * tuples + t, item<U>(in, t * S + k));
    }
    briquette::copy_bytes(in, out, tuples * W * S, bytes, g);
  }
  template <int BYTES, class G> __device__ static void inverse(const uint8_t *in, uint8_t *out, uint32_t bytes, G g) {
    const uint32_t tuples = bytes / (W * S);
    for (uint32_t t = g.rank(); t < tuples; t += G::size) {
      BRIQUETTE_UNROLL
      for (uint32_t k = 0; k < S; k++) put_item<U>(out, t * S + k, item<U>(in, k * tuples + t));
    }
    briquette::copy_bytes(in, out, tuples * W * S, bytes, g);
  }
};

#define BRIQUETTE_LC_SIZES(W) \
  typedef TupleOrder<W, 2> TupleOrder##W##x2; \
  typedef TupleOrder<W, 3> TupleOrder##W##x3; \
  typedef TupleOrder<W, 4> TupleOrder##W##x4; \
  typedef TupleOrder<W, 5> TupleOrder##W##x5; \
  typedef TupleOrder<W, 6> TupleOrder##W##x6; \
  typedef TupleOrder<W, 7> TupleOrder##W##x7; \
  typedef TupleOrder<W, 8> TupleOrder##W##x8; \
  typedef TupleOrder<W, 9> TupleOrder##W##x9; \
  typedef TupleOrder<W, 10> TupleOrder##W##x10; \
  typedef TupleOrder<W, 11> TupleOrder##W##x11; \
  typedef TupleOrder<W, 12> TupleOrder##W##x12; \
  typedef TupleOrder<W, 13> TupleOrder##W##x13; \
  typedef TupleOrder<W, 14> TupleOrder##W##x14; \
  typedef TupleOrder<W, 15> TupleOrder##W##x15; \
  typedef TupleOrder<W, 16> TupleOrder##W##x16;
BRIQUETTE_LC_SIZES(1)
BRIQUETTE_LC_SIZES(2)
BRIQUETTE_LC_SIZES(4)
BRIQUETTE_LC_SIZES(8)
#undef BRIQUETTE_LC_SIZES

}  // namespace briquette_lc
