// Tiles that choose their representation: what a selector sees of the stages behind it, and where its choices go.
// Role: shared by the skeletons of every target, for chains with a TILE_SELECTOR.
// Requires: calls.cuh; a generated `Chain` with a selector.
// Source: briquette; one choice a tile by exact cost after FSZ.
#pragma once
#include <briquette_warp/cuda/calls.cuh>

namespace briquette {

/// Words that `elements` side elements of T take.
template <class T> __device__ __forceinline__ constexpr uint32_t side_words(uint32_t elements) { return elements * (sizeof(T) > 4 ? 2u : 1u); }
template <class T> __device__ __forceinline__ void write_side(T value, uint32_t *out) {
  if constexpr (sizeof(T) > 4) { out[0] = uint32_t(value); out[1] = uint32_t(unsigned_of<T>(value) >> 32); }
  else out[0] = uint32_t(int32_t(value));  // a narrow signed one with its sign
}
template <class T> __device__ __forceinline__ T read_side(const uint32_t *in) {
  if constexpr (sizeof(T) > 4) return T(unsigned_of<T>(in[0]) | unsigned_of<T>(in[1]) << 32);
  else return T(in[0]);
}

/// Whether a chain's coder keeps modes and side elements of tiles in its payload.
template <class C, bool = C::has_selector> struct carries_tiles { static constexpr bool value = false; };
template <class C> struct carries_tiles<C, true> { static constexpr bool value = C::carries; };

/// Numbers of a chain's selector.
template <class C> struct TileShape {
  typedef typename C::Selector O;
  typedef typename O::Policy Policy;
  typedef typename O::In T;
  static constexpr uint32_t span = uint32_t(O::span), modes = uint32_t(Policy::modes);
  static __device__ __forceinline__ constexpr uint32_t bits_for(uint32_t most) { return most < 2 ? most : 1 + bits_for(most / 2); }
  static constexpr uint32_t mode_bits = bits_for(modes - 1);
  static_assert(modes >= 2 && modes <= 256, "a selector has 2 to 256 modes");
  /// Words of side elements that a tile of `mode` has.
  static __device__ __forceinline__ uint32_t words(uint32_t mode) { return side_words<T>(uint32_t(Policy::sides(mode))); }
  /// Words of the modes of `tiles` tiles.
  static __device__ __forceinline__ constexpr uint32_t heads(uint32_t tiles) { return (tiles * mode_bits + 31) / 32; }
  /// Tiles of `elements` elements.
  static __device__ __forceinline__ constexpr uint32_t tiles(uint32_t elements) { return (elements + span - 1) / span; }
};

/// How the modes stand in the spare high bits of the segments' metadata, where the coder carries them.
template <class C> struct TileBits {
  typedef TileShape<C> Shape;
  typedef typename C::Tail O;
  static constexpr uint32_t spare = O::Policy::template spare_meta_bits<typename O::In>;
  static constexpr uint32_t shift = 8 * O::Policy::meta_bytes - spare, mask = (1u << spare) - 1u;
  static constexpr uint32_t carriers = (Shape::mode_bits + spare - 1) / spare;  // segments that hold a part of the mode
  static_assert(Shape::span / uint32_t(O::span) >= carriers, "a tile's segments hold its mode");
  /// What segment `j` of a tile adds to its metadata.
  static __device__ __forceinline__ uint32_t put(uint32_t mode, uint32_t j) { return j < carriers ? (mode >> (j * spare) & mask) << shift : 0u; }
  /// Take the spare bits out of a segment's metadata, which a coder then sees without them.
  static __device__ __forceinline__ uint32_t split(uint32_t &meta) {
    const uint32_t bits = meta >> shift;
    meta &= (1u << shift) - 1u;
    return bits;
  }
  /// Add what segment `j` of a tile holds of its mode; false where it holds none and has such bits.
  static __device__ __forceinline__ bool take(uint32_t bits, uint32_t j, uint32_t &mode) {
    if (j < carriers) mode |= bits << (j * spare);
    return j < carriers || bits == 0;
  }
  /// The modes that a tile of `elements` elements can write down.
  static __device__ __forceinline__ constexpr uint32_t room(uint32_t elements) {
    const uint32_t bits = (elements + O::span - 1) / O::span * spare;
    return bits < 8 ? 1u << bits : 256u;
  }
};

/// What a selector is told of the stages behind it: later transforms and the coder, asked for words. E elements a lane.
template <class C, int E, class SegmentGroup, bool Whole> struct SelectorTail {
  typedef typename C::Tail O;
  typedef typename O::In L;
  typedef typename C::First First;
  typedef TileShape<C> Shape;
  static constexpr bool whole = Whole;                         // no element of the tile lies beyond the stream
  static constexpr int each = O::span < E ? int(O::span) : E;  // elements of a segment in this lane
  static constexpr int held = E / each;                        // segments, or shares of one, in this lane
  static constexpr uint32_t most_words = C::most_words;        // a tile takes no more
  static constexpr bool additive = has_sum<typename O::Policy, L>::value;
  typedef typename has_sum<typename O::Policy, L>::type Sum;

  const uint8_t *params;
  uint32_t count_, elements_;

  /// Elements of the tile within the stream; at least 1.
  __device__ __forceinline__ uint32_t elements() const {
    if constexpr (Whole) return Shape::span;
    else return elements_;
  }
  /// How many modes, the lowest, may be chosen: all but in a stream's short last tile.
  __device__ __forceinline__ uint32_t modes() const {
    uint32_t found = Shape::modes;
    if constexpr (C::carries) { if (TileBits<C>::room(elements()) < found) found = TileBits<C>::room(elements()); }
    return found;
  }
  /// Add a code that a segment would hold.
  template <class T> __device__ __forceinline__ void add(Sum &sum, T code) const {
    First one[1] = {First(code)};
    C::later_each(one, params);
    tail_add<O, L>(sum, L(one[0]), params + C::tail_params);
  }
  /// Words of this lane's segment `k`, of which `sum` has every code; 0 where another lane counts it.
  __device__ __forceinline__ uint32_t words(const Sum &sum, int k) const { return counted(tail_measure<O, L>(sum, SegmentGroup(), params + C::tail_params), k); }
  /// Words of this lane's segments were they to hold `codes`; 0 for a segment that another lane counts.
  template <class T> __device__ __forceinline__ uint32_t words(const T (&codes)[E]) const {
    First c[E];
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = Whole || uint32_t(m) < count_ ? First(codes[m]) : First(0);
    C::later_each(c, params);
    if constexpr (!Whole) zero_from(c, count_);
    auto &last = as<L>(c);
    uint32_t found = 0;
    BRIQUETTE_UNROLL
    for (int k = 0; k < held; k++) {
      tail_prepare<O>(slice<each>(last, k), SegmentGroup());
      found += counted(tail_cost<O>(slice<each>(const_cast<const L(&)[E]>(last), k), SegmentGroup(), params + C::tail_params), k);
    }
    return found;
  }

 private:
  __device__ __forceinline__ uint32_t counted(uint32_t meta, int k) const {
    const bool mine = SegmentGroup().rank() == 0 && (Whole || uint32_t(k * each) < count_);
    return mine ? tail_size<O, L>(meta, params + C::tail_params) : 0u;
  }
};

/// The choices of the tiles in a lane's array of E elements, or of the one whose share it is. Side elements stand in a tile's
/// first lane.
template <class C, int E, bool = C::has_selector> struct TileChoices {};
template <class C, int E> struct TileChoices<C, E, true> {
  typedef typename TileShape<C>::T T;
  static constexpr int each = int(TileShape<C>::span) < E ? int(TileShape<C>::span) : E, held = E / each;
  static constexpr int sides = TileShape<C>::Policy::most_sides;
  uint32_t mode[held];
  T side[held][sides];

  __device__ __forceinline__ void clear() {
    BRIQUETTE_UNROLL
    for (int k = 0; k < held; k++) {
      mode[k] = 0;
      BRIQUETTE_UNROLL
      for (int i = 0; i < sides; i++) side[k][i] = T(0);
    }
  }
  __device__ __forceinline__ void write(int k, uint32_t *out) const {
    BRIQUETTE_UNROLL
    for (int i = 0; i < sides; i++) if (i < int(TileShape<C>::Policy::sides(mode[k]))) write_side(side[k][i], out + side_words<T>(i));
  }
  __device__ __forceinline__ void read(int k, const uint32_t *in) {
    BRIQUETTE_UNROLL
    for (int i = 0; i < sides; i++) if (i < int(TileShape<C>::Policy::sides(mode[k]))) side[k][i] = read_side<T>(in + side_words<T>(i));
  }
};

/// Choose for every tile of the lane's array, turn its codes into what was chosen, and apply the later transforms.
/// `count` elements of the lane lie within the stream, `left` of the chunk from the first tile on that the lane has a part of.
template <class C, bool Whole, class TileGroup, class SegmentGroup, int E>
__device__ __forceinline__ void choose_tiles(typename C::First (&c)[E], uint32_t count, uint32_t left, const uint8_t *params, TileChoices<C, E> &found) {
  typedef typename C::Selector O;
  constexpr int each = TileChoices<C, E>::each;
  auto &codes = as<typename O::In>(c);
  BRIQUETTE_UNROLL
  for (int k = 0; k < TileChoices<C, E>::held; k++) {
    uint32_t mine = each, elements = TileShape<C>::span;
    if constexpr (!Whole) {
      const uint32_t before = uint32_t(k * each);
      mine = count <= before ? 0u : count - before < mine ? count - before : mine;
      elements = left <= before ? 1u : left - before < elements ? left - before : elements;
    }
    const SelectorTail<C, each, SegmentGroup, Whole> tail{params, mine, elements};
    auto &span = slice<each>(codes, k);
    if constexpr (no_params<typename O::Params>) found.mode[k] = O::Policy::select(span, mine, TileGroup(), tail, found.side[k]);
    else found.mode[k] = O::Policy::select(span, mine, TileGroup(), tail, found.side[k], *reinterpret_cast<const typename O::Params *>(params + C::selector_params));
    if (!Whole && left <= uint32_t(k * each)) found.mode[k] = 0;
  }
  if constexpr (!Whole) zero_from(c, count);
  C::later_each(c, params);
  if constexpr (!Whole) zero_from(c, count);
}

/// Undo it.
template <class C, bool Whole, class TileGroup, int E>
__device__ __forceinline__ void restore_tiles(typename C::First (&c)[E], uint32_t count, const uint8_t *params, const TileChoices<C, E> &chosen) {
  typedef typename C::Selector O;
  constexpr int each = TileChoices<C, E>::each;
  if constexpr (!Whole) zero_from(c, count);
  C::later_undo(c, params);
  if constexpr (!Whole) zero_from(c, count);
  auto &codes = as<typename O::In>(c);
  BRIQUETTE_UNROLL
  for (int k = 0; k < TileChoices<C, E>::held; k++) {
    auto &span = slice<each>(codes, k);
    if constexpr (no_params<typename O::Params>) O::Policy::restore(chosen.mode[k], chosen.side[k], span, TileGroup());
    else O::Policy::restore(chosen.mode[k], chosen.side[k], span, TileGroup(), *reinterpret_cast<const typename O::Params *>(params + C::selector_params));
  }
}

}  // namespace briquette
