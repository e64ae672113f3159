// Words of a byte-chunk: loads and stores, and which words a coder keeps.
// Role: shared by the coders of this pack.
// Requires: chunks that begin at a multiple of 16 bytes where several lanes own them.
// Source: zero and repetition elimination of the LC framework (Azami, Fallin, Burtscher, ASPLOS 2025); layouts in docs/format.md.
#pragma once
#include <briquette_chunk/cuda/coop.cuh>

namespace briquette_lc {

template <int W> struct Word;
template <> struct Word<1> { typedef uint8_t type; };
template <> struct Word<2> { typedef uint16_t type; };
template <> struct Word<4> { typedef uint32_t type; };
template <> struct Word<8> { typedef uint64_t type; };
template <int W> using word_of = typename Word<W>::type;

/// Whether one lane owns the chunk: then loops are written for a compiler that vectorizes.
template <class G> constexpr bool alone = G::size == 1;

__device__ __forceinline__ constexpr uint32_t round_up(uint32_t n, uint32_t unit) { return (n + unit - 1) / unit * unit; }

#if BRIQUETTE_HOST
/// The value at any address.
template <class U> inline U read(const uint8_t *p) { U x; memcpy(&x, p, sizeof x); return x; }
template <class U> inline void write(uint8_t *p, U x) { memcpy(p, &x, sizeof x); }
__device__ __forceinline__ uint32_t ones(uint32_t x) { return uint32_t(__builtin_popcount(x)); }
#else
/// The value at an address that is a multiple of its size.
template <class U> __device__ __forceinline__ U read(const uint8_t *p) { return *reinterpret_cast<const U *>(p); }
template <class U> __device__ __forceinline__ void write(uint8_t *p, U x) { *reinterpret_cast<U *>(p) = x; }
__device__ __forceinline__ uint32_t ones(uint32_t x) { return uint32_t(__popc(x)); }
#endif
template <class U> __device__ __forceinline__ U item(const uint8_t *p, uint32_t i) { return read<U>(p + i * sizeof(U)); }
template <class U> __device__ __forceinline__ void put_item(uint8_t *p, uint32_t i, U x) { write<U>(p + i * sizeof(U), x); }

/// Whether a coded chunk of `coded` bytes ends at byte `at`, but for the zero bytes of its last 32-bit word.
__device__ __forceinline__ bool ends_at(const uint8_t *in, uint32_t coded, uint32_t at) {
  if (round_up(at, 4) != coded) return false;
  for (uint32_t i = at; i < coded; i++) if (in[i]) return false;
  return true;
}
/// Move `at` to a multiple of `unit`; false where that is beyond `coded` or skips bytes that are not zero.
__device__ __forceinline__ bool skip_to(const uint8_t *in, uint32_t coded, uint32_t &at, uint32_t unit) {
  const uint32_t to = round_up(at, unit);
  if (to > coded) return false;
  for (; at < to; at++) if (in[at]) return false;
  return true;
}

/// Which words are kept: those that are not zero, or those that differ from the word before (the first one's is 0).
/// `mark` is zero exactly where a word is eliminated; `filled` is what stands for an eliminated one.
struct Zeros {
  static constexpr bool looks_back = false;
  template <class U> __device__ __forceinline__ static U mark(U x, U) { return x; }
};
struct Repeats {
  static constexpr bool looks_back = true;
  template <class U> __device__ __forceinline__ static U mark(U x, U before) { return U(x ^ before); }
};

/// The bit mask of the bytes that are not zero.
__device__ __forceinline__ uint32_t nonzero4(uint32_t x) {
  x = (((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) >> 7 & 0x01010101u;
  return x * 0x01020408u >> 24;
}
__device__ __forceinline__ uint32_t nonzero8(uint64_t x) {
  x = (((x & 0x7f7f7f7f7f7f7f7full) + 0x7f7f7f7f7f7f7f7full) | x) >> 7 & 0x0101010101010101ull;
  return uint32_t(x * 0x0102040810204080ull >> 56);
}


/// The bits of eight words from word 8 * i on: whether their mark, `low` bits taken off, is not zero.
template <int W, class Rule> __device__ __forceinline__ uint32_t marks8(const uint8_t *in, uint32_t i, uint32_t low) {
  typedef word_of<W> U;
  U before = 0;
  if constexpr (Rule::looks_back) before = i ? item<U>(in, 8 * i - 1) : U(0);
  if constexpr (W == 1) {
    uint32_t a = item<uint32_t>(in, 2 * i), b = item<uint32_t>(in, 2 * i + 1);
    if constexpr (Rule::looks_back) {
      const uint32_t last = a >> 24;
      a ^= a << 8 | before;
      b ^= b << 8 | last;
    }
    const uint32_t top = (0xffu << low & 0xffu) * 0x01010101u;
    return nonzero4(a & top) | nonzero4(b & top) << 4;
  } else {
    alignas(16) U x[8];
    BRIQUETTE_UNROLL
    for (int k = 0; k < W / 2; k++) reinterpret_cast<briquette::Quad *>(x)[k] = reinterpret_cast<const briquette::Quad *>(in + 8 * W * i)[k];
    uint32_t bits = 0;
    BRIQUETTE_UNROLL
    for (int k = 0; k < 8; k++) {
      bits |= uint32_t(U(Rule::mark(x[k], before) >> low) != 0) << k;
      before = x[k];
    }
    return bits;
  }
}

/// The bits of up to eight words, one after another, for the end of a chunk.
template <int W, class Rule> __device__ __forceinline__ uint32_t marks_some(const uint8_t *in, uint32_t first, uint32_t count, uint32_t low) {
  typedef word_of<W> U;
  uint32_t bits = 0;
  for (uint32_t k = 0; k < 8 && first + k < count; k++) {
    const U x = item<U>(in, first + k), before = Rule::looks_back && first + k ? item<U>(in, first + k - 1) : U(0);
    bits |= uint32_t(U(Rule::mark(x, before) >> low) != 0) << k;
  }
  return bits;
}

/// The bits of 64 words, for a lone lane: blocks in which nothing is kept are told at once.
template <int W, class Rule> __device__ inline uint64_t marks64(const uint8_t *in, word_of<W> before, uint32_t low) {
  typedef word_of<W> U;
  uint64_t bits = 0;
  if constexpr (W == 1) {
    uint64_t x[8], any = 0, last = before;
    const uint64_t top = (0xffull << low & 0xffull) * 0x0101010101010101ull;
    for (int k = 0; k < 8; k++) {
      const uint64_t held = read<uint64_t>(in + 8 * k);
      x[k] = (Rule::looks_back ? held ^ (held << 8 | last) : held) & top;
      last = held >> 56;
      any |= x[k];
    }
    if (any == 0) return 0;
    for (int k = 0; k < 8; k++) bits |= uint64_t(nonzero8(x[k])) << (8 * k);
  } else {
    U any = 0;
    uint8_t kept[64];
    any = U(any | Rule::mark(read<U>(in), before));
    kept[0] = U(any >> low) != 0;
    for (int k = 1; k < 64; k++) {
      const U mark = U(Rule::mark(item<U>(in, k), item<U>(in, k - 1)));
      any = U(any | mark);
      kept[k] = U(mark >> low) != 0;
    }
    if (U(any >> low) == 0) return 0;
    for (int k = 0; k < 8; k++) bits |= (read<uint64_t>(kept + 8 * k) * 0x0102040810204080ull >> 56) << (8 * k);
  }
  return bits;
}

/// Write the bitmap of which of `count` words are kept, with zero bits up to a multiple of 16 bytes.
template <int W, class Rule, class G> __device__ __forceinline__ void mark_words(const uint8_t *in, uint32_t count, uint32_t low, uint8_t *bitmap, G g) {
  typedef word_of<W> U;
  const uint32_t end = round_up((count + 7) / 8, 16);
  if constexpr (alone<G>) {
    uint32_t i = 0;
    for (; i + 64 <= count; i += 64) write<uint64_t>(bitmap + i / 8, marks64<W, Rule>(in + i * W, i && Rule::looks_back ? item<U>(in, i - 1) : U(0), low));
    for (; i < 8 * end; i += 8) bitmap[i / 8] = uint8_t(marks_some<W, Rule>(in, i, count, low));
  } else {
    for (uint32_t i = g.rank(); i < end; i += G::size)
      bitmap[i] = uint8_t(8 * i + 8 <= count ? marks8<W, Rule>(in, i, low) : marks_some<W, Rule>(in, 8 * i, count, low));
  }
}

#if BRIQUETTE_HOST && defined(__BMI2__) && !defined(__znver1__) && !defined(__znver2__)  // where a bit gather is one fast instruction
#define BRIQUETTE_LC_GATHER 1
/// A group of eight words of one or two bytes by bit gathers, without branches; the same bytes as the loops below.
template <int W> struct Gather {
  static constexpr bool usable = W <= 2;
  static constexpr uint32_t lanes = W == 1 ? 8 : 4;
  static constexpr uint64_t each = W == 1 ? 0x0101010101010101ull : 0x0001000100010001ull, full = W == 1 ? 0xff : 0xffff;
  static uint64_t spread(uint32_t mask) { return __builtin_ia32_pdep_di(mask & ((1u << lanes) - 1), each) * full; }
  static void keep(const uint8_t *in, uint32_t mask, uint8_t *out, uint32_t &at) {
    for (uint32_t k = 0; k < 8; k += lanes, mask >>= lanes) {
      const uint64_t held = spread(mask);
      write<uint64_t>(out + at * W, __builtin_ia32_pext_di(read<uint64_t>(in + k * W), held));
      at += uint32_t(__builtin_popcountll(held)) / (8 * W);
    }
  }
  template <class Rule> static void restore(const uint8_t *in, uint32_t mask, uint8_t *out, uint32_t &at, word_of<W> &last) {
    for (uint32_t k = 0; k < 8; k += lanes, mask >>= lanes) {
      uint64_t held = spread(mask), x = __builtin_ia32_pdep_di(read<uint64_t>(in + at * W), held);
      at += uint32_t(__builtin_popcountll(held)) / (8 * W);
      if constexpr (Rule::looks_back) {  // what is not kept is filled from below, 1, 2 and 4 words away
        x |= last & ~held & full;
        held |= full;
        for (uint32_t step = 8 * W; step < 64; step *= 2) {
          x |= x << step & ~held;
          held |= held << step;
        }
        last = word_of<W>(x >> (64 - 8 * W));
      }
      write<uint64_t>(out + k * W, x);
    }
  }
};
#else
#define BRIQUETTE_LC_GATHER 0
#endif

#if BRIQUETTE_HOST && defined(__AVX512VBMI2__) && defined(__GNUC__) && !defined(__clang__)  // 64 bytes at once, where processors have that
#define BRIQUETTE_LC_EXPAND 1
typedef char Bytes64 __attribute__((vector_size(64)));
/// Write those of 64 bytes that `bits` marks, one after another; what is written behind them means nothing.
inline void compress64(const uint8_t *in, uint64_t bits, uint8_t *out) {
  Bytes64 x;
  memcpy(&x, in, 64);
  x = (Bytes64)__builtin_ia32_compressqi512_mask(x, Bytes64{}, bits);
  memcpy(out, &x, 64);
}
/// Put bytes where `bits` marks them, zeros elsewhere; reads 64.
inline void expand64(const uint8_t *in, uint64_t bits, uint8_t *out) {
  Bytes64 x;
  memcpy(&x, in, 64);
  x = (Bytes64)__builtin_ia32_expandqi512_maskz(x, Bytes64{}, bits);
  memcpy(out, &x, 64);
}
#else
#define BRIQUETTE_LC_EXPAND 0
#endif

/// Write the words that a bitmap marks one after another, exactly `total` of them; for a lone lane.
template <int W> __device__ inline void keep_words(const uint8_t *in, const uint8_t *bitmap, uint32_t count, uint8_t *out, uint32_t total) {
  typedef word_of<W> U;
  uint32_t at = 0;
  for (uint32_t i = 0; i < count && at < total; i += 64) {
    uint64_t bits = read<uint64_t>(bitmap + i / 8);  // bitmaps are rounded up to 16 bytes
#if BRIQUETTE_LC_EXPAND
    if constexpr (W == 1) {
      if (at + 64 <= total && i + 64 <= count) {
        compress64(in + i, bits, out + at);
        at += uint32_t(__builtin_popcountll(bits));
        continue;
      }
    }
#endif
#if BRIQUETTE_LC_GATHER
    if constexpr (Gather<W>::usable) {
      if (bits == 0) continue;
      if (at + 64 <= total && i + 64 <= count) {
        for (uint32_t k = 0; k < 64; k += 8) Gather<W>::keep(in + (i + k) * W, uint32_t(bits >> k & 255), out, at);
        continue;
      }
    }
#endif
    for (uint32_t first = i; bits; bits >>= 8, first += 8) {
      const uint32_t mask = uint32_t(bits & 255);
      if (mask == 0) continue;
      if (mask == 255) {
        memcpy(out + at * W, in + first * W, 8 * W);
        at += 8;
      } else if (at + 8 <= total && first + 8 <= count) {
        for (int k = 0; k < 8; k++) {
          put_item<U>(out, at, item<U>(in, first + k));
          at += mask >> k & 1;
        }
      } else {
        for (int k = 0; k < 8; k++) if (mask >> k & 1) put_item<U>(out, at++, item<U>(in, first + k));
      }
    }
  }
}

/// Put `total` kept words where a bitmap marks them and fill in what was eliminated; for a lone lane.
template <int W, class Rule> __device__ inline void restore_words(const uint8_t *in, uint32_t total, const uint8_t *bitmap, uint32_t count, uint8_t *out) {
  typedef word_of<W> U;
  uint32_t at = 0;
  U held = 0;
  for (uint32_t i = 0; i < count; i += 64) {
    uint64_t bits = read<uint64_t>(bitmap + i / 8);
    if (bits == 0 && i + 64 <= count) {
      for (int k = 0; k < 64; k++) put_item<U>(out, i + k, held);
      continue;
    }
#if BRIQUETTE_LC_EXPAND
    if constexpr (W == 1 && !Rule::looks_back) {
      if (at + 64 <= total && i + 64 <= count) {
        expand64(in + at, bits, out + i);
        at += uint32_t(__builtin_popcountll(bits));
        continue;
      }
    }
#endif
#if BRIQUETTE_LC_GATHER
    if constexpr (Gather<W>::usable) {
      if (at + 64 <= total && i + 64 <= count) {
        for (uint32_t k = 0; k < 64; k += 8) Gather<W>::template restore<Rule>(in, uint32_t(bits >> k & 255), out + (i + k) * W, at, held);
        continue;
      }
    }
#endif
    for (uint32_t first = i; first < i + 64 && first < count; bits >>= 8, first += 8) {
      const uint32_t mask = uint32_t(bits & 255);
      if (mask == 255) {
        memcpy(out + first * W, in + at * W, 8 * W);
        at += 8;
        if constexpr (Rule::looks_back) held = item<U>(in, at - 1);
      } else if (at + 8 <= total && first + 8 <= count) {
        for (int k = 0; k < 8; k++) {
          const U kept = item<U>(in, at);
          const uint32_t bit = mask >> k & 1;
          const U x = bit ? kept : held;
          if constexpr (Rule::looks_back) held = x;
          put_item<U>(out, first + k, x);
          at += bit;
        }
      } else {
        for (uint32_t k = 0; k < 8 && first + k < count; k++) {
          const bool bit = mask >> k & 1;
          const U x = bit ? item<U>(in, at) : held;
          at += bit;
          if constexpr (Rule::looks_back) held = x;
          put_item<U>(out, first + k, x);
        }
      }
    }
  }
}
#undef BRIQUETTE_LC_GATHER
#undef BRIQUETTE_LC_EXPAND

}  // namespace briquette_lc
