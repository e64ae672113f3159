// CLOG and HCLOG: 32 subchunks, each packed with as many bits a word as its largest word needs.
// Role: SEGMENT_CODEC over a byte-chunk.
// Requires: chunks of 4096, 8192 or 16384 bytes.
// Source: CLOG and HCLOG of the LC framework (Azami, Fallin, Burtscher, ASPLOS 2025); layout in docs/format.md.
#pragma once
#include <briquette_lc/cuda/packing.cuh>

namespace briquette_lc {

/// W bytes a word; Folds: signs may be folded into the lowest bit of a subchunk's words first.
template <int W, bool Folds> struct SubchunkPacking {
  typedef word_of<W> U;
  static constexpr uint32_t subchunks = 32, parts = 8, folded = 0x80;
  static constexpr uint32_t widths = 0, offsets = 32;  // in words of scratch; then the parts' bits, folded ones behind the others
  static constexpr uint32_t sums = 4 * 72;             // in bytes

  __device__ static constexpr int scratch_bytes(int) { return int(sums + 2 * subchunks * parts * W); }

  template <int BYTES, class G> __device__ static uint32_t encode(const uint8_t *in, uint8_t *out, uint32_t bytes, uint8_t *scratch, G g) {
    const uint32_t count = bytes / W, rest = bytes - count * W;
    uint32_t *words = reinterpret_cast<uint32_t *>(scratch);
    if constexpr (!alone<G>) {
      for (uint32_t t = g.rank(); t < subchunks * parts; t += G::size) {
        U plain = 0, fold = 0;
        any_bits(in, begin(count, t / parts) + t % parts, begin(count, t / parts + 1), parts, plain, fold);
        put_item<U>(scratch + sums, t, plain);
        if constexpr (Folds) put_item<U>(scratch + sums, subchunks * parts + t, fold);
      }
      g.sync();
    }
    for (uint32_t s = g.rank(); s < subchunks; s += G::size) {
      U plain = 0, fold = 0;
      if constexpr (alone<G>) any_bits(in, begin(count, s), begin(count, s + 1), 1, plain, fold);
      else {
        for (uint32_t t = s * parts; t < (s + 1) * parts; t++) {
          plain = U(plain | item<U>(scratch + sums, t));
          if constexpr (Folds) fold = U(fold | item<U>(scratch + sums, subchunks * parts + t));
        }
      }
      uint32_t meta = briquette::bit_length(plain);
      if constexpr (Folds) {
        const uint32_t narrow = briquette::bit_length(fold);
        if (narrow < meta) meta = narrow | folded;
      }
      words[widths + s] = meta;
    }
    g.sync();
    const uint32_t end = subchunks + 4 * locate(words, count, g);
    if (end + rest >= bytes) return bytes;
    for (uint32_t s = g.rank(); s < subchunks; s += G::size) out[s] = uint8_t(words[widths + s]);
    for (uint32_t s = g.warp(); s < subchunks; s += G::warps()) {
      const uint8_t *from = in + begin(count, s) * W;
      const uint32_t meta = words[widths + s], size = begin(count, s + 1) - begin(count, s);
      uint8_t *to = out + subchunks + 4 * words[offsets + s];
      if (Folds && meta & folded) pack_run<U, G>(size, meta ^ folded, to, g.lane(), G::warp_size, [=](uint32_t i) { return sign_folded(item<U>(from, i)); });
      else pack_run<U, G>(size, meta, to, g.lane(), G::warp_size, [=](uint32_t i) { return item<U>(from, i); });
    }
    for (uint32_t i = g.rank(); i < rest; i += G::size) out[end + i] = in[count * W + i];
    return end + rest;
  }

  template <int BYTES, class G> __device__ static bool decode(const uint8_t *in, uint32_t coded, uint8_t *out, uint32_t bytes, uint8_t *scratch, G g) {
    const uint32_t count = bytes / W, rest = bytes - count * W;
    uint32_t *words = reinterpret_cast<uint32_t *>(scratch);
    if (coded < subchunks) return false;
    bool bad = false;
    for (uint32_t s = g.rank(); s < subchunks; s += G::size) {
      words[widths + s] = in[s];
      bad |= width_of(in[s]) > 8 * W;
    }
    if (g.any(bad)) return false;
    g.sync();
    const uint32_t end = subchunks + 4 * locate(words, count, g);
    if (end + rest > coded) return false;
    bad = !ends_at(in, coded, end + rest);
    for (uint32_t s = g.rank(); s < subchunks; s += G::size) bad |= !run_ends_clean(in + subchunks + 4 * words[offsets + s], begin(count, s + 1) - begin(count, s), width_of(words[widths + s]));
    if (g.any(bad)) return false;
    for (uint32_t s = g.warp(); s < subchunks; s += G::warps()) {
      const uint8_t *from = in + subchunks + 4 * words[offsets + s];
      const uint32_t meta = words[widths + s], first = begin(count, s), size = begin(count, s + 1) - first;
      for (uint32_t i = g.lane(); i < size; i += G::warp_size) {
        const U x = packed_value<U>(from, i, width_of(meta));
        put_item<U>(out, first + i, Folds && meta & folded ? U(U(x >> 1) ^ U(U(0) - U(x & 1))) : x);
      }
    }
    for (uint32_t i = g.rank(); i < rest; i += G::size) out[count * W + i] = in[end + i];
    return true;
  }

 private:
  /// First word of a subchunk.
  __device__ __forceinline__ static uint32_t begin(uint32_t count, uint32_t s) { return s * count / subchunks; }
  __device__ __forceinline__ static uint32_t width_of(uint32_t meta) { return Folds ? meta & ~folded : meta; }
  __device__ __forceinline__ static U sign_folded(U x) { return U(U(x << 1) ^ U(U(0) - U(x >> (8 * W - 1)))); }

  __device__ __forceinline__ static void any_bits(const uint8_t *in, uint32_t first, uint32_t last, uint32_t step, U &plain, U &fold) {
    for (uint32_t i = first; i < last; i += step) {
      const U x = item<U>(in, i);
      plain = U(plain | x);
      if constexpr (Folds) fold = U(fold | sign_folded(x));
    }
  }
  /// Find where each subchunk begins, in words behind the widths; returns the words of all. Ends with a barrier.
  template <class G> __device__ __forceinline__ static uint32_t locate(uint32_t *words, uint32_t count, G g) {
    if constexpr (alone<G>) {
      uint32_t at = 0;
      for (uint32_t s = 0; s < subchunks; s++) {
        words[offsets + s] = at;
        at += packed_bytes(begin(count, s + 1) - begin(count, s), width_of(words[widths + s])) / 4;
      }
      words[offsets + subchunks] = at;
    } else {
      for (uint32_t s = g.rank(); s <= subchunks; s += G::size) {
        uint32_t at = 0;
        for (uint32_t b = 0; b < s; b++) at += packed_bytes(begin(count, b + 1) - begin(count, b), width_of(words[widths + b])) / 4;
        words[offsets + s] = at;
      }
    }
    g.sync();
    return words[offsets + subchunks];
  }
};

typedef SubchunkPacking<1, false> Clog1;
typedef SubchunkPacking<2, false> Clog2;
typedef SubchunkPacking<4, false> Clog4;
typedef SubchunkPacking<8, false> Clog8;
typedef SubchunkPacking<1, true> HybridClog1;
typedef SubchunkPacking<2, true> HybridClog2;
typedef SubchunkPacking<4, true> HybridClog4;
typedef SubchunkPacking<8, true> HybridClog8;

}  // namespace briquette_lc
