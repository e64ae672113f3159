// Elimination of leading bits: top bits go through zero or repetition elimination, the low bits of all words are packed.
// Role: SEGMENT_CODEC over a byte-chunk.
// Requires: chunks of 4096, 8192 or 16384 bytes.
// Source: RAZE and RARE of the LC framework (Azami, Fallin, Burtscher, ASPLOS 2025); layout in docs/format.md.
#pragma once
#include <briquette_lc/cuda/bitmap.cuh>
#include <briquette_lc/cuda/packing.cuh>

namespace briquette_lc {

/// W bytes a word; the rule says which top bits are kept; L levels of the bitmap, -1: chosen for each chunk.
template <int W, class Rule, int L> struct AdaptiveElimination {
  typedef word_of<W> U;
  static constexpr uint32_t width = 8 * W;
  static constexpr int counters = round_up(4 * (width + 1), 16);  // bytes: words by the number of leading zeros of their mark

  template <int BYTES> __device__ static constexpr int room() { return Bitmap<BYTES / W, L>::room; }
  __device__ static constexpr int scratch_bytes(int BYTES) {  // the bitmap, the counters, the kept top bits
    return (BYTES == 4096 ? room<4096>() : BYTES == 8192 ? room<8192>() : room<16384>()) + counters + BYTES;
  }

  template <int BYTES, class G> __device__ static uint32_t encode(const uint8_t *in, uint8_t *out, uint32_t bytes, uint8_t *scratch, G g) {
    typedef Bitmap<BYTES / W, L> B;
    const uint32_t count = bytes / W, rest = bytes - count * W;
    const uint32_t k = top_bits(in, count, reinterpret_cast<uint32_t *>(scratch + B::room), g), low = width - k;
    if (k == 0) return bytes;
    mark_words<W, Rule>(in, count, low, scratch, g);
    const BitmapSums s = B::measure(scratch, count, g);
    const uint32_t head = 1 + s.size, top = round_up(head, 4), tail = top + packed_bytes(s.kept[0], k), end = tail + packed_bytes(count, low);
    if (end + rest >= bytes) return bytes;
    if (g.rank() == 0) out[0] = uint8_t(k);
    B::store(scratch, count, s, out + 1, g);
    for (uint32_t i = head + g.rank(); i < top; i += G::size) out[i] = 0;
    uint8_t *kept = scratch + B::room + counters;
    if constexpr (alone<G>) {
      uint32_t at = 0;
      for (uint32_t i = 0; i < count; i++) {
        put_item<U>(kept, at, U(item<U>(in, i) >> low));
        at += scratch[i >> 3] >> (i & 7) & 1;
      }
    } else {
      for (uint32_t i = g.rank(); i < count; i += G::size)
        if (B::marked(scratch, 0, i)) put_item<U>(kept, B::rank(scratch, 0, i), U(item<U>(in, i) >> low));
    }
    g.sync();
    pack_run<U, G>(s.kept[0], k, out + top, g.rank(), G::size, [=](uint32_t i) { return item<U>(kept, i); });
    const U mask = low_bits<U>(low);
    pack_run<U, G>(count, low, out + tail, g.rank(), G::size, [=](uint32_t i) { return U(item<U>(in, i) & mask); });
    for (uint32_t i = g.rank(); i < rest; i += G::size) out[end + i] = in[count * W + i];
    return end + rest;
  }

  template <int BYTES, class G> __device__ static bool decode(const uint8_t *in, uint32_t coded, uint8_t *out, uint32_t bytes, uint8_t *scratch, G g) {
    typedef Bitmap<BYTES / W, L> B;
    const uint32_t count = bytes / W, rest = bytes - count * W;
    if (coded == 0) return false;
    const uint32_t k = in[0], low = width - k;
    if (k == 0 || k > width) return false;
    uint32_t at = 1, kept;
    if (!B::load(in, coded, at, count, scratch, kept, g) || !skip_to(in, coded, at, 4)) return false;
    const uint32_t tail = at + packed_bytes(kept, k), end = tail + packed_bytes(count, low);
    if (end + rest > coded || !ends_at(in, coded, end + rest)) return false;
    if (!run_ends_clean(in + at, kept, k) || !run_ends_clean(in + tail, count, low)) return false;
    if constexpr (alone<G>) {
      U held = 0;
      uint32_t r = 0;
      for (uint32_t i = 0; i < count; i++) {
        U x = held;
        if (scratch[i >> 3] >> (i & 7) & 1) x = packed_value<U>(in + at, r++, k);
        if constexpr (Rule::looks_back) held = x;
        put_item<U>(out, i, U(U(x << low) | packed_value<U>(in + tail, i, low)));
      }
    } else {
      for (uint32_t i = g.rank(); i < count; i += G::size) {
        const bool mine = B::marked(scratch, 0, i);
        const uint32_t r = B::rank(scratch, 0, i) + uint32_t(mine);
        U x = 0;
        if (Rule::looks_back ? r > 0 : mine) x = packed_value<U>(in + at, r - 1, k);
        put_item<U>(out, i, U(U(x << low) | packed_value<U>(in + tail, i, low)));
      }
    }
    for (uint32_t i = g.rank(); i < rest; i += G::size) out[count * W + i] = in[end + i];
    return true;
  }

 private:
  /// The k with which fewest bits are kept, bitmap aside; the lowest of several. The same in all lanes.
  template <class G> __device__ __forceinline__ static uint32_t top_bits(const uint8_t *in, uint32_t count, uint32_t *zeros, G g) {
    for (uint32_t z = g.rank(); z <= width; z += G::size) zeros[z] = 0;
    g.sync();
    for (uint32_t i = g.rank(); i < count; i += G::size) {
      const U before = Rule::looks_back && i ? item<U>(in, i - 1) : U(0);
      g.add(zeros + (width - briquette::bit_length(U(Rule::mark(item<U>(in, i), before)))), 1);
    }
    g.sync();
    uint32_t best = 0;
    for (uint32_t k = g.rank(); k <= width; k += G::size) {
      uint32_t kept = 0;
      for (uint32_t z = 0; z < k; z++) kept += zeros[z];
      const uint32_t key = ~((count * (width - k) + kept * k) << 7 | k);  // at most 2^17 bits
      best = best < key ? key : best;
    }
    return ~g.max(best) & 127;
  }
};

#define BRIQUETTE_LC_LEVELS(name, W, rule) \
  typedef AdaptiveElimination<W, rule, 0> name##W##L0; \
  typedef AdaptiveElimination<W, rule, 1> name##W##L1; \
  typedef AdaptiveElimination<W, rule, 2> name##W##L2; \
  typedef AdaptiveElimination<W, rule, 3> name##W##L3; \
  typedef AdaptiveElimination<W, rule, 4> name##W##L4; \
  typedef AdaptiveElimination<W, rule, -1> name##W##A;
#define BRIQUETTE_LC_WORDS(name, rule) \
  BRIQUETTE_LC_LEVELS(name, 1, rule) BRIQUETTE_LC_LEVELS(name, 2, rule) BRIQUETTE_LC_LEVELS(name, 4, rule) BRIQUETTE_LC_LEVELS(name, 8, rule)
BRIQUETTE_LC_WORDS(AdaptiveZeroElimination, Zeros)
BRIQUETTE_LC_WORDS(AdaptiveRepetitionElimination, Repeats)
#undef BRIQUETTE_LC_WORDS
#undef BRIQUETTE_LC_LEVELS

}  // namespace briquette_lc
