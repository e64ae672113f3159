// Bit transposition of many matrices at once on the host: vectors hold the same row of several, so that no bit changes lane.
// Role: none; the one-lane form of bit_shuffle.cuh.
// Requires: a host compiler; vectors where it is GCC.
// Source: Warren, Hacker's Delight, section 7-3; vectors across matrices as in bitshuffle (Masui et al., 2015).
#pragma once
#include <briquette_warp/cuda/policy.cuh>

#if BRIQUETTE_HOST
namespace briquette_transforms {

/// Exchange the lower bits of row `a` with the upper bits of row `b`, which is `step` rows further.
template <class V, class U> static inline __attribute__((always_inline)) void swap_bits(V &a, V &b, int step, U mask) {
  const V t = ((a >> step) ^ b) & mask;
  b ^= t;
  a ^= t << step;
}
template <class U> static constexpr U swap_mask(int step) {
  U mask = U(~U(0));
  for (int s = int(sizeof(U) * 4); s >= step; s /= 2) mask = U(mask ^ U(mask << s));
  return mask;
}

/// One matrix after another, from group `first` on.
template <bool Forward, class U> static void bit_shuffle_plain(const U *x, U *y, uint32_t groups, uint32_t first) {
  constexpr int B = int(sizeof(U) * 8);
  for (uint32_t g = first; g < groups; g++) {
    U row[B];
    for (int i = 0; i < B; i++) row[i] = Forward ? x[g * B + i] : x[(B - 1 - i) * groups + g];
    for (int step = B / 2; step; step /= 2)
      for (int block = 0; block < B; block += 2 * step)
        for (int i = block; i < block + step; i++) swap_bits(row[i], row[i + step], step, swap_mask<U>(step));
    for (int i = 0; i < B; i++) (Forward ? y[(B - 1 - i) * groups + g] : y[g * B + i]) = row[i];
  }
}

#if defined(__GNUC__) && !defined(__clang__)
/// L vectors of L words: word j of vector i becomes word i of vector j.
template <class V, class U, int L> static inline __attribute__((always_inline)) void transpose_words(V (&v)[L]) {
#pragma GCC unroll 5
  for (int step = L / 2; step; step /= 2) {
    V low, high;
    for (int k = 0; k < L; k++) {
      low[k] = U(k & step ? L + k - step : k);
      high[k] = U(k & step ? L + k : k + step);
    }
#pragma GCC unroll 16
    for (int i = 0; i < L; i++) {
      if (i & step) continue;
      const V a = v[i], b = v[i + step];
      v[i] = __builtin_shuffle(a, b, low);
      v[i + step] = __builtin_shuffle(a, b, high);
    }
  }
}

/// L groups at a time, L words a vector: rows of one block of L first, then those of the same place in all blocks.
template <bool Forward, class U> __attribute__((noinline)) static uint32_t bit_shuffle_vectors(const U *x, U *y, uint32_t groups) {
  constexpr int B = int(sizeof(U) * 8), L = int(32 / sizeof(U)), blocks = B / L;
  typedef U V __attribute__((vector_size(32)));
  typedef U Loose __attribute__((vector_size(32), aligned(1), may_alias));
  uint32_t g = 0;
  for (; g + L <= groups; g += L) {
    alignas(64) V held[B];
    auto across = [&]() {
      for (int j = 0; j < L; j++) {
        V v[blocks];
        if (Forward) for (int q = 0; q < blocks; q++) v[q] = held[q * L + j];
        else for (int q = 0; q < blocks; q++) v[q] = V(*reinterpret_cast<const Loose *>(x + (B - 1 - (q * L + j)) * groups + g));
#pragma GCC unroll 4
        for (int step = blocks / 2; step; step /= 2)
#pragma GCC unroll 16
          for (int q = 0; q < blocks; q++)
            if (!(q & step)) swap_bits(v[q], v[q + step], step * L, swap_mask<U>(step * L));
        if (Forward) for (int q = 0; q < blocks; q++) *reinterpret_cast<Loose *>(y + (B - 1 - (q * L + j)) * groups + g) = Loose(v[q]);
        else for (int q = 0; q < blocks; q++) held[q * L + j] = v[q];
      }
    };
    auto within = [&]() {
      for (int q = 0; q < blocks; q++) {
        V v[L];
        if (Forward) {
          for (int k = 0; k < L; k++) v[k] = V(*reinterpret_cast<const Loose *>(x + (g + k) * B + q * L));
          transpose_words<V, U, L>(v);
        } else for (int k = 0; k < L; k++) v[k] = held[q * L + k];
#pragma GCC unroll 4
        for (int step = L / 2; step; step /= 2)
#pragma GCC unroll 16
          for (int k = 0; k < L; k++)
            if (!(k & step)) swap_bits(v[k], v[k + step], step, swap_mask<U>(step));
        if (Forward) for (int k = 0; k < L; k++) held[q * L + k] = v[k];
        else {
          transpose_words<V, U, L>(v);
          for (int k = 0; k < L; k++) *reinterpret_cast<Loose *>(y + (g + k) * B + q * L) = Loose(v[k]);
        }
      }
    };
    if (Forward) { within(); across(); }
    else { across(); within(); }
  }
  return g;
}
#endif

/// Bytes: a group is 8 of them, a matrix of 8 x 8 bits in one number; eight such make a plane's numbers of 8 bytes.
template <bool Forward> static inline uint32_t bit_shuffle_bytes(const uint8_t *x, uint8_t *y, uint32_t groups) {
  uint32_t g = 0;
  for (; g + 8 <= groups; g += 8) {
    uint64_t a[8];
    for (int k = 0; k < 8; k++) memcpy(&a[k], Forward ? x + (g + k) * 8 : x + (7 - k) * groups + g, 8);
    for (int half = 0; half < 2; half++) {
      if ((half == 0) == Forward) {
        for (int k = 0; k < 8; k++) {
          uint64_t t = (a[k] ^ a[k] >> 7) & 0x00aa00aa00aa00aaull;
          a[k] ^= t ^ t << 7;
          t = (a[k] ^ a[k] >> 14) & 0x0000cccc0000ccccull;
          a[k] ^= t ^ t << 14;
          t = (a[k] ^ a[k] >> 28) & 0x00000000f0f0f0f0ull;
          a[k] ^= t ^ t << 28;
        }
      } else {
        for (int k = 0; k < 4; k++) swap_bits(a[k], a[k + 4], 32, 0x00000000ffffffffull);
        for (int k = 0; k < 8; k++) if (!(k & 2)) swap_bits(a[k], a[k + 2], 16, 0x0000ffff0000ffffull);
        for (int k = 0; k < 8; k += 2) swap_bits(a[k], a[k + 1], 8, 0x00ff00ff00ff00ffull);
      }
    }
    for (int k = 0; k < 8; k++) memcpy(Forward ? y + (7 - k) * groups + g : y + (g + k) * 8, &a[k], 8);
  }
  return g;
}

/// All groups of a chunk.
template <bool Forward, class U> static inline void bit_shuffle_host(const U *x, U *y, uint32_t groups) {
  uint32_t done = 0;
  if constexpr (sizeof(U) == 1) done = bit_shuffle_bytes<Forward>(x, y, groups);
#if defined(__GNUC__) && !defined(__clang__)
  if constexpr (sizeof(U) > 1) done = bit_shuffle_vectors<Forward>(x, y, groups);
#endif
  bit_shuffle_plain<Forward>(x, y, groups, done);
}

}  // namespace briquette_transforms
#endif
