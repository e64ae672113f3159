// Runs a coder over archive chunks: on the host a range of chunks a call, on a GPU a lane a chunk, or a warp.
// Role: the skeleton of this pack's own kernels (a stage with a staged kernel, no policy of a harness).
// Requires: a coder with survey, encode and decode over one chunk, each by one lane; with `warps`, also survey_warp and
// encode_warp, which all lanes of a warp call.
// Source: briquette's own; the format is in docs/format.md.
#pragma once
#include <briquette_entropy/cuda/compiler.cuh>

namespace briquette_entropy {

/// The block of 64-bit slots of one call; addresses are of this target's memory.
struct Run {
  const uint8_t *stream;    // elements, read when coding
  uint8_t *out;             // elements, written when decoding
  uint64_t count;           // elements of the stream
  uint64_t chunk;           // elements of an archive chunk
  uint64_t begin, end;      // chunks to work on
  const uint32_t *tables;   // what the coder is told
  uint64_t contexts;
  uint64_t *counts;         // what a survey counts
  uint32_t *sizes;          // words of each chunk
  uint32_t *words;          // payload: of chunk `begin` on; on a GPU, when coding, `stride` words a chunk
  const uint64_t *offsets;  // GPU: words before each chunk
  uint64_t stride;
  uint64_t used;            // result: words written, or the chunk that is damaged
  uint32_t *flag;           // GPU: set where a chunk is damaged
  const uint32_t *lengths;  // elements of each chunk, and where they begin; null where all chunks have `chunk` elements
  const uint64_t *starts;
};

template <class T> struct Codes {
  typedef T Type;
  static constexpr bool folds = T(-1) < T(0);
  /// A code as a number: small magnitudes of either sign are small numbers.
  __device__ __forceinline__ static uint64_t number(T code) {
    if constexpr (!folds) return uint64_t(code);
    constexpr uint64_t mask = ~uint64_t(0) >> (64 - 8 * sizeof(T));
    return ((uint64_t(code) << 1) ^ uint64_t(int64_t(code) >> 63)) & mask;
  }
  __device__ __forceinline__ static T code(uint64_t number) {
    if constexpr (!folds) return T(number);
    return T((number >> 1) ^ (uint64_t(0) - (number & 1)));
  }
};

template <class T> __device__ __forceinline__ uint32_t stored_words(uint32_t count) {
  return uint32_t((count * uint64_t(sizeof(T)) + 3) / 4);
}

/// A chunk as it is, zero bytes behind.
template <class T> __device__ __forceinline__ void store(const T *in, uint32_t count, uint32_t *out) {
  const uint32_t words = stored_words<T>(count), bytes = uint32_t(count * sizeof(T));
  const uint8_t *from = reinterpret_cast<const uint8_t *>(in);
  for (uint32_t w = 0; w < words; w++) {
    uint32_t word = 0;
    for (uint32_t b = 0; b < 4; b++) if (4 * w + b < bytes) word |= uint32_t(from[4 * w + b]) << (8 * b);
    out[w] = word;
  }
}
template <class T> __device__ __forceinline__ bool recall(const uint32_t *in, uint32_t count, T *out) {
  const uint32_t words = stored_words<T>(count), bytes = uint32_t(count * sizeof(T));
  uint8_t *to = reinterpret_cast<uint8_t *>(out);
  for (uint32_t w = 0; w < words; w++)
    for (uint32_t b = 0; b < 4; b++) {
      const uint8_t byte = uint8_t(in[w] >> (8 * b));
      if (4 * w + b < bytes) to[4 * w + b] = byte;
      else if (byte) return false;
    }
  return true;
}

__device__ __forceinline__ uint32_t elements(const Run &r, uint64_t chunk) {
  if (r.lengths) return r.lengths[chunk];
  const uint64_t left = r.count - chunk * r.chunk;
  return uint32_t(left < r.chunk ? left : r.chunk);
}
__device__ __forceinline__ uint64_t first_element(const Run &r, uint64_t chunk) {
  return r.lengths ? r.starts[chunk] : chunk * r.chunk;
}
template <class T> __device__ __forceinline__ const T *input(const Run &r, uint64_t chunk) {
  return reinterpret_cast<const T *>(r.stream) + first_element(r, chunk);
}

/// The words of a chunk: none for zeros, as it is where coding does not shrink it.
template <class Coder, class T> __device__ __forceinline__ uint32_t encode_chunk(const Run &r, uint64_t chunk, uint32_t *out) {
  const T *in = input<T>(r, chunk);
  const uint32_t count = elements(r, chunk), whole = stored_words<T>(count);
  uint32_t zeros = 0;
  while (zeros < count && in[zeros] == T(0)) zeros++;
  if (zeros == count) return 0;
  const uint32_t words = Coder::template encode<T>(in, count, out, whole, r.tables, uint32_t(r.contexts));
  if (words < whole) return words;
  store(in, count, out);
  return whole;
}
template <class Coder, class T> __device__ __forceinline__ bool decode_chunk(const Run &r, uint64_t chunk, const uint32_t *in, uint32_t words) {
  T *out = reinterpret_cast<T *>(r.out) + first_element(r, chunk);
  const uint32_t count = elements(r, chunk), whole = stored_words<T>(count);
  if (words > whole) return false;
  if (words == whole) return recall(in, count, out);
  if (words) return Coder::template decode<T>(in, words, out, count, r.tables, uint32_t(r.contexts));
  for (uint32_t i = 0; i < count; i++) out[i] = T(0);
  return true;
}

#if BRIQUETTE_ENTROPY_HOST
template <class Coder, class T> static int32_t survey(uint64_t *slots) {
  Run &r = *reinterpret_cast<Run *>(slots);
  uint64_t *const counts = r.counts;
  for (uint64_t c = r.begin; c < r.end; c++)
    Coder::template survey<T>(input<T>(r, c), elements(r, c), uint32_t(r.contexts), [=](uint32_t context, uint32_t symbol) {
      ++counts[uint64_t(context) * Coder::symbols + symbol];
    });
  return 0;
}
template <class Coder, class T> static int32_t encode(uint64_t *slots) {
  Run &r = *reinterpret_cast<Run *>(slots);
  r.used = 0;
  for (uint64_t c = r.begin; c < r.end; c++) r.used += r.sizes[c] = encode_chunk<Coder, T>(r, c, r.words + r.used);
  return 0;
}
template <class Coder, class T> static int32_t decode(uint64_t *slots) {
  Run &r = *reinterpret_cast<Run *>(slots);
  const uint32_t *in = r.words;
  for (uint64_t c = r.begin; c < r.end; in += r.sizes[c], c++)
    if (!decode_chunk<Coder, T>(r, c, in, r.sizes[c])) { r.used = c; return 1; }
  return 0;
}
#else
/// Every 8th lane has a chunk: lanes of a warp take different ways most of the time, and more warps hide more latency.
constexpr uint64_t lanes_a_chunk = 8, chunks_a_block = 256 / lanes_a_chunk;
__device__ __forceinline__ bool mine(const Run &r, uint64_t &chunk) {
  chunk = blockIdx.x * chunks_a_block + threadIdx.x / lanes_a_chunk;
  return threadIdx.x % lanes_a_chunk == 0 && chunk < r.end;
}
/// The chunk of this lane's warp, where a warp has one.
constexpr uint64_t warps_a_block = 8;
__device__ __forceinline__ bool ours(const Run &r, uint64_t &chunk) {
  chunk = blockIdx.x * warps_a_block + threadIdx.x / 32;
  return chunk < r.end;
}
/// As encode_chunk, by a whole warp.
template <class Coder, class T> __device__ __forceinline__ uint32_t encode_chunk_warp(const Run &r, uint64_t chunk, uint32_t *out) {
  const T *in = input<T>(r, chunk);
  const uint32_t count = elements(r, chunk), whole = stored_words<T>(count), bytes = uint32_t(count * sizeof(T)), lane = threadIdx.x % 32;
  bool some = false;
  for (uint32_t base = 0; base < count && !some; base += 32)
    some = __any_sync(0xffffffffu, base + lane < count && in[base + lane] != T(0));
  if (!some) return 0;
  const uint32_t words = Coder::template encode_warp<T>(in, count, out, whole, r.tables, uint32_t(r.contexts));
  if (words < whole) return words;
  const uint8_t *from = reinterpret_cast<const uint8_t *>(in);
  for (uint32_t w = lane; w < whole; w += 32) {
    uint32_t word = 0;
    for (uint32_t b = 0; b < 4; b++) if (4 * w + b < bytes) word |= uint32_t(from[4 * w + b]) << (8 * b);
    out[w] = word;
  }
  return whole;
}
__device__ __forceinline__ void add(uint64_t *at, uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long *>(at), static_cast<unsigned long long>(value));
}
template <class Coder, class T> __device__ __forceinline__ void survey(const Run &r) {
  constexpr uint32_t most_contexts = 8, places = most_contexts * Coder::hot_symbols;
  __shared__ uint32_t hot[places];
  for (uint32_t i = threadIdx.x; i < places; i += blockDim.x) hot[i] = 0;
  __syncthreads();
  const auto counter = [&](uint32_t context, uint32_t symbol) {
    const uint32_t place = Coder::hot(symbol);
    if (place < Coder::hot_symbols) atomicAdd(hot + context * Coder::hot_symbols + place, 1u);
    else add(r.counts + uint64_t(context) * Coder::symbols + symbol, 1);
  };
  uint64_t c;
  if constexpr (Coder::warps) { if (ours(r, c)) Coder::template survey_warp<T>(input<T>(r, c), elements(r, c), uint32_t(r.contexts), counter); }
  else if (mine(r, c)) Coder::template survey<T>(input<T>(r, c), elements(r, c), uint32_t(r.contexts), counter);
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < uint32_t(r.contexts) * Coder::hot_symbols; i += blockDim.x)
    if (hot[i]) add(r.counts + uint64_t(i / Coder::hot_symbols) * Coder::symbols + Coder::symbol_of(i % Coder::hot_symbols), hot[i]);
}
template <class Coder, class T> __device__ __forceinline__ void encode(const Run &r) {
  uint64_t c;
  if constexpr (Coder::warps) {
    if (!ours(r, c)) return;
    const uint32_t words = encode_chunk_warp<Coder, T>(r, c, r.words + c * r.stride);
    if (threadIdx.x % 32 == 0) r.sizes[c] = words;
  } else if (mine(r, c)) r.sizes[c] = encode_chunk<Coder, T>(r, c, r.words + c * r.stride);
}
template <class Coder, class T> __device__ __forceinline__ void decode(const Run &r) {
  uint64_t c;
  if (mine(r, c) && !decode_chunk<Coder, T>(r, c, r.words + r.offsets[c], r.sizes[c])) *r.flag = 1;
}
/// Chunks coded each in a place of its own, put together: a block a chunk. `out` is the payload.
__device__ __forceinline__ void gather(const Run &r) {
  const uint64_t c = blockIdx.x;
  uint32_t *to = reinterpret_cast<uint32_t *>(r.out) + r.offsets[c];
  const uint32_t *from = r.words + c * r.stride;
  for (uint32_t i = threadIdx.x; i < r.sizes[c]; i += blockDim.x) to[i] = from[i];
}
#endif

}  // namespace briquette_entropy
