// Bitmaps of a chunk's words, coded by eliminating repeated bytes level by level.
// Role: shared by the coders of this pack that eliminate words.
// Requires: words.cuh; scratch of `room` bytes, aligned to 16, whose first bytes are the bitmap as mark_words leaves it.
// Source: the recursive bitmap of RZE and RRE in the LC framework (Azami, Fallin, Burtscher, ASPLOS 2025); layout in docs/format.md.
#pragma once
#include <briquette_lc/cuda/words.cuh>

namespace briquette_lc {

/// What is known of a bitmap once its levels are made.
struct BitmapSums {
  uint32_t kept[5];  // bits set in level l: the kept words, then the kept bytes of the level before
  uint32_t depth;    // levels that are stored
  uint32_t size;     // bytes of the coded bitmap
};

/// A bitmap of at most N bits, N a multiple of 512; L levels of elimination, or -1: chosen for each chunk.
/// Level 0 is the bitmap, level l + 1 marks the bytes of level l that differ from the one before; with a lag, level 1 marks those
/// that differ from the one `Lag` before, and what is kept of level 0 is by which bits they do.
template <int N, int L, int Lag = 0> struct Bitmap {
  static constexpr int deepest = 4;
  static constexpr int most = L < 0 ? deepest : L;
  static constexpr int head = L < 0 ? 1 : 0;

  __device__ static constexpr uint32_t bytes(uint32_t bits, int level) { return (bits + (8u << 3 * level) - 1) >> (3 * level + 3); }

  // where levels lie in scratch: constants, so that nothing is left to compute where loops over levels are unrolled
  static constexpr uint32_t end0 = round_up(bytes(N, 0), 16), end1 = end0 + round_up(bytes(N, 1), 16), end2 = end1 + 32, end3 = end2 + 16, end4 = end3 + 16;
  static_assert(bytes(N, 2) <= 32, "level 2 has at most 8 words");
  __device__ static constexpr uint32_t place(int level) { return level == 0 ? 0u : level == 1 ? end0 : level == 2 ? end1 : level == 3 ? end2 : end3; }
  __device__ static constexpr uint32_t counts(int level) { return end4 + (level ? N / 32 * 2 : 0); }  // u16 a word, levels 0 and 1
  static constexpr uint32_t differences = round_up(counts(1) + round_up(N / 256, 2) * 2, 16);
  static constexpr int room = int(differences + (Lag && L ? end0 : 0));

  __device__ __forceinline__ static uint32_t word_of_level(const uint8_t *room, int level, uint32_t w) { return item<uint32_t>(room + place(level), w); }

  /// Bits set in a level before its word `w`, where level 2 and those above have no more than 8 words.
  __device__ __forceinline__ static uint32_t before(const uint8_t *room, int level, uint32_t w) {
    if (level < 2) return item<uint16_t>(room + counts(level), w);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < w; i++) sum += ones(word_of_level(room, level, i));
    return sum;
  }
  /// Bits set in a level before bit i.
  __device__ __forceinline__ static uint32_t rank(const uint8_t *room, int level, uint32_t i) {
    return before(room, level, i >> 5) + ones(word_of_level(room, level, i >> 5) & ((1u << (i & 31)) - 1));
  }
  __device__ __forceinline__ static bool marked(const uint8_t *room, int level, uint32_t i) { return word_of_level(room, level, i >> 5) >> (i & 31) & 1; }

