// The outliers side stream of one archive chunk, on the host: positions and values, each in its smallest form.
// Role: a harness primitive for heads that keep values aside.
// Requires: chunks of at most 65,536 elements.
// Source: docs/format.md, "Outliers".
#pragma once
#include <briquette_warp/cuda/policy.cuh>

namespace briquette {

static inline uint32_t words_for(uint64_t bytes) { return uint32_t((bytes + 3) / 4); }

/// Most words a chunk of m elements of `item` bytes can take.
static inline uint32_t most_outlier_words(uint64_t m, uint64_t item) { return 1 + words_for(2 * m) + words_for(item * m) + 2; }

/// Write the chunk's outliers; `at` are ascending positions, `value` their bits. Returns the words written.
template <class B> __attribute__((noinline)) static uint32_t encode_outliers(const uint16_t *at, const B *value, uint32_t count, uint32_t elements, uint32_t *out) {
  if (!count) return 0;
  uint32_t spans = 1, equals = 1;
  for (uint32_t i = 1; i < count; i++) { spans += at[i] != at[i - 1] + 1; equals += value[i] != value[i - 1]; }
  const uint32_t position_words[3] = {words_for(2ull * count), words_for((elements + 7) / 8), 1 + spans};
  uint32_t form = 0;
  for (uint32_t f = 1; f < 3; f++) if (position_words[f] < position_words[form]) form = f;
  const uint32_t each = words_for(uint64_t(sizeof(B)) * count), runs = 1 + words_for(2ull * equals) + words_for(uint64_t(sizeof(B)) * equals);
  const bool repeat = runs < each;
  uint32_t *p = out;
  *p++ = count | form << 28 | uint32_t(repeat) << 30;
  memset(p, 0, 4ull * position_words[form]);
  if (form == 0) memcpy(p, at, 2ull * count);
  else if (form == 1) for (uint32_t i = 0; i < count; i++) p[at[i] >> 5] |= 1u << (at[i] & 31);
  else {
    uint32_t k = 0;
    p[0] = spans;
    for (uint32_t i = 0; i < count; k++) {
      uint32_t end = i + 1;
      while (end < count && at[end] == at[end - 1] + 1) end++;
      p[1 + k] = at[i] | (end - i - 1) << 16;
      i = end;
    }
  }
  p += position_words[form];
  if (!repeat) { p[each - 1] = 0; memcpy(p, value, sizeof(B) * count); return uint32_t(p + each - out); }
  memset(p, 0, 4ull * runs);
  p[0] = equals;
  uint8_t *length = reinterpret_cast<uint8_t *>(p + 1), *kept = reinterpret_cast<uint8_t *>(p + 1 + words_for(2ull * equals));
  for (uint32_t i = 0, k = 0; i < count; k++) {
    uint32_t end = i + 1;
    while (end < count && value[end] == value[i]) end++;
    const uint16_t less = uint16_t(end - i - 1);
    memcpy(length + 2 * k, &less, 2);
    memcpy(kept + sizeof(B) * k, &value[i], sizeof(B));
    i = end;
  }
  return uint32_t(p + runs - out);
}

/// Write the values of a chunk's outliers over `x` (unaligned memory of `elements` values). False: damaged.
template <class B> __attribute__((noinline)) static bool restore_outliers(const uint32_t *in, uint32_t words, uint32_t elements, uint8_t *x) {
  if (!words) return true;
  const uint32_t count = in[0] & 0x0fffffffu, form = in[0] >> 28 & 3, values = in[0] >> 30;
  if (!count || count > elements || form > 2 || values > 1) return false;
  const uint32_t *position = in + 1;
  uint32_t position_words = form == 0 ? words_for(2ull * count) : words_for((elements + 7) / 8);
  if (form == 2) {
    if (words < 2 || !position[0] || position[0] > count) return false;
    position_words = 1 + position[0];
  }
  if (words < 1 + uint64_t(position_words)) return false;
  if (form == 0 && count & 1 && position[position_words - 1] >> 16) return false;  // padding is zero
  const uint32_t *value = position + position_words;
  const uint64_t left = words - 1 - position_words;
  const uint8_t *length = 0, *bits = reinterpret_cast<const uint8_t *>(value);
  uint32_t equals = count;
  if (values == 1) {
    if (!left || !value[0] || value[0] > count) return false;
    equals = value[0];
    if (left != 1 + uint64_t(words_for(2ull * equals)) + words_for(uint64_t(sizeof(B)) * equals)) return false;
    if (equals & 1 && value[words_for(2ull * equals)] >> 16) return false;
    length = reinterpret_cast<const uint8_t *>(value + 1);
    bits = reinterpret_cast<const uint8_t *>(value + 1 + words_for(2ull * equals));
    uint64_t total = 0;
    for (uint32_t k = 0; k < equals; k++) { uint16_t less; memcpy(&less, length + 2 * k, 2); total += less + 1u; }
    if (total != count) return false;
  } else if (left != words_for(uint64_t(sizeof(B)) * count)) return false;
  if (sizeof(B) == 2 && equals & 1 && position[position_words + left - 1] >> 16) return false;
  uint32_t run = 0, run_left = 0, i = 0;
  B now = 0;
  auto put = [&](uint32_t where) {
    if (!length) memcpy(&now, bits + sizeof(B) * i, sizeof(B));
    else if (!run_left) { uint16_t less; memcpy(&less, length + 2 * run, 2); run_left = less + 1u; memcpy(&now, bits + sizeof(B) * run, sizeof(B)); run++; }
    if (length) run_left--;
    memcpy(x + sizeof(B) * uint64_t(where), &now, sizeof(B));
    i++;
  };
  if (form == 0) {
    int32_t before = -1;
    const uint8_t *p = reinterpret_cast<const uint8_t *>(position);
    for (uint32_t k = 0; k < count; k++) {
      uint16_t where;
      memcpy(&where, p + 2 * k, 2);
      if (int32_t(where) <= before || where >= elements) return false;
      before = where;
      put(where);
    }
  } else if (form == 1) {
    uint32_t found = 0;
    for (uint32_t w = 0; w < position_words; w++) found += uint32_t(__builtin_popcount(position[w]));
    if (found != count || (elements & 31 && position[position_words - 1] >> (elements & 31))) return false;
    for (uint32_t w = 0; w < position_words; w++)
      for (uint32_t rest = position[w]; rest; rest &= rest - 1) put(32 * w + uint32_t(__builtin_ctz(rest)));
  } else {
    uint64_t total = 0;
    int64_t before = -1;
    for (uint32_t k = 0; k < position[0]; k++) {
      const uint32_t start = position[1 + k] & 0xffff, size = (position[1 + k] >> 16) + 1;
      if (int64_t(start) <= before || start + size > elements) return false;
      before = int64_t(start) + size - 1;
      total += size;
    }
    if (total != count) return false;
    for (uint32_t k = 0; k < position[0]; k++) {
      const uint32_t start = position[1 + k] & 0xffff, size = (position[1 + k] >> 16) + 1;
      for (uint32_t j = 0; j < size; j++) put(start + j);
    }
  }
  return true;
}

}  // namespace briquette
