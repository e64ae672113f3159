// Bit-packed runs: values of one width one after another, padded with zero bits to whole 32-bit words.
// Role: shared by the coders of this pack that pack bits.
// Requires: words.cuh; runs that begin at a multiple of 4 bytes.
// Source: fixed-width packing as in CLOG of the LC framework (Azami, Fallin, Burtscher, ASPLOS 2025); layout in docs/format.md.
#pragma once
#include <briquette_lc/cuda/words.cuh>

namespace briquette_lc {

__device__ __forceinline__ uint32_t packed_bytes(uint32_t count, uint32_t width) { return (count * width + 31) / 32 * 4; }
template <class U> __device__ __forceinline__ U low_bits(uint32_t width) { return width >= sizeof(U) * 8 ? U(~U(0)) : U((U(1) << width) - 1); }

/// Writes values one after another, for a lone lane.
template <class U> struct Packer {
  uint8_t *out;
  uint64_t held;
  uint32_t bits;
  __device__ __forceinline__ explicit Packer(uint8_t *to) : out(to), held(0), bits(0) {}
  /// Append a value below 2^width.
  __device__ __forceinline__ void put(U x, uint32_t width) {
    if constexpr (sizeof(U) == 8) {
      half(uint32_t(x), width < 32 ? width : 32);
      if (width > 32) half(uint32_t(x >> 32), width - 32);
    } else half(uint32_t(x), width);
  }
  __device__ __forceinline__ void finish() { if (bits) write<uint32_t>(out, uint32_t(held)); }

 private:
  __device__ __forceinline__ void half(uint32_t x, uint32_t width) {
    held |= uint64_t(x) << bits;
    bits += width;
    if (bits >= 32) {
      write<uint32_t>(out, uint32_t(held));
      out += 4;
      held >>= 32;
      bits -= 32;
    }
  }
};

/// Write the run of `value(i)`, each below 2^width, for i below count: word j of it by the lane `first` with j = first modulo `step`.
template <class U, class G, class Value> __device__ __forceinline__ void pack_run(uint32_t count, uint32_t width, uint8_t *out, uint32_t first, uint32_t step, Value value) {
  if (width == 0) return;
  if constexpr (alone<G>) {
    Packer<U> packer(out);
    for (uint32_t i = 0; i < count; i++) packer.put(value(i), width);
    packer.finish();
  } else {
    const uint32_t words = packed_bytes(count, width) / 4;
    for (uint32_t j = first; j < words; j += step) {
      uint32_t i = 32 * j / width;
      const uint32_t shift = 32 * j - i * width;
      uint32_t word = uint32_t(value(i) >> shift);
      for (uint32_t bits = width - shift; bits < 32 && ++i < count; bits += width) word |= uint32_t(value(i)) << bits;
      put_item<uint32_t>(out, j, word);
    }
  }
}

/// Value i of a run; reads no word beyond the one that its last bit is in.
template <class U> __device__ __forceinline__ U packed_value(const uint8_t *in, uint32_t i, uint32_t width) {
  if (width == 0) return U(0);
  const uint32_t bit = i * width, word = bit >> 5, shift = bit & 31;
  uint64_t held = item<uint32_t>(in, word);
  if (shift + width > 32) held |= uint64_t(item<uint32_t>(in, word + 1)) << 32;
  held >>= shift;
  if constexpr (sizeof(U) == 8) { if (shift + width > 64) held |= uint64_t(item<uint32_t>(in, word + 2)) << (64 - shift); }
  return U(U(held) & low_bits<U>(width));
}

/// Whether the bits behind a run are zero.
__device__ __forceinline__ bool run_ends_clean(const uint8_t *in, uint32_t count, uint32_t width) {
  const uint32_t bits = count * width;
  return (bits & 31) == 0 || item<uint32_t>(in, bits >> 5) >> (bits & 31) == 0;
}

}  // namespace briquette_lc
