// The outliers side stream on the device: one block writes or restores one archive chunk's values kept aside.
// Role: a harness primitive for heads that keep values aside.
// Requires: device.cuh; chunks of at most 8192 elements.
// Source: docs/format.md, "Outliers".
#pragma once
#include <briquette_warp/cuda/device.cuh>

namespace briquette {
namespace device {

__device__ __forceinline__ uint32_t words_for(uint32_t bytes) { return (bytes + 3) / 4; }

/// A set of up to 8192 numbers as a bit each, and where in it a number stands.
struct BitSet {
  uint32_t *bits;    // 256 words
  uint32_t *before;  // 256 words: members in earlier words

  __device__ __forceinline__ void clear() const { bits[threadIdx.x] = 0; }
  __device__ __forceinline__ void add(uint32_t i) const { atomicOr(&bits[i >> 5], 1u << (i & 31)); }
  /// Count the members; call with all lanes once the bits are there (barriers inside).
  __device__ __forceinline__ uint32_t count(uint32_t *scratch) const {
    __syncthreads();
    uint32_t total;
    const uint32_t sum = block_sum(uint32_t(__popc(bits[threadIdx.x])), scratch, total);
    before[threadIdx.x] = sum;
    __syncthreads();
    return total;
  }
  /// Members below or at `i`.
  __device__ __forceinline__ uint32_t rank(uint32_t i) const { return before[i >> 5] + uint32_t(__popc(bits[i >> 5] & (0xffffffffu >> (31 - (i & 31))))); }
};

/// Call `each(position, rank)` for every member of this lane's word.
template <class F> __device__ __forceinline__ void for_each(const BitSet &set, F each) {
  uint32_t rank = set.before[threadIdx.x];
  for (uint32_t rest = set.bits[threadIdx.x]; rest; rest &= rest - 1, rank++) each(threadIdx.x * 32u + uint32_t(__ffs(int(rest))) - 1u, rank);
}

/// Sum of lengths of consecutive runs, as they are read: marks in `starts` the rank at which each run begins.
__device__ __forceinline__ bool mark_runs(const uint16_t *less, uint32_t runs, uint32_t count, const BitSet &starts, uint32_t *scratch) {
  uint32_t at = 0;
  bool sound = true;
  starts.clear();
  for (uint32_t first = 0; first < runs; first += lanes) {  // runs is the same in all lanes
    __syncthreads();
    const uint32_t k = first + threadIdx.x, length = k < runs ? less[k] + 1u : 0u;
    uint32_t total;
    const uint32_t mine = at + block_sum(length, scratch, total);
    if (k < runs && mine < count) starts.add(mine);
    at += total;
    if (at > count) { sound = false; break; }
  }
  return sound && at == count;
}

/// Write the values kept aside over a tile, in rows of shared memory or, without `Rows`, one after another. All lanes get the same answer: false where the words are damaged.
template <class X, bool Rows = true> __device__ __noinline__ bool restore_outliers(const uint32_t *in, uint32_t words, uint32_t elements, X *tile) {
  typedef typename Bits<X>::type B;
  __shared__ uint32_t set_bits[2][lanes], set_before[2][lanes], scratch[lanes / 32];
  const BitSet where{set_bits[0], set_before[0]}, starts{set_bits[1], set_before[1]};
  const uint32_t t = threadIdx.x;
  const uint32_t count = in[0] & 0x0fffffffu, form = in[0] >> 28 & 3, values = in[0] >> 30;
  if (!count || count > elements || form > 2 || values > 1) return false;
  const uint32_t *position = in + 1;
  uint32_t position_words = form == 0 ? words_for(2 * count) : words_for((elements + 7) / 8);
  if (form == 2) {
    if (words < 2 || !position[0] || position[0] > count) return false;
    position_words = 1 + position[0];
  }
  if (words < 1 + position_words) return false;
  const uint32_t *value = position + position_words;
  const uint32_t left = words - 1 - position_words;
  uint32_t runs = 0, value_at = 0;
  if (values == 1) {
    if (!left || !value[0] || value[0] > count) return false;
    runs = value[0];
    value_at = 1 + words_for(2 * runs);
    if (left != value_at + words_for(uint32_t(sizeof(B)) * runs)) return false;
  } else if (left != words_for(uint32_t(sizeof(B)) * count)) return false;

  // padding is zero: the bytes of an archive have one meaning
  if (form == 0 && count & 1 && position[position_words - 1] >> 16) return false;
  if (values == 1 && runs & 1 && value[value_at - 1] >> 16) return false;
  if (sizeof(B) == 2 && (values == 1 ? runs : count) & 1 && value[left - 1] >> 16) return false;
  bool sound = true;
  where.clear();
  __syncthreads();
  if (form == 0) {
    const uint16_t *list = reinterpret_cast<const uint16_t *>(position);
    for (uint32_t i = t; i < count; i += lanes) {
      if (list[i] >= elements || (i && list[i] <= list[i - 1])) sound = false;
      else where.add(list[i]);
    }
  } else if (form == 1) {
    if (t < position_words) where.bits[t] = position[t];
    if (t == 0 && (elements & 31) && position[position_words - 1] >> (elements & 31)) sound = false;
  } else {
    for (uint32_t k = t; k < position[0]; k += lanes) {
      const uint32_t start = position[1 + k] & 0xffff, size = (position[1 + k] >> 16) + 1;
      const uint32_t before = k ? (position[k] & 0xffff) + (position[k] >> 16) + 1 : 0;
      if (start + size > elements || start < before) { sound = false; continue; }
      for (uint32_t w = start >> 5; w <= (start + size - 1) >> 5; w++) {
        const uint32_t low = w * 32 < start ? start - w * 32 : 0, high = (w + 1) * 32 > start + size ? start + size - w * 32 : 32;
        atomicOr(&where.bits[w], (0xffffffffu >> (32 - (high - low))) << low);
      }
    }
  }
  sound = __syncthreads_and(sound);
  if (!sound || where.count(scratch) != count) return false;
  if (values == 1) {
    sound = mark_runs(reinterpret_cast<const uint16_t *>(value + 1), runs, count, starts, scratch);
    starts.count(scratch);
    if (!__syncthreads_and(sound)) return false;
  }
  for_each(where, [&](uint32_t at, uint32_t rank) {
    const uint32_t index = values == 1 ? starts.rank(rank) - 1 : rank;
    B bits;
    if constexpr (sizeof(B) == 2) bits = reinterpret_cast<const B *>(value + value_at)[index];
    else {
      const uint32_t *from = value + value_at + index * uint32_t(sizeof(B) / 4);
      bits = from[0];
      if constexpr (sizeof(B) == 8) bits |= B(from[1]) << 32;
    }
    reinterpret_cast<B *>(tile)[Rows ? (at / per_lane) * pitch<X> + at % per_lane : at] = bits;
  });
  return true;
}

/// What a run gives the kernel that writes the side stream.
struct Aside {
  const void *in;
  uint64_t n;
  const uint32_t *kept, *kept_warps;
  uint32_t *sizes, *words;
  uint64_t *blocks;
  uint64_t words_room;
  Lookback lookback;
  unsigned long long *total;
};

template <class X, int Chunk = chunk> __device__ __forceinline__ void encode_outliers(const Aside &f) {
  typedef typename Bits<X>::type B;
  BRIQUETTE_DYNAMIC_SHARED(Vector, memory);  // the values kept aside, by rank
  B *held = reinterpret_cast<B *>(memory);
  __shared__ uint32_t set_bits[2][lanes], set_before[2][lanes], scratch[lanes / 32];
  __shared__ unsigned long long drawn, placed;
  const BitSet where{set_bits[0], set_before[0]}, starts{set_bits[1], set_before[1]};
  const uint32_t t = threadIdx.x;
  const uint64_t id = f.lookback.ticket(&drawn), first = id * Chunk;
  const uint32_t m = uint32_t(f.n - first < uint64_t(Chunk) ? f.n - first : uint64_t(Chunk));
  const uint32_t warps = f.kept_warps[id];
  uint32_t count = 0, total = 0, spans = 0, equals = 0, form = 0, position_words = 0;
  bool repeat = false;
  if (warps) {
    where.bits[t] = warps >> (t >> 5) & 1 ? f.kept[id * lanes + t] : 0;
    count = where.count(scratch);
    const B *in = reinterpret_cast<const B *>(f.in) + first;
    for_each(where, [&](uint32_t at, uint32_t rank) { held[rank] = in[at]; });
    const uint32_t carry = t ? where.bits[t - 1] >> 31 : 0, begins = where.bits[t] & ~(where.bits[t] << 1 | carry);
    block_sum(uint32_t(__popc(begins)), scratch, spans);
    starts.clear();
    __syncthreads();
    for (uint32_t i = t; i < count; i += lanes) if (i == 0 || held[i] != held[i - 1]) starts.add(i);
    equals = starts.count(scratch);
    const uint32_t words[3] = {words_for(2 * count), words_for((m + 7) / 8), 1 + spans};
    for (uint32_t k = 1; k < 3; k++) if (words[k] < words[form]) form = k;
    position_words = words[form];
    const uint32_t each = words_for(uint32_t(sizeof(B)) * count), runs = 1 + words_for(2 * equals) + words_for(uint32_t(sizeof(B)) * equals);
    repeat = runs < each;
    total = 1 + position_words + (repeat ? runs : each);
  }
  f.lookback.announce(id, total);
  if (t < 32) {
    const uint64_t base = f.lookback.before(id, total);
    if (t == 0) {
      placed = base;
      f.sizes[id] = total;
      if ((id & 63) == 0) f.blocks[id >> 6] = base;
      if (id == gridDim.x - 1) *f.total = base + total;
    }
  }
  __syncthreads();
  const uint64_t base = placed;
  if (!count || base + total > f.words_room) return;
  uint32_t *out = f.words + base, *position = out + 1, *value = position + position_words;
  if (t == 0) {
    out[0] = count | form << 28 | uint32_t(repeat) << 30;
    if (form == 0 && count & 1) reinterpret_cast<uint16_t *>(position)[count] = 0;
    if (form == 2) position[0] = spans;
    if (repeat) {
      value[0] = equals;
      if (equals & 1) reinterpret_cast<uint16_t *>(value + 1)[equals] = 0;
    }
    if (sizeof(B) == 2 && (repeat ? equals : count) & 1) reinterpret_cast<uint16_t *>(value + (repeat ? 1 + words_for(2 * equals) : 0))[repeat ? equals : count] = 0;
  }
  if (form == 0) for_each(where, [&](uint32_t at, uint32_t rank) { reinterpret_cast<uint16_t *>(position)[rank] = uint16_t(at); });
  else if (form == 1) { if (t < position_words) position[t] = where.bits[t]; }
  else {
    // run k begins at the k-th first position: ranks among the run starts come from a set of their own
    __syncthreads();
    const uint32_t carry = t ? where.bits[t - 1] >> 31 : 0, begins = where.bits[t] & ~(where.bits[t] << 1 | carry);
    uint32_t all;
    uint32_t k = block_sum(uint32_t(__popc(begins)), scratch, all);
    for (uint32_t rest = begins; rest; rest &= rest - 1, k++) {
      const uint32_t at = t * 32u + uint32_t(__ffs(int(rest))) - 1u;
      uint32_t end = at + 1;
      while (end < m) {  // skip whole words of members
        const uint32_t word = ~where.bits[end >> 5] >> (end & 31);
        if (word) { end += uint32_t(__ffs(int(word))) - 1u; break; }
        end = (end | 31) + 1;
      }
      position[1 + k] = at | (end - at - 1) << 16;
    }
  }
  uint32_t *store = repeat ? value + 1 + words_for(2 * equals) : value;
  for (uint32_t i = t; i < count; i += lanes) {
    if (repeat && !(starts.bits[i >> 5] >> (i & 31) & 1)) continue;
    const uint32_t k = repeat ? starts.rank(i) - 1 : i;
    if constexpr (sizeof(B) == 2) reinterpret_cast<B *>(store)[k] = held[i];
    else store[k * (sizeof(B) / 4)] = uint32_t(held[i]);
    if constexpr (sizeof(B) == 8) store[k * 2 + 1] = uint32_t(uint64_t(held[i]) >> 32);
    if (repeat) {
      uint32_t end = i + 1;
      while (end < count) {
        const uint32_t word = starts.bits[end >> 5] >> (end & 31);
        if (word) { end += uint32_t(__ffs(int(word))) - 1u; break; }
        end = (end | 31) + 1;
      }
      if (end > count) end = count;
      reinterpret_cast<uint16_t *>(value + 1)[k] = uint16_t(end - i - 1);
    }
  }
}

}  // namespace device
}  // namespace briquette
