// The host skeleton: one lane holds an array of regions; whole archive chunks are coded one after another.
// Role: composed with a generated `Chain` into two entry points.
// Requires: a host compiler with -ffp-contract=off; calls.cuh, outliers_host.cuh.
// Source: briquette; the one-lane geometry of docs/contracts.md.
#pragma once
#include <fenv.h>

#include <briquette_warp/cuda/calls.cuh>
#include <briquette_warp/cuda/layout.cuh>
#include <briquette_warp/cuda/outliers_host.cuh>
#include <briquette_warp/cuda/select.cuh>

namespace briquette {
namespace host {

enum Status : int32_t { done = 0, words_full = 1, side_full = 2, damaged = 3 };

/// The caller's block of slots, forward.
struct Forward {
  const uint8_t *in;
  uint64_t n, begin, end;
  const uint8_t *params;
  uint8_t *stream;        // where codes go when the chain has no tail
  uint32_t *sizes, *words;
  uint64_t words_room;
  uint32_t *side_sizes, *side;
  uint64_t side_room;
  uint64_t words_used, side_used, next, kept;  // results
  uint32_t *tile_sizes, *tiles;                // where tiles have a port of their own: room for every chunk's worst case
  uint64_t tiles_used;                         // result
  uint8_t *marks;                              // of a chain with a LAYOUT: a byte an element of the array, 1 where it is kept aside
};
/// The caller's block of slots, inverse; `words`, `side` and `tiles` point at the first word of chunk `begin`.
struct Inverse {
  uint8_t *out;
  uint64_t n, begin, end;
  const uint8_t *params;
  const uint8_t *stream;
  const uint32_t *sizes, *words;
  const uint32_t *side_sizes, *side;
  uint64_t bad_chunk;  // result
  const uint32_t *tile_sizes, *tiles;
  uint64_t laid, wanted, wanted_end;  // of a chain with a LAYOUT: the first laid-out element, and the part of the array at `out`
};

/// A lane's array: on the stack, or, where it is large, one a thread for all calls (stacks of threads may be small).
template <class T, int E, int Which, bool Large = (E > 4096)> struct LaneArray {
  alignas(64) T own[E];
  T (&get())[E] { return own; }
};
template <class T, int E, int Which> struct LaneArray<T, E, Which, true> {
  T (&get())[E] {
    alignas(64) static thread_local T kept[E];
    return kept;
  }
};

/// IEEE arithmetic whatever the calling thread has set: nearest rounding, no flush to zero.
struct Arithmetic {
  fenv_t before;
  Arithmetic() { fegetenv(&before); fesetenv(FE_DFL_ENV); }
  ~Arithmetic() { fesetenv(&before); }
};

/// Note the marked values of one lane's array.
template <class X, int E> __attribute__((noinline)) static void note_kept(const uint8_t (&kept)[E], const X (&x)[E], uint32_t base, uint32_t count, uint16_t *at, typename Bits<X>::type *value, uint32_t &held) {
  for (uint32_t m = 0; m < count; m++) {
    if (E % 8 == 0 && m % 8 == 0) {  // most of them are not marked: look at eight together
      uint64_t eight;
      memcpy(&eight, &kept[m], 8);
      if (!eight) { m += 7; continue; }
    }
    if (kept[m]) { at[held] = uint16_t(base + m); memcpy(&value[held], &x[m], sizeof(X)); held++; }
  }
}

/// Gather `count` elements from the laid-out one `first` on; those behind are 0.
template <class C, class X, int E> static inline void gather(const uint8_t *in, uint64_t first, uint32_t count, X (&x)[E], const uint8_t *params) {
  typedef Laid<C> L;
  if (count < uint32_t(E)) memset(x, 0, sizeof x);
  for (uint32_t k = 0; k < count; k += L::span) {
    const typename L::Origin origin = L::origin((first + k) / L::span, params);
    const uint32_t some = count - k < L::span ? count - k : L::span;
    for (uint32_t i = 0; i < some; i++) {
      uint64_t at;
      (void)L::place(origin, i, at, params);
      memcpy(&x[k + i], in + at * sizeof(X), sizeof(X));
    }
  }
}
/// Mark in the array what is kept aside of gathered elements.
template <class C, int E> __attribute__((noinline)) static void mark_kept(const uint8_t (&kept)[E], uint64_t first, uint32_t count, const Forward &f, uint32_t &held) {
  typedef Laid<C> L;
  for (uint32_t m = 0; m < count; m++) {
    uint64_t at;
    if (kept[m] && L::place(L::origin((first + m) / L::span, f.params), m % L::span, at, f.params)) { f.marks[at] = 1; held++; }
  }
}
/// Scatter `count` elements from the laid-out one `first` on to where they stand, as far as they are wanted.
template <class C, class X, int E> static inline void scatter(const X (&x)[E], uint64_t first, uint32_t count, const Inverse &f) {
  typedef Laid<C> L;
  for (uint32_t k = 0; k < count; k += L::span) {
    const typename L::Origin origin = L::origin((first + k) / L::span, f.params);
    const uint32_t some = count - k < L::span ? count - k : L::span;
    for (uint32_t i = 0; i < some; i++) {
      uint64_t at;
      if (L::place(origin, i, at, f.params) && at >= f.wanted && at < f.wanted_end) memcpy(f.out + (at - f.wanted) * sizeof(X), &x[k + i], sizeof(X));
    }
  }
}

/// Modes and side elements of a chunk's tiles, where they have a port of their own: words at `out`.
template <class C, bool Tiled> struct TilesOut { TilesOut(uint32_t *, uint32_t) {} };
template <class C> struct TilesOut<C, true> {
  typedef TileShape<C> S;
  uint32_t *out, *side;

  TilesOut(uint32_t *out, uint32_t m) : out(out), side(out + S::heads(S::tiles(m))) {
    for (uint32_t *p = out; p < side; p++) *p = 0;
  }
  template <int E> void write(uint32_t base, uint32_t count, const TileChoices<C, E> &tiles) {
    for (uint32_t k = 0; k * S::span < count; k++) {
      const uint32_t bit = (base / S::span + k) * S::mode_bits;
      out[bit / 32] |= tiles.mode[k] << bit % 32;
      if (bit % 32 + S::mode_bits > 32) out[bit / 32 + 1] |= tiles.mode[k] >> (32 - bit % 32);
      tiles.write(int(k), side);
      side += S::words(tiles.mode[k]);
    }
  }
};
/// And back; `sound` is false once they cannot be what an encoder wrote.
template <class C, bool Tiled> struct TilesIn { TilesIn(const uint32_t *, uint32_t, uint32_t) {} };
template <class C> struct TilesIn<C, true> {
  typedef TileShape<C> S;
  const uint32_t *in, *side, *end;
  bool sound;

  TilesIn(const uint32_t *in, uint32_t words, uint32_t m) : in(in), end(in + words) {
    const uint32_t bits = S::tiles(m) * S::mode_bits, heads = S::heads(S::tiles(m));
    sound = heads <= words && !(bits % 32 && in[heads - 1] >> bits % 32);
    side = sound ? in + heads : end;
  }
  template <int E> void read(uint32_t base, uint32_t count, TileChoices<C, E> &tiles) {
    for (uint32_t k = 0; sound && k * S::span < count; k++) {
      const uint32_t bit = (base / S::span + k) * S::mode_bits;
      uint32_t mode = in[bit / 32] >> bit % 32;
      if (bit % 32 + S::mode_bits > 32) mode |= in[bit / 32 + 1] << (32 - bit % 32);
      mode &= (1u << S::mode_bits) - 1u;
      sound = mode < S::modes && S::words(mode) <= uint64_t(end - side);
      if (!sound) return;
      tiles.mode[k] = mode;
      tiles.read(int(k), side);
      side += S::words(mode);
    }
  }
};

/// Code one archive chunk of m elements, its tiles' part, if they have a port of their own, at `tiles_out`. Returns its words at `out` (0 without a tail).
template <class C> __attribute__((noinline)) static uint32_t encode_chunk(const Forward &f, uint64_t first, uint32_t m, uint32_t *out, uint16_t *at, typename Bits<typename C::Source>::type *value, uint32_t &held, uint32_t *&tiles_out) {
  constexpr int E = C::lane;
  typedef typename C::Source X;
  typedef typename C::First T;
  LaneArray<X, E, 0> own_x;
  LaneArray<T, E, 1> own_c;
  LaneArray<uint8_t, E, 2> own_kept;
  auto &x = own_x.get();
  auto &c = own_c.get();
  auto &kept = own_kept.get();
  uint8_t *meta = reinterpret_cast<uint8_t *>(out);
  uint32_t *p = out;
  if constexpr (C::has_tail) p += words_for(uint64_t((m + C::Tail::span - 1) / C::Tail::span) * C::Tail::Policy::meta_bytes);
  if (p != out) p[-1] = 0;  // what follows the metadata in its last word
  const uint8_t *in = C::has_layout ? f.in : f.in + first * sizeof(X);
  const bool aligned = !C::has_layout && reinterpret_cast<uintptr_t>(in) % alignof(X) == 0;
  constexpr bool carries = carries_tiles<C>::value, tiled = C::has_selector && !carries;
  TilesOut<C, tiled> tile_port(tiles_out, m);
  for (uint32_t base = 0; base < m; base += E) {
    const uint32_t count = m - base < uint32_t(E) ? m - base : uint32_t(E);
    const X(*source)[E] = reinterpret_cast<const X(*)[E]>(in + uint64_t(base) * sizeof(X));
    if constexpr (C::has_layout) {
      gather<C>(in, first + base, count, x, f.params);
      source = &x;
    } else if (!aligned || count < uint32_t(E)) {
      if (count < uint32_t(E)) memset(x, 0, sizeof x);
      memcpy(x, source, count * sizeof(X));
      source = &x;
    }
    if constexpr (C::has_head) {
      const bool all = head_quantize<typename C::Head>(*source, c, kept, f.params + C::head_params);
      if constexpr (C::has_side && C::has_layout) { if (!all) mark_kept<C>(kept, first + base, count, f, held); }
      else if (C::has_side && !all) note_kept<X>(kept, *source, base, count, at, value, held);
    } else memcpy(c, source, sizeof c);
    TileChoices<C, E> tiles;
    if (count == uint32_t(E)) {
      C::template forward<true>(c, count, f.params);
      if constexpr (C::has_selector) choose_tiles<C, true, OneLane, OneLane>(c, count, count, f.params, tiles);
    } else {
      C::template forward<false>(c, count, f.params);
      if constexpr (C::has_selector) choose_tiles<C, false, OneLane, OneLane>(c, count, count, f.params, tiles);
    }
    if constexpr (tiled) tile_port.write(base, count, tiles);
    if constexpr (C::has_tail) {
      typedef typename C::Tail Tail;
      typedef typename Tail::In L;
      constexpr int S = Tail::span, M = int(Tail::Policy::meta_bytes);
      static_assert(M <= 4, "a coder has at most 4 bytes of metadata a segment");
      auto &codes = as<L>(c);
      uint32_t metas[E / S];
      const uint32_t segments = (count + S - 1) / S;
      for (int k = 0; k < E / S; k++) tail_prepare<Tail>(slice<S>(codes, k), OneLane());
      if (count == uint32_t(E)) for (int k = 0; k < E / S; k++) metas[k] = tail_cost<Tail>(slice<S>(const_cast<const L(&)[E]>(codes), k), OneLane(), f.params + C::tail_params);
      else for (uint32_t k = 0; k < segments; k++) metas[k] = tail_cost<Tail>(slice<S>(const_cast<const L(&)[E]>(codes), int(k)), OneLane(), f.params + C::tail_params);
      for (uint32_t k = 0; k < segments; k++) {
        uint32_t written = metas[k];
        if constexpr (carries) {
          constexpr uint32_t segments_a_tile = TileShape<C>::span / S;
          const uint32_t tile = k / segments_a_tile, mode = tiles.mode[tile];
          written |= TileBits<C>::put(mode, k % segments_a_tile);
          if (k % segments_a_tile == 0) { tiles.write(int(tile), p); p += TileShape<C>::words(mode); }
        }
        for (int b = 0; b < M; b++) meta[(base / S + k) * M + b] = uint8_t(written >> (8 * b));
        tail_pack<Tail>(slice<S>(const_cast<const L(&)[E]>(codes), int(k)), metas[k], OneLane(), p, f.params + C::tail_params);
        p += tail_size<Tail, L>(metas[k], f.params + C::tail_params);
      }
    } else memcpy(f.stream + (first + base) * sizeof(T), c, count * sizeof(T));
  }
  if constexpr (tiled) tiles_out = tile_port.side;
  return C::has_tail ? uint32_t(p - out) : 0u;
}

template <class C> static int32_t forward(uint64_t *slots) {
  Forward &f = *reinterpret_cast<Forward *>(slots);
  typedef typename Bits<typename C::Source>::type B;
  constexpr uint64_t K = C::chunk;
  Arithmetic ieee;
  // One chunk's worst case is coded aside when the room left might not hold it.
  static thread_local uint32_t aside[C::has_tail ? C::most_words : 1];
  static thread_local uint16_t at[C::has_side ? K : 1];
  static thread_local B value[C::has_side ? K : 1];
  f.words_used = f.side_used = f.kept = f.tiles_used = 0;
  uint32_t *tiles = f.tiles;
  for (uint64_t chunk = f.begin; chunk < f.end; chunk++) {
    const uint64_t first = chunk * K;
    const uint32_t m = uint32_t(f.n - first < K ? f.n - first : K);
    uint32_t held = 0;
    f.next = chunk;
    const bool direct = C::has_tail && f.words_room - f.words_used >= uint64_t(C::most_words);
    const uint32_t size = encode_chunk<C>(f, first, m, direct ? f.words + f.words_used : aside, at, value, held, tiles);
    if (C::has_tail) {
      if (size > f.words_room - f.words_used) return words_full;
      if (!direct) memcpy(f.words + f.words_used, aside, 4ull * size);
      f.sizes[chunk] = size;
    }
    if (C::has_layout) f.kept += held;
    if (C::has_side && !C::has_layout) {
      if (held && f.side_room - f.side_used < most_outlier_words(K, sizeof(B))) return side_full;
      const uint32_t side = encode_outliers<B>(at, value, held, m, f.side + f.side_used);
      f.side_sizes[chunk] = side;
      f.side_used += side;
      f.kept += held;
    }
    f.words_used += size;
    if constexpr (C::has_selector) {
      if (f.tile_sizes) f.tile_sizes[chunk] = uint32_t(tiles - f.tiles - f.tiles_used);
      f.tiles_used = uint64_t(tiles - f.tiles);
    }
  }
  f.next = f.end;
  return done;
}

template <int M> static inline uint32_t read_meta(const uint8_t *meta, uint32_t segment) {
  uint32_t value = 0;
  for (int b = 0; b < M; b++) value |= uint32_t(meta[segment * M + b]) << (8 * b);
  return value;
}

/// Read the mode of the tile that begins at `segment`, of which `left` and more are there, and its side elements at `p`.
template <class C, int E> static inline bool carried_tile(const uint8_t *meta, uint32_t segment, uint32_t left, const uint32_t *&p, const uint32_t *end, int tile, TileChoices<C, E> &tiles) {
  constexpr uint32_t all = TileShape<C>::span / uint32_t(C::Tail::span);
  uint32_t mode = 0;
  bool sound = true;
  for (uint32_t j = 0; j < all && j < left; j++) {
    uint32_t value = read_meta<int(C::Tail::Policy::meta_bytes)>(meta, segment + j);
    sound &= TileBits<C>::take(TileBits<C>::split(value), j, mode);
  }
  if (!sound || mode >= TileShape<C>::modes || TileShape<C>::words(mode) > uint64_t(end - p)) return false;
  tiles.mode[tile] = mode;
  tiles.read(tile, p);
  p += TileShape<C>::words(mode);
  return true;
}

/// Decode one archive chunk of m elements; false when its words cannot be what an encoder wrote.
template <class C> __attribute__((noinline)) static bool decode_chunk(const Inverse &f, uint64_t first, uint32_t m, const uint32_t *in, uint32_t words, const uint32_t *tiles_in, uint32_t tile_words) {
  constexpr int E = C::lane;
  typedef typename C::Source X;
  typedef typename C::First T;
  LaneArray<X, E, 0> own_x;
  LaneArray<T, E, 1> own_c;
  auto &x = own_x.get();
  auto &c = own_c.get();
  const uint8_t *meta = reinterpret_cast<const uint8_t *>(in);
  const uint32_t *p = in, *const end = in + words;
  if constexpr (C::has_tail) {
    const uint32_t lead = words_for(uint64_t((m + C::Tail::span - 1) / C::Tail::span) * C::Tail::Policy::meta_bytes);
    if (lead > words) return false;
    p += lead;
    for (uint32_t b = (m + C::Tail::span - 1) / C::Tail::span * C::Tail::Policy::meta_bytes; b < 4 * lead; b++) if (meta[b]) return false;
  }
  constexpr bool carries = carries_tiles<C>::value, tiled = C::has_selector && !carries;
  TilesIn<C, tiled> tile_port(tiles_in, tile_words, m);
  uint8_t *out = C::has_layout ? f.out : f.out + first * sizeof(X);
  const bool aligned = !C::has_layout && reinterpret_cast<uintptr_t>(out) % alignof(X) == 0;
  for (uint32_t base = 0; base < m; base += E) {
    const uint32_t count = m - base < uint32_t(E) ? m - base : uint32_t(E);
    TileChoices<C, E> tiles;
    if constexpr (C::has_selector) tiles.clear();
    if constexpr (tiled) {
      tile_port.read(base, count, tiles);
      if (!tile_port.sound) return false;
    }
    if constexpr (C::has_tail) {
      typedef typename C::Tail Tail;
      typedef typename Tail::In L;
      constexpr int S = Tail::span, M = int(Tail::Policy::meta_bytes);
      auto &codes = as<L>(c);
      const uint32_t segments = (count + S - 1) / S;
      for (uint32_t k = 0; k < segments; k++) {
        uint32_t value = read_meta<M>(meta, base / S + k);
        if constexpr (carries) {
          if (k % (TileShape<C>::span / S) == 0 && !carried_tile<C>(meta, base / S + k, segments - k, p, end, int(k * S / TileShape<C>::span), tiles)) return false;
          TileBits<C>::split(value);
        }
        const uint32_t size = tail_size<Tail, L>(value, f.params + C::tail_params);
        if (size > uint64_t(end - p)) return false;
        tail_decode<Tail>(value, p, slice<S>(codes, int(k)), OneLane(), f.params + C::tail_params);
        p += size;
      }
      // when all are decoded: read back at once, what a coder stores in pieces would stall the processor
      for (uint32_t k = 0; k < segments; k++) tail_finish<Tail>(slice<S>(codes, int(k)), OneLane());
    } else {
      memcpy(c, f.stream + (first + base) * sizeof(T), count * sizeof(T));
    }
    if (count == uint32_t(E)) {
      if constexpr (C::has_selector) restore_tiles<C, true, OneLane>(c, count, f.params, tiles);
      C::template inverse<true>(c, count, f.params);
    } else {
      if constexpr (C::has_selector) restore_tiles<C, false, OneLane>(c, count, f.params, tiles);
      C::template inverse<false>(c, count, f.params);
    }
    X(*target)[E] = reinterpret_cast<X(*)[E]>(out + uint64_t(base) * sizeof(X));
    const bool whole = aligned && count == uint32_t(E);
    if constexpr (C::has_head) head_dequantize<typename C::Head>(c, whole ? *target : x, f.params + C::head_params);
    else memcpy(whole ? target : &x, c, sizeof x);
    if constexpr (C::has_layout) scatter<C>(x, f.laid + first + base, count, f);
    else if (!whole) memcpy(target, x, count * sizeof(X));
  }
  if constexpr (tiled) { if (tile_port.side != tile_port.end) return false; }
  return !C::has_tail || p == end;
}

template <class C> static int32_t inverse(uint64_t *slots) {
  Inverse &f = *reinterpret_cast<Inverse *>(slots);
  typedef typename Bits<typename C::Source>::type B;
  constexpr uint64_t K = C::chunk;
  Arithmetic ieee;
  const uint32_t *in = f.words, *side = f.side, *tiles = f.tiles;
  for (uint64_t chunk = f.begin; chunk < f.end; chunk++) {
    const uint64_t first = chunk * K;
    const uint32_t m = uint32_t(f.n - first < K ? f.n - first : K), words = C::has_tail ? f.sizes[chunk] : 0;
    f.bad_chunk = chunk;
    const uint32_t tile_words = C::has_selector && f.tile_sizes ? f.tile_sizes[chunk] : 0;
    if (!decode_chunk<C>(f, first, m, in, words, tiles, tile_words)) return damaged;
    in += words;
    tiles += tile_words;
    if (C::has_side && !C::has_layout) {
      if (!restore_outliers<B>(side, f.side_sizes[chunk], m, f.out + first * sizeof(B))) return damaged;
      side += f.side_sizes[chunk];
    }
  }
  return done;
}

/// Write down the marked values of chunks of the array, for a chain with a LAYOUT.
template <class C> static int32_t aside(uint64_t *slots) {
  Forward &f = *reinterpret_cast<Forward *>(slots);
  typedef typename C::Source X;
  typedef typename Bits<X>::type B;
  constexpr uint64_t K = C::chunk;
  static thread_local uint16_t at[K];
  static thread_local B value[K];
  f.side_used = 0;
  for (uint64_t chunk = f.begin; chunk < f.end; chunk++) {
    const uint64_t first = chunk * K;
    const uint32_t m = uint32_t(f.n - first < K ? f.n - first : K);
    f.next = chunk;
    if (f.side_room - f.side_used < most_outlier_words(K, sizeof(B))) return side_full;
    uint32_t held = 0;
    for (uint32_t i = 0; i < m; i++)
      if (f.marks[first + i]) { at[held] = uint16_t(i); memcpy(&value[held], f.in + (first + i) * sizeof(B), sizeof(B)); held++; }
    const uint32_t side = encode_outliers<B>(at, value, held, m, f.side + f.side_used);
    f.side_sizes[chunk] = side;
    f.side_used += side;
  }
  f.next = f.end;
  return done;
}
/// And restore them.
template <class C> static int32_t restore(uint64_t *slots) {
  Inverse &f = *reinterpret_cast<Inverse *>(slots);
  typedef typename Bits<typename C::Source>::type B;
  constexpr uint64_t K = C::chunk;
  const uint32_t *side = f.side;
  for (uint64_t chunk = f.begin; chunk < f.end; chunk++) {
    const uint64_t first = chunk * K;
    f.bad_chunk = chunk;
    if (!restore_outliers<B>(side, f.side_sizes[chunk], uint32_t(f.n - first < K ? f.n - first : K), f.out + first * sizeof(B))) return damaged;
    side += f.side_sizes[chunk];
  }
  return done;
}

}  // namespace host
}  // namespace briquette
