// Run-length coding of one chunk: runs of equal elements, and the elements between them.
// Role: staged kernel of `run-length`, by one lane a chunk.
// Requires: chunk_coder.cuh.
// Source: run-length coding in sections of lengths and values, as in briquette's outliers; the format is in docs/format.md.
#pragma once
#include <briquette_entropy/cuda/chunk_coder.cuh>

namespace briquette_entropy {

struct RunLength {
  static constexpr bool warps = false;
  /// The shortest run that saves more than the word that describes it.
  template <class T> static constexpr uint32_t shortest = 8 / sizeof(T) + 1;

  /// `f(begin, end)` for each run of `shortest` or more; returns how many.
  template <class T, class F> __device__ __forceinline__ static uint32_t each_run(const T *in, uint32_t count, F f) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < count;) {
      const uint32_t begin = i++;
      while (i < count && in[i] == in[begin]) i++;
      if (i - begin >= shortest<T>) { f(begin, i); found++; }
    }
    return found;
  }

  /// Sets element `i` of an array of T that lies in words, whose earlier elements are set.
  template <class T> __device__ __forceinline__ static void set(uint32_t *words, uint32_t i, T value) {
    typedef decltype(Codes<T>::number(value)) U;
    if constexpr (sizeof(T) == 8) { words[2 * i] = uint32_t(U(value)); words[2 * i + 1] = uint32_t(U(value) >> 32); }
    else if constexpr (sizeof(T) == 4) words[i] = uint32_t(value);
    else {
      constexpr uint32_t each = 4 / sizeof(T), bits = 8 * sizeof(T);
      const uint32_t part = (uint32_t(value) & (0xffffffffu >> (32 - bits))) << (bits * (i % each));
      words[i / each] = i % each ? words[i / each] | part : part;
    }
  }
  template <class T> __device__ __forceinline__ static T get(const uint32_t *words, uint32_t i) {
    if constexpr (sizeof(T) == 8) return T(uint64_t(words[2 * i + 1]) << 32 | words[2 * i]);
    else if constexpr (sizeof(T) == 4) return T(words[i]);
    else { constexpr uint32_t each = 4 / sizeof(T); return T(words[i / each] >> (8 * sizeof(T) * (i % each))); }
  }

  template <class T>
  __device__ __forceinline__ static uint32_t encode(const T *in, uint32_t count, uint32_t *out, uint32_t whole, const uint32_t *, uint32_t) {
    uint32_t covered = 0;
    const uint32_t found = each_run(in, count, [&](uint32_t begin, uint32_t end) { covered += end - begin - 1; });
    const uint32_t size = 1 + found + stored_words<T>(count - covered);
    if (size >= whole) return whole;
    uint32_t *const values = out + 1 + found;
    uint32_t run = 0, at = 0, kept = 0;
    out[0] = found;
    each_run(in, count, [&](uint32_t begin, uint32_t end) {
      out[1 + run++] = (begin - at) | (end - begin - 1) << 16;
      for (; at <= begin; at++) set(values, kept++, in[at]);
      at = end;
    });
    for (; at < count; at++) set(values, kept++, in[at]);
    return size;
  }

  template <class T>
  __device__ __forceinline__ static bool decode(const uint32_t *in, uint32_t words, T *out, uint32_t count, const uint32_t *, uint32_t) {
    const uint32_t found = in[0];
    if (found >= words) return false;
    uint64_t before = 0, covered = 0;
    for (uint32_t k = 1; k <= found; k++) { before += (in[k] & 0xffff) + 1; covered += in[k] >> 16; }
    if (before + covered > count || 1 + found + stored_words<T>(uint32_t(count - covered)) != words) return false;
    const uint32_t *const values = in + 1 + found;
    uint32_t at = 0, kept = 0;
    for (uint32_t k = 1; k <= found; k++) {
      for (uint32_t left = in[k] & 0xffff; left; left--) out[at++] = get<T>(values, kept++);
      const T value = get<T>(values, kept++);
      for (uint32_t left = (in[k] >> 16) + 1; left; left--) out[at++] = value;
    }
    while (at < count) out[at++] = get<T>(values, kept++);
    if constexpr (sizeof(T) < 4) {
      for (; kept % (4 / sizeof(T)); kept++) if (get<T>(values, kept) != T(0)) return false;
    }
    return true;
  }
};

}  // namespace briquette_entropy
