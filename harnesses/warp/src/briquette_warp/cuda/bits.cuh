// Fixed-width packing of a span of unsigned values into 32-bit words, least significant bit first, and back.
// Role: a harness primitive for segment coders.
// Requires: policy.cuh, group.cuh; a span of a multiple of 32 elements, so that it ends on a word.
// Source: the layout of docs/format.md (plain-rate); width-specialized host loops as in Lemire and Boytsov, SP&E 2015.
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace briquette {

/// Words that S values of `width` bits take.
template <int S> __device__ __forceinline__ uint32_t packed_words(uint32_t width) { return uint32_t(S / 32) * width; }

#if BRIQUETTE_HOST
namespace packing {
template <int W> static void pack32(const uint32_t *__restrict value, uint32_t *__restrict out) {
  uint64_t held = 0;
  int fill = 0;
#pragma GCC unroll 32
  for (int i = 0; i < 32; i++) {
    held |= uint64_t(value[i]) << fill;
    fill += W;
    if (fill >= 32) { *out++ = uint32_t(held); held >>= 32; fill -= 32; }
  }
}
template <int W> static void unpack32(const uint32_t *__restrict in, uint32_t *__restrict value) {
  constexpr uint32_t mask = W >= 32 ? 0xffffffffu : (1u << (W & 31)) - 1u;
#pragma GCC unroll 32
  for (int i = 0; i < 32; i++) {
    const int at = i * W, word = at >> 5, shift = at & 31;
    uint64_t held = W ? in[word] : 0;
    if (shift + W > 32) held |= uint64_t(in[word + 1]) << 32;
    value[i] = uint32_t(held >> shift) & mask;
  }
}
typedef void (*Pack)(const uint32_t *, uint32_t *);
typedef void (*Unpack)(const uint32_t *, uint32_t *);
#define BRIQUETTE_8(f, n) f<n>, f<n + 1>, f<n + 2>, f<n + 3>, f<n + 4>, f<n + 5>, f<n + 6>, f<n + 7>
static constexpr Pack pack_table[33] = {BRIQUETTE_8(pack32, 0), BRIQUETTE_8(pack32, 8), BRIQUETTE_8(pack32, 16), BRIQUETTE_8(pack32, 24), pack32<32>};
static constexpr Unpack unpack_table[33] = {BRIQUETTE_8(unpack32, 0), BRIQUETTE_8(unpack32, 8), BRIQUETTE_8(unpack32, 16), BRIQUETTE_8(unpack32, 24), unpack32<32>};
#undef BRIQUETTE_8
}  // namespace packing
#endif

#if !BRIQUETTE_HOST
namespace packing {
/// Read back in steps of K values. Reads up to two words behind the span, which the harness has room for.
template <int K, class U, int E> __device__ __forceinline__ void unpack_joined(const uint32_t *in, uint32_t width, U (&value)[E]) {
  const uint32_t low = width >= 32 ? 0xffffffffu : (1u << width) - 1u;
  uint32_t first = in[0], second = in[1], at = 0;
  in += 2;
  BRIQUETTE_UNROLL
  for (int m = 0; m < E; m += K) {
    uint32_t joined = __funnelshift_r(first, second, at);
    BRIQUETTE_UNROLL
    for (int j = 0; j < K; j++) { value[m + j] = U(joined & low); joined >>= j < K - 1 ? width : 0; }
    at += K * width;
    if (at >= 32) { at -= 32; first = second; second = *in++; }
  }
}
}  // namespace packing
#endif

/// Pack the span's values, each below 2^width; the group writes packed_words<S>(width) words at `out`.
template <class U, int E, class G> __device__ __forceinline__ void pack_span(const U (&value)[E], uint32_t width, G g, uint32_t *out) {
  static_assert(E * G::size % 32 == 0, "a packed span is a multiple of 32 elements");
  if constexpr (G::size == 1) {
#if BRIQUETTE_HOST
    if (width <= 32) {
      for (int k = 0; k < E; k += 32) {
        uint32_t low[32];
        for (int i = 0; i < 32; i++) low[i] = uint32_t(value[k + i]);
        packing::pack_table[width](low, out);
        out += width;
      }
      return;
    }
#endif
    uint64_t held = 0;
    uint32_t fill = 0;
    BRIQUETTE_UNROLL
    for (int i = 0; i < E; i++) {
      uint64_t v = uint64_t(value[i]);
      held |= v << fill;
      uint32_t end = fill + width;
      if constexpr (sizeof(U) == 8) {
        if (end >= 64) { *out++ = uint32_t(held); *out++ = uint32_t(held >> 32); held = fill ? v >> (64 - fill) : 0; end -= 64; }
        if (end >= 32) { *out++ = uint32_t(held); held >>= 32; end -= 32; }
      } else {
        if (end >= 32) { *out++ = uint32_t(held); held >>= 32; end -= 32; }
      }
      fill = end;
    }
  } else {
    // Word k gathers the elements that overlap it; each round all lanes fetch one element, so that collectives stay converged.
    const uint32_t words = packed_words<E * G::size>(width);
    const uint32_t rounds = (words + G::size - 1) / G::size;
    const uint32_t overlaps = width ? (31 / width) + 2 : 0;
    for (uint32_t round = 0; round < rounds; round++) {
      const uint32_t k = round * G::size + uint32_t(g.rank());
      const uint32_t first = width ? (k * 32u) / width : 0;
      uint32_t word = 0;
      for (uint32_t j = 0; j < overlaps; j++) {
        const uint32_t i = first + j;
        const uint32_t lane = (i / E) & (G::size - 1), slot = i % E;
        U got = 0;
        BRIQUETTE_UNROLL
        for (int m = 0; m < E; m++) { U x = g.broadcast(value[m], int(lane)); if (uint32_t(m) == slot) got = x; }
        const int32_t shift = int32_t(i * width) - int32_t(k * 32u);
        if (i < uint32_t(E * G::size) && shift < 32) word |= shift >= 0 ? uint32_t(got) << shift : uint32_t(got >> -shift);
      }
      if (k < words) out[k] = word;
    }
  }
}

/// Read back what pack_span wrote.
template <class U, int E, class G> __device__ __forceinline__ void unpack_span(const uint32_t *in, uint32_t width, G g, U (&value)[E]) {
  static_assert(E * G::size % 32 == 0, "a packed span is a multiple of 32 elements");
#if BRIQUETTE_HOST
  if constexpr (G::size == 1) {
    if (width <= 32) {
      for (int k = 0; k < E; k += 32) {
        if constexpr (sizeof(U) == 4) packing::unpack_table[width](in, reinterpret_cast<uint32_t *>(&value[k]));
        else {
          uint32_t low[32];
          packing::unpack_table[width](in, low);
          for (int i = 0; i < 32; i++) value[k + i] = U(low[i]);
        }
        in += width;
      }
      return;
    }
  }
#endif
#if !BRIQUETTE_HOST
  if constexpr (G::size == 1 && sizeof(U) <= 4) {
    // a window of two words, a funnel shift for as many values as it surely holds
    const uint32_t most = g.most(width);
    if (most <= 4) packing::unpack_joined<8>(in, width, value);
    else if (most <= 8) packing::unpack_joined<4>(in, width, value);
    else if (most <= 16) packing::unpack_joined<2>(in, width, value);
    else packing::unpack_joined<1>(in, width, value);
    return;
  }
#endif
  const U mask = width >= uint32_t(bits_of<U>) ? U(~U(0)) : U(U(U(1) << width) - U(1));
  const uint32_t words = packed_words<E * G::size>(width);
  BRIQUETTE_UNROLL
  for (int m = 0; m < E; m++) {
    const uint32_t at = (uint32_t(g.rank()) * E + m) * width, word = at >> 5, shift = at & 31;
    uint64_t held = word < words ? in[word] : 0;
    if (shift + width > 32) held |= uint64_t(in[word + 1]) << 32;
    held >>= shift;
    if constexpr (sizeof(U) == 8) { if (shift + width > 64) held |= uint64_t(in[word + 2]) << (64 - shift); }
    value[m] = U(held) & mask;
  }
}

}  // namespace briquette