  /// Count the bits of levels 0 and 1, each only if asked for, so that `rank` knows them; totals in the lower and upper 16 bits.
  template <bool First, bool Second, class G> __device__ __forceinline__ static uint32_t count(uint8_t *room, uint32_t bits, G g) {
    constexpr uint32_t B0 = (N / 32 + G::size - 1) / G::size, B1 = ((N + 255) / 256 + G::size - 1) / G::size;
    const uint32_t words0 = (bits + 31) / 32, words1 = (bytes(bits, 0) + 31) / 32;
    uint32_t mine = 0, total;
    if constexpr (First)
      for (uint32_t k = 0, w = g.rank() * B0; k < B0 && w < words0; k++, w++) mine += ones(word_of_level(room, 0, w));
    if constexpr (Second)
      for (uint32_t k = 0, w = g.rank() * B1; k < B1 && w < words1; k++, w++) mine += ones(word_of_level(room, 1, w)) << 16;
    uint32_t sum = g.exclusive_sum(mine, total);
    if constexpr (First) {
      uint32_t at = sum & 0xffff;
      for (uint32_t k = 0, w = g.rank() * B0; k < B0 && w < words0; k++, w++) {
        put_item<uint16_t>(room + counts(0), w, uint16_t(at));
        at += ones(word_of_level(room, 0, w));
      }
    }
    if constexpr (Second) {
      uint32_t at = sum >> 16;
      for (uint32_t k = 0, w = g.rank() * B1; k < B1 && w < words1; k++, w++) {
        put_item<uint16_t>(room + counts(1), w, uint16_t(at));
        at += ones(word_of_level(room, 1, w));
      }
    }
    g.sync();
    return total;
  }
  __device__ __forceinline__ static uint32_t count_alone(const uint8_t *level, uint32_t bytes) {  // zero bits follow
    uint32_t sum = 0;
    for (uint32_t w = 0; w < (bytes + 3) / 4; w++) sum += ones(item<uint32_t>(level, w));
    return sum;
  }

  /// Make the levels over a bitmap of `bits` bits and see what the coded bitmap takes. Begins with a barrier and may end with one.
  template <class G> __device__ __forceinline__ static BitmapSums measure(uint8_t *room, uint32_t bits, G g) {
    BitmapSums s{};
    if constexpr (alone<G>) {
      for (int l = 1; l <= most; l++) {
        if (Lag && l == 1) {
          const uint32_t size = bytes(bits, 0);
          uint32_t i = 0;
          if constexpr (Lag >= 8) {
            for (; i < size && i < uint32_t(Lag); i += 8) write<uint64_t>(room + differences + i, read<uint64_t>(room + i));
            for (; i < size; i += 8) write<uint64_t>(room + differences + i, read<uint64_t>(room + i) ^ read<uint64_t>(room + i - Lag));
          }
          for (; i < size; i += 4) write<uint32_t>(room + differences + i, difference(room, i));
          mark_words<1, Zeros>(room + differences, size, 0, room + place(1), g);
        } else mark_words<1, Repeats>(room + place(l - 1), bytes(bits, l - 1), 0, room + place(l), g);
      }
    } else if constexpr (most > 0) {
      g.sync();
      if constexpr (Lag > 0) mark_differences(room, bytes(bits, 0), g);
      else mark_words<1, Repeats>(room, bytes(bits, 0), 0, room + place(1), g);
      if constexpr (most > 1) {
        g.sync();
        mark_upper(room, bits, g);
      }
    }
    g.sync();
    if constexpr (alone<G>) {
      for (int l = 0; l <= most; l++) s.kept[l] = count_alone(room + place(l), bytes(bits, l));
    } else {
      const uint32_t totals = count<true, (most > 0)>(room, bits, g);
      s.kept[0] = totals & 0xffff;
      if constexpr (most > 0) s.kept[1] = totals >> 16;
      BRIQUETTE_UNROLL
      for (int l = 2; l <= most; l++) s.kept[l] = count_alone(room + place(l), bytes(bits, l));
    }
    if constexpr (L >= 0) {
      s.depth = L;
      s.size = bytes(bits, L);
      for (int l = 1; l <= L; l++) s.size += s.kept[l];
    } else {
      uint32_t kept = 0;
      s.depth = 0;
      s.size = bytes(bits, 0);
      BRIQUETTE_UNROLL
      for (int l = 1; l <= most; l++) {
        kept += s.kept[l];
        const uint32_t size = bytes(bits, l) + kept;
        if (size < s.size) { s.size = size; s.depth = uint32_t(l); }
      }
      s.size += 1;
    }
    return s;
  }

