// The host skeleton: one lane owns a chunk; chunks are coded one after another, each between two buffers of the thread's own.
// Role: composed with a generated `Chain` into two entry points.
// Requires: a host compiler with -ffp-contract=off; passes.cuh, and what the warp-register harness has for hosts.
// Source: briquette.
#pragma once
#include <briquette_chunk/cuda/passes.cuh>
#include <briquette_warp/cuda/host.cuh>

namespace briquette {
namespace chunks {

/// A thread's memory for one chunk.
template <class C> struct Room {
  alignas(64) uint8_t a[C::bytes + 64], b[C::bytes + 64];
  alignas(64) uint8_t scratch[C::scratch + 64];
};
template <class C> static Room<C> &room() {
  static thread_local Room<C> kept;
  Room<C> *here = &kept;
  asm volatile("" : "+r"(here));  // else a compiler may ask for the thread's memory again and again
  return *here;
}

/// Values to codes in `to`, ELEMENTWISE ops applied; notes what is kept aside.
template <class C> __attribute__((noinline)) static void load(const host::Forward &f, uint64_t first, uint32_t m, uint8_t *to, uint16_t *at, typename Bits<typename C::Source>::type *value, uint32_t &held) {
  typedef typename C::Source X;
  typedef typename C::First T;
  constexpr int E = C::lane;
  const uint8_t *in = f.in + first * sizeof(X);
  if constexpr (!C::has_head && C::Front::empty) {
    memcpy(to, in, m * sizeof(X));
    return;
  }
  const bool aligned = reinterpret_cast<uintptr_t>(in) % alignof(X) == 0;
  alignas(64) X x[E];
  alignas(64) T aside[E];
  alignas(64) uint8_t kept[E];
  for (uint32_t base = 0; base < m; base += E) {
    const uint32_t count = m - base < uint32_t(E) ? m - base : uint32_t(E);
    const X(*source)[E] = reinterpret_cast<const X(*)[E]>(in + uint64_t(base) * sizeof(X));
    if (!aligned || count < uint32_t(E)) {
      if (count < uint32_t(E)) memset(x, 0, sizeof x);
      memcpy(x, source, count * sizeof(X));
      source = &x;
    }
    T(&c)[E] = count == uint32_t(E) ? *reinterpret_cast<T(*)[E]>(to + base * sizeof(T)) : aside;
    if constexpr (C::has_head) {
      if (!head_quantize<typename C::Head>(*source, c, kept, f.params + C::head_params) && C::has_side) host::note_kept<X>(kept, *source, base, count, at, value, held);
    } else memcpy(c, source, sizeof c);
    C::Front::forward(c, f.params);
    if (count < uint32_t(E)) memcpy(to + base * sizeof(T), c, count * sizeof(T));
  }
}

/// Codes in `from` to values, ELEMENTWISE ops undone.
template <class C> __attribute__((noinline)) static void store(const host::Inverse &f, uint64_t first, uint32_t m, uint8_t *from) {
  typedef typename C::Source X;
  typedef typename C::First T;
  constexpr int E = C::lane;
  uint8_t *out = f.out + first * sizeof(X);
  if constexpr (!C::has_head && C::Front::empty) {
    memcpy(out, from, m * sizeof(X));
    return;
  }
  const bool aligned = reinterpret_cast<uintptr_t>(out) % alignof(X) == 0;
  alignas(64) X x[E];
  alignas(64) T aside[E] = {};
  for (uint32_t base = 0; base < m; base += E) {
    const uint32_t count = m - base < uint32_t(E) ? m - base : uint32_t(E);
    const bool whole = aligned && count == uint32_t(E);
    if (count < uint32_t(E)) memcpy(aside, from + base * sizeof(T), count * sizeof(T));
    T(&c)[E] = count == uint32_t(E) ? *reinterpret_cast<T(*)[E]>(from + base * sizeof(T)) : aside;
    X(*target)[E] = reinterpret_cast<X(*)[E]>(out + uint64_t(base) * sizeof(X));
    C::Front::inverse(c, f.params);
    if constexpr (C::has_head) head_dequantize<typename C::Head>(c, whole ? *target : x, f.params + C::head_params);
    else memcpy(whole ? target : &x, c, sizeof x);
    if (!whole) memcpy(target, x, count * sizeof(X));
  }
}

template <class C> static int32_t forward(uint64_t *slots) {
  host::Forward &f = *reinterpret_cast<host::Forward *>(slots);
  typedef typename Bits<typename C::Source>::type B;
  typedef typename C::First T;
  constexpr uint64_t K = C::chunk;
  const ChunkLane g;
  host::Arithmetic ieee;
  static thread_local uint16_t at[C::has_side ? K : 1];
  static thread_local B value[C::has_side ? K : 1];
  Room<C> &own = room<C>();
  f.words_used = f.side_used = f.kept = 0;
  for (uint64_t chunk = f.begin; chunk < f.end; chunk++) {
    const uint64_t first = chunk * K;
    const uint32_t m = uint32_t(f.n - first < K ? f.n - first : K), bytes = m * uint32_t(sizeof(T));
    uint32_t held = 0, size = 0;
    f.next = chunk;
    load<C>(f, first, m, own.a, at, value, held);
    uint8_t *data = C::Interior::template forward<C::bytes>(own.a, own.b, bytes, g, f.params);
    if constexpr (C::has_tail) {
      uint8_t *coded = data == own.a ? own.b : own.a;
      const uint32_t whole = (bytes + 3) / 4;
      uint32_t used = chunk_encode<typename C::Tail, C::bytes>(data, coded, bytes, own.scratch, g, f.params);
      size = used < bytes ? (used + 3) / 4 : whole;
      if (size >= whole) { coded = data; used = bytes; size = whole; }
      if (size > f.words_room - f.words_used) return host::words_full;
      memset(coded + used, 0, 4 * size - used);
      memcpy(f.words + f.words_used, coded, 4 * size);
      f.sizes[chunk] = size;
    } else memcpy(f.stream + first * sizeof(T), data, bytes);
    if (C::has_side) {
      if (held && f.side_room - f.side_used < most_outlier_words(K, sizeof(B))) return host::side_full;
      const uint32_t side = encode_outliers<B>(at, value, held, m, f.side + f.side_used);
      f.side_sizes[chunk] = side;
      f.side_used += side;
      f.kept += held;
    }
    f.words_used += size;
  }
  f.next = f.end;
  return host::done;
}

/// The coder's input from a chunk's words, in `own.b` by way of `own.a`; false where no encoder wrote them.
template <class C> static bool decode(const uint32_t *in, uint32_t words, uint32_t bytes, Room<C> &own, const uint8_t *params) {
  const uint32_t whole = (bytes + 3) / 4;
  if (words > whole) return false;
  if (words == whole) {  // as it is
    for (uint32_t i = bytes; i < 4 * whole; i++) if (reinterpret_cast<const uint8_t *>(in)[i]) return false;
    memcpy(own.b, in, bytes);
    return true;
  }
  memcpy(own.a, in, 4 * words);
  return chunk_decode<typename C::Tail, C::bytes>(own.a, 4 * words, own.b, bytes, own.scratch, ChunkLane(), params);
}

template <class C> static int32_t inverse(uint64_t *slots) {
  host::Inverse &f = *reinterpret_cast<host::Inverse *>(slots);
  typedef typename Bits<typename C::Source>::type B;
  typedef typename C::First T;
  constexpr uint64_t K = C::chunk;
  host::Arithmetic ieee;
  Room<C> &own = room<C>();
  const uint32_t *in = f.words, *side = f.side;
  for (uint64_t chunk = f.begin; chunk < f.end; chunk++) {
    const uint64_t first = chunk * K;
    const uint32_t m = uint32_t(f.n - first < K ? f.n - first : K), bytes = m * uint32_t(sizeof(T));
    f.bad_chunk = chunk;
    if constexpr (C::has_tail) {
      const uint32_t words = f.sizes[chunk];
      if (!decode<C>(in, words, bytes, own, f.params)) return host::damaged;
      in += words;
    } else memcpy(own.b, f.stream + first * sizeof(T), bytes);
    store<C>(f, first, m, C::Interior::template inverse<C::bytes>(own.b, own.a, bytes, ChunkLane(), f.params));
    if (C::has_side) {
      if (!restore_outliers<B>(side, f.side_sizes[chunk], m, f.out + first * sizeof(B))) return host::damaged;
      side += f.side_sizes[chunk];
    }
  }
  return host::done;
}

}  // namespace chunks
}  // namespace briquette
