// Zero and repetition elimination: a coded bitmap says which words are kept, the kept words follow.
// Role: SEGMENT_CODEC over a byte-chunk.
// Requires: chunks of 4096, 8192 or 16384 bytes.
// Source: RZE and RRE of the LC framework (Azami, Fallin, Burtscher, ASPLOS 2025); layout in docs/format.md.
#pragma once
#include <briquette_lc/cuda/bitmap.cuh>

namespace briquette_lc {

/// W bytes a word; the rule says which are kept; L levels of the bitmap, -1: chosen for each chunk; bit planes a chunk, 0: that does not matter.
template <int W, class Rule, int L, int Planes = 0> struct Elimination {
  typedef word_of<W> U;
  template <int BYTES> using BitmapOf = Bitmap<BYTES / W, L, Planes ? BYTES / (8 * W * (Planes ? Planes : 1)) : 0>;
  __device__ static constexpr int scratch_bytes(int BYTES) {
    return BYTES == 4096 ? BitmapOf<4096>::room : BYTES == 8192 ? BitmapOf<8192>::room : BitmapOf<16384>::room;
  }

  template <int BYTES, class G> __device__ static uint32_t encode(const uint8_t *in, uint8_t *out, uint32_t bytes, uint8_t *scratch, G g) {
    typedef BitmapOf<BYTES> B;
    const uint32_t count = bytes / W, rest = bytes - count * W;
    mark_words<W, Rule>(in, count, 0, scratch, g);
    const BitmapSums s = B::measure(scratch, count, g);
    const uint32_t begin = round_up(s.size, W), end = begin + s.kept[0] * W;
    if (end + rest >= bytes) return bytes;
    B::store(scratch, count, s, out, g);
    for (uint32_t i = s.size + g.rank(); i < begin; i += G::size) out[i] = 0;
    keep<B>(in, scratch, count, out + begin, s.kept[0], g);
    for (uint32_t i = g.rank(); i < rest; i += G::size) out[end + i] = in[count * W + i];
    return end + rest;
  }

  template <int BYTES, class G> __device__ static bool decode(const uint8_t *in, uint32_t coded, uint8_t *out, uint32_t bytes, uint8_t *scratch, G g) {
    typedef BitmapOf<BYTES> B;
    const uint32_t count = bytes / W, rest = bytes - count * W;
    uint32_t at = 0, kept;
    if (!B::load(in, coded, at, count, scratch, kept, g) || !skip_to(in, coded, at, W)) return false;
    const uint32_t end = at + kept * W;
    if (end + rest > coded || !ends_at(in, coded, end + rest)) return false;
    restore<B>(in + at, kept, scratch, count, out, g);
    for (uint32_t i = g.rank(); i < rest; i += G::size) out[count * W + i] = in[end + i];
    return true;
  }

 private:
  template <class B, class G> __device__ __forceinline__ static void keep(const uint8_t *in, const uint8_t *room, uint32_t count, uint8_t *out, uint32_t total, G g) {
    if constexpr (alone<G>) keep_words<W>(in, room, count, out, total);
    else if constexpr (W == 1) {
      for (uint32_t i = 4 * g.rank(); i < count; i += 4 * G::size) {  // chunks begin and end at multiples of 4 in shared memory
        const uint32_t bits = B::word_of_level(room, 0, i >> 5), mine = bits >> (i & 31) & 15;
        if (mine == 0) continue;
        const uint32_t x = read<uint32_t>(in + i);
        uint8_t *to = out + B::before(room, 0, i >> 5) + ones(bits & ((1u << (i & 31)) - 1));
        BRIQUETTE_UNROLL
        for (int k = 0; k < 4; k++) if (mine >> k & 1) *to++ = uint8_t(x >> (8 * k));
      }
    } else {
      for (uint32_t i = g.rank(); i < count; i += G::size)
        if (B::marked(room, 0, i)) put_item<U>(out, B::rank(room, 0, i), item<U>(in, i));
    }
  }

  template <class B, class G> __device__ __forceinline__ static void restore(const uint8_t *in, uint32_t total, const uint8_t *room, uint32_t count, uint8_t *out, G g) {
    if constexpr (alone<G>) restore_words<W, Rule>(in, total, room, count, out);
    else if constexpr (W == 1) {
      for (uint32_t i = 4 * g.rank(); i < count; i += 4 * G::size) {
        const uint32_t bits = B::word_of_level(room, 0, i >> 5), mine = bits >> (i & 31) & 15;
        const uint32_t r = B::before(room, 0, i >> 5) + ones(bits & ((1u << (i & 31)) - 1));
        const uint8_t *from = in + r;
        uint32_t x = 0, held = 0;
        if constexpr (Rule::looks_back) held = r ? from[-1] : 0u;
        BRIQUETTE_UNROLL
        for (int k = 0; k < 4; k++) {
          uint32_t b = held;
          if (mine >> k & 1) b = *from++;
          if constexpr (Rule::looks_back) held = b;
          x |= b << (8 * k);
        }
        if (i + 4 <= count) write<uint32_t>(out + i, x);
        else for (uint32_t k = 0; i + k < count; k++) out[i + k] = uint8_t(x >> (8 * k));
      }
    } else {
      for (uint32_t i = g.rank(); i < count; i += G::size) {
        const bool mine = B::marked(room, 0, i);
        const uint32_t r = B::rank(room, 0, i) + uint32_t(mine);
        U x = 0;
        if (Rule::looks_back ? r > 0 : mine) x = item<U>(in, r - 1);
        put_item<U>(out, i, x);
      }
    }
  }
};

#define BRIQUETTE_LC_PLANES(name, W, rule, planes, suffix) \
  typedef Elimination<W, rule, 0, planes> name##W##L0##suffix; \
  typedef Elimination<W, rule, 1, planes> name##W##L1##suffix; \
  typedef Elimination<W, rule, 2, planes> name##W##L2##suffix; \
  typedef Elimination<W, rule, 3, planes> name##W##L3##suffix; \
  typedef Elimination<W, rule, 4, planes> name##W##L4##suffix; \
  typedef Elimination<W, rule, -1, planes> name##W##A##suffix;
#define BRIQUETTE_LC_LEVELS(name, W, rule) \
  BRIQUETTE_LC_PLANES(name, W, rule, 0, ) BRIQUETTE_LC_PLANES(name, W, rule, 8, P8) BRIQUETTE_LC_PLANES(name, W, rule, 16, P16) \
  BRIQUETTE_LC_PLANES(name, W, rule, 32, P32) BRIQUETTE_LC_PLANES(name, W, rule, 64, P64)
#define BRIQUETTE_LC_WORDS(name, rule) \
  BRIQUETTE_LC_LEVELS(name, 1, rule) BRIQUETTE_LC_LEVELS(name, 2, rule) BRIQUETTE_LC_LEVELS(name, 4, rule) BRIQUETTE_LC_LEVELS(name, 8, rule)
BRIQUETTE_LC_WORDS(ZeroElimination, Zeros)
BRIQUETTE_LC_WORDS(RepetitionElimination, Repeats)
#undef BRIQUETTE_LC_WORDS
#undef BRIQUETTE_LC_LEVELS
#undef BRIQUETTE_LC_PLANES

}  // namespace briquette_lc