  /// Write the coded bitmap, `s.size` bytes.
  template <class G> __device__ __forceinline__ static void store(const uint8_t *room, uint32_t bits, const BitmapSums &s, uint8_t *out, G g) {
    if constexpr (head) { if (g.rank() == 0) out[0] = uint8_t(s.depth); }
    uint32_t at = head;
    BRIQUETTE_UNROLL
    for (int l = most; l >= 0; l--) {
      if (uint32_t(l) > s.depth) continue;
      const uint32_t size = bytes(bits, l);
      const uint8_t *from = room + (Lag && l == 0 && s.depth ? differences : place(l));
      if (uint32_t(l) == s.depth) {
        for (uint32_t i = g.rank(); i < size; i += G::size) out[at + i] = from[i];
        at += size;
      } else {
        const uint32_t kept = s.kept[l + 1];
        if constexpr (alone<G>) keep_words<1>(from, room + place(l + 1), size, out + at, kept);
        else {
          for (uint32_t i = g.rank(); i < size; i += G::size)
            if (marked(room, l + 1, i)) out[at + rank(room, l + 1, i)] = from[i];
        }
        at += kept;
      }
    }
  }

  /// The bits in which four bytes of level 0 differ from those `Lag` before.
  __device__ __forceinline__ static uint32_t difference(const uint8_t *room, uint32_t i) {
    const uint32_t x = read<uint32_t>(room + i);
    if constexpr (Lag >= 4) return i < uint32_t(Lag) ? x : x ^ read<uint32_t>(room + i - Lag);
    else return x ^ (x << 8 * Lag | (i ? read<uint32_t>(room + i - 4) >> (32 - 8 * Lag) : 0u));
  }
  /// Write them, and which of `size` bytes differ, with zero bits up to a multiple of 16 bytes.
  template <class G> __device__ __forceinline__ static void mark_differences(uint8_t *room, uint32_t size, G g) {
    const uint32_t end = round_up((size + 7) / 8, 16);
    for (uint32_t i = g.rank(); i < end; i += G::size) {
      uint32_t marks = 0;
      if (8 * i < size) {  // level 0 is padded to whole words of 16 bytes
        const uint32_t a = difference(room, 8 * i), b = difference(room, 8 * i + 4), there = size - 8 * i;
        write<uint32_t>(room + differences + 8 * i, a);
        write<uint32_t>(room + differences + 8 * i + 4, b);
        marks = (nonzero4(a) | nonzero4(b) << 4) & (there < 8 ? (1u << there) - 1 : 255u);
      }
      room[place(1) + i] = uint8_t(marks);
    }
  }
  /// Levels 2 and above, of which a warp holds all in registers: level 2 has a byte a lane. No barrier, though all lanes come by.
  template <class G> __device__ __forceinline__ static void mark_upper(uint8_t *room, uint32_t bits, G g) {
    const uint32_t size1 = bytes(bits, 1), size2 = bytes(bits, 2), size3 = bytes(bits, 3), lane = g.lane();
    uint32_t mine = 0;
    if (lane < size2) mine = 8 * lane + 8 <= size1 ? marks8<1, Repeats>(room + place(1), lane, 0) : marks_some<1, Repeats>(room + place(1), 8 * lane, size1, 0);
    uint32_t third = 0, fourth = 0;
    if constexpr (most > 2) {
      const uint32_t before = g.shuffle_up(mine, 0u);
      third = g.ballot(lane < size2 && mine != before);
    }
    if constexpr (most > 3) fourth = nonzero4((third ^ third << 8) & (size3 < 4 ? (1u << 8 * size3) - 1 : ~0u));
    if (g.warp() == 0) {
      room[place(2) + lane] = uint8_t(mine);
      if (lane < 4) {
        write<uint32_t>(room + place(3) + 4 * lane, lane ? 0u : third);
        write<uint32_t>(room + place(4) + 4 * lane, lane ? 0u : fourth);
      }
    }
  }
  /// Undo that in place, for `size` bytes.
  template <class G> __device__ __forceinline__ static void add_up(uint8_t *room, uint32_t size, G g) {
    if constexpr (alone<G>) {
      uint32_t i = Lag;
      if constexpr (Lag >= 32) {  // four words of a row under way at once
        for (; i + 32 <= size; i += 32) {
          BRIQUETTE_UNROLL
          for (uint32_t k = i; k < i + 32; k += 8) write<uint64_t>(room + k, read<uint64_t>(room + k) ^ read<uint64_t>(room + k - Lag));
        }
      }
      for (; i < size; i++) room[i] = uint8_t(room[i] ^ room[i - Lag]);
    } else if constexpr (Lag >= 4) {
      for (uint32_t column = 4 * g.rank(); column < uint32_t(Lag); column += 4 * G::size) {
        uint32_t sum = 0;
        for (uint32_t i = column; i < round_up(size, 4); i += Lag) {
          sum ^= read<uint32_t>(room + i);
          write<uint32_t>(room + i, sum);
        }
      }
    } else {
      for (uint32_t column = g.rank(); column < uint32_t(Lag); column += G::size) {
        uint8_t sum = 0;
        for (uint32_t i = column; i < size; i += Lag) room[i] = sum = uint8_t(sum ^ room[i]);
      }
    }
  }

  /// Whether a level holds no bits behind its last.
  __device__ __forceinline__ static bool ends_clean(const uint8_t *level, uint32_t bits) { return (bits & 7) == 0 || level[bits >> 3] >> (bits & 7) == 0; }

  /// Read a coded bitmap from `at` on, which moves behind it, into level 0, and count its bits; false where it is none. Ends with a barrier.
  template <class G> __device__ __forceinline__ static bool load(const uint8_t *in, uint32_t coded, uint32_t &at, uint32_t bits, uint8_t *room, uint32_t &kept, G g) {
    uint32_t depth = uint32_t(most);
    if constexpr (head) {
      if (at >= coded) return false;
      depth = in[at++];
      if (depth > uint32_t(deepest)) return false;
    }
    kept = 0;
    BRIQUETTE_UNROLL
    for (int l = most; l >= 0; l--) {
      if (uint32_t(l) > depth) continue;
      const uint32_t below = l ? bytes(bits, l - 1) : bits, size = bytes(bits, l);  // bits and bytes of this level
      uint8_t *to = room + place(l);
      const uint32_t given = uint32_t(l) == depth ? size : kept;
      if (given > coded - at) return false;
      if (uint32_t(l) == depth) {
        for (uint32_t i = g.rank(); i < round_up(size, 16); i += G::size) to[i] = i < size ? in[at + i] : uint8_t(0);
      } else if constexpr (alone<G>) {
        if (Lag && l == 0) restore_words<1, Zeros>(in + at, given, room + place(1), size, to);
        else restore_words<1, Repeats>(in + at, given, room + place(l + 1), size, to);
        for (uint32_t i = size; i < round_up(size, 16); i++) to[i] = 0;
      } else {
        for (uint32_t i = g.rank(); i < round_up(size, 16); i += G::size) {
          const bool mine = i < size && marked(room, l + 1, i);
          const uint32_t r = i < size && (mine || !(Lag && l == 0)) ? rank(room, l + 1, i) + uint32_t(mine) : 0u;
          to[i] = r ? in[at + r - 1] : uint8_t(0);
        }
      }
      at += given;
      g.sync();
      if constexpr (Lag > 0) {
        if (l == 0 && depth) {
          add_up(to, size, g);
          if (round_up(size, 4) != size && !alone<G>) {  // what was summed behind the last byte
            g.sync();
            if (g.rank() == 0) for (uint32_t i = size; i < round_up(size, 4); i++) to[i] = 0;
          }
          g.sync();
        }
      }
      if (!ends_clean(to, below)) return false;
      if constexpr (alone<G>) kept = count_alone(to, size);
      else if (l == 0) kept = count<true, false>(room, bits, g) & 0xffff;
      else if (l == 1) kept = count<false, true>(room, bits, g) >> 16;
      else kept = count_alone(to, size);
    }
    return true;
  }
};

}  // namespace briquette_lc
