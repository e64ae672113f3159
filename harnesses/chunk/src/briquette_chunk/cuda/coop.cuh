// Chunk groups: who owns a byte-chunk together, and what they can ask of one another.
// Role: none; the harness hands a group to every policy call.
// Requires: C++17. All lanes of a group take part in every collective and every barrier.
// Source: the block-wide execution model of the LC framework (Burtscher et al.); scans by warp shuffles as in the CUDA C++ programming guide.
#pragma once
#include <briquette_warp/cuda/policy.cuh>

namespace briquette {

/// 16 bytes that move at once, of whatever type.
#if BRIQUETTE_EMULATED
struct __attribute__((may_alias, aligned(16))) Quad { uint32_t v[4]; };
#else
struct alignas(16) Quad { uint32_t v[4]; };
#endif

/// One host lane owns the whole chunk: collectives are identities and the policy is plain C++.
struct ChunkLane {
  static constexpr int size = 1;
  static constexpr int warp_size = 1;
  __device__ __forceinline__ uint32_t rank() const { return 0; }
  /// No more than an order: what was written as words of one type may be read as those of another behind it.
  __device__ __forceinline__ void sync() const { asm volatile("" ::: "memory"); }
  __device__ __forceinline__ uint32_t exclusive_sum(uint32_t x, uint32_t &total) const { total = x; return 0; }
  template <class T> __device__ __forceinline__ T warp_base(T) const { return T(0); }
  __device__ __forceinline__ uint32_t sum(uint32_t x) const { return x; }
  __device__ __forceinline__ uint32_t max(uint32_t x) const { return x; }
  __device__ __forceinline__ uint32_t bit_or(uint32_t x) const { return x; }
  __device__ __forceinline__ bool any(bool x) const { return x; }
  __device__ __forceinline__ void add(uint32_t *counter, uint32_t x) const { *counter += x; }
  __device__ __forceinline__ uint32_t broadcast(uint32_t x, uint32_t) const { return x; }
  __device__ __forceinline__ uint32_t warp() const { return 0; }
  __device__ __forceinline__ uint32_t lane() const { return 0; }
  __device__ static constexpr uint32_t warps() { return 1; }
  __device__ __forceinline__ void warp_sync() const {}
  __device__ __forceinline__ uint32_t ballot(bool x) const { return x; }
  template <class T> __device__ __forceinline__ T shuffle(T x, uint32_t) const { return x; }
  template <class T> __device__ __forceinline__ T shuffle_up(T, T fill) const { return fill; }
  template <class T> __device__ __forceinline__ T exchange(T x, uint32_t) const { return x; }
  template <class T> __device__ __forceinline__ T warp_inclusive_sum(T x) const { return x; }
};

#if !BRIQUETTE_HOST
/// The N lanes of a block own the chunk. `shared` is scratch of the group's own: 8 bytes a warp, for one collective at a time.
template <int N> struct ChunkLanes {
  static_assert(N % 32 == 0 && N <= 1024, "a block is whole warps");
  static constexpr int size = N;
  static constexpr int warp_size = 32;
  uint32_t *shared;

  __device__ __forceinline__ uint32_t rank() const { return threadIdx.x; }
  __device__ __forceinline__ void sync() const { __syncthreads(); }
  __device__ __forceinline__ uint32_t warp() const { return threadIdx.x >> 5; }
  __device__ __forceinline__ uint32_t lane() const { return threadIdx.x & 31; }
  __device__ static constexpr uint32_t warps() { return N / 32; }
  __device__ __forceinline__ void warp_sync() const { __syncwarp(); }

  /// The sum of x over the lanes below; `total` is that over all. Two barriers.
  __device__ __forceinline__ uint32_t exclusive_sum(uint32_t x, uint32_t &total) const {
    const uint32_t sum = warp_inclusive_sum(x);
    if (lane() == 31) shared[warp()] = sum;
    __syncthreads();
    uint32_t before = 0, all = 0;
    BRIQUETTE_UNROLL
    for (uint32_t w = 0; w < warps(); w++) { const uint32_t other = shared[w]; if (w < warp()) before += other; all += other; }
    __syncthreads();
    total = all;
    return before + sum - x;
  }
  /// The sum of x over the warps below; all lanes of a warp hold the same x. Two barriers.
  template <class T> __device__ __forceinline__ T warp_base(T x) const {
    unsigned long long *sums = reinterpret_cast<unsigned long long *>(shared);
    if (lane() == 0) sums[warp()] = (unsigned long long)(x);
    __syncthreads();
    T before = 0;
    BRIQUETTE_UNROLL
    for (uint32_t w = 0; w + 1 < warps(); w++) if (w < warp()) before = T(before + T(sums[w]));
    __syncthreads();
    return before;
  }
  __device__ __forceinline__ uint32_t sum(uint32_t x) const {
    return over_warps(__reduce_add_sync(0xffffffffu, x), [](uint32_t a, uint32_t b) { return a + b; });
  }
  __device__ __forceinline__ uint32_t max(uint32_t x) const {
    return over_warps(__reduce_max_sync(0xffffffffu, x), [](uint32_t a, uint32_t b) { return a < b ? b : a; });
  }
  __device__ __forceinline__ uint32_t bit_or(uint32_t x) const {
    return over_warps(__reduce_or_sync(0xffffffffu, x), [](uint32_t a, uint32_t b) { return a | b; });
  }
  __device__ __forceinline__ bool any(bool x) const { return __syncthreads_or(x) != 0; }
  /// Add to a counter in shared memory, which other lanes may add to at the same time; no barrier.
  __device__ __forceinline__ void add(uint32_t *counter, uint32_t x) const { atomicAdd(counter, x); }
  /// x of lane `from`, which all lanes ask for.
  __device__ __forceinline__ uint32_t broadcast(uint32_t x, uint32_t from) const {
    if (rank() == from) shared[0] = x;
    __syncthreads();
    const uint32_t got = shared[0];
    __syncthreads();
    return got;
  }

  // within a warp, all of whose lanes must come by; no barrier
  __device__ __forceinline__ uint32_t ballot(bool x) const { return __ballot_sync(0xffffffffu, x); }
  template <class T> __device__ __forceinline__ T shuffle(T x, uint32_t from) const {
    if constexpr (sizeof(T) == 8) return T(__shfl_sync(0xffffffffu, (unsigned long long)(x), int(from)));
    else return T(__shfl_sync(0xffffffffu, uint32_t(x), int(from)));
  }
  /// x of the lane below, `fill` in a warp's first.
  template <class T> __device__ __forceinline__ T shuffle_up(T x, T fill) const {
    T got;
    if constexpr (sizeof(T) == 8) got = T(__shfl_up_sync(0xffffffffu, (unsigned long long)(x), 1));
    else got = T(__shfl_up_sync(0xffffffffu, uint32_t(x), 1));
    return lane() == 0 ? fill : got;
  }
  /// x of the lane whose number differs in `bits`.
  template <class T> __device__ __forceinline__ T exchange(T x, uint32_t bits) const {
    if constexpr (sizeof(T) == 8) return T(__shfl_xor_sync(0xffffffffu, (unsigned long long)(x), int(bits)));
    else return T(__shfl_xor_sync(0xffffffffu, uint32_t(x), int(bits)));
  }
  /// The sum of x over a warp's lanes up to this one.
  template <class T> __device__ __forceinline__ T warp_inclusive_sum(T x) const {
    BRIQUETTE_UNROLL
    for (int step = 1; step < 32; step <<= 1) {
      T got;
      if constexpr (sizeof(T) == 8) got = T(__shfl_up_sync(0xffffffffu, (unsigned long long)(x), step));
      else got = T(__shfl_up_sync(0xffffffffu, uint32_t(x), step));
      if (int(lane()) >= step) x = T(x + got);
    }
    return x;
  }

 private:
  template <class F> __device__ __forceinline__ uint32_t over_warps(uint32_t x, F join) const {
    if (lane() == 0) shared[warp()] = x;
    __syncthreads();
    uint32_t all = shared[0];
    BRIQUETTE_UNROLL
    for (uint32_t w = 1; w < warps(); w++) all = join(all, shared[w]);
    __syncthreads();
    return all;
  }
};
#endif

/// Ask `bit(i)` for every i below n; `put(b, word)` is called, by one lane, with the answers to 32 b, 32 b + 1, ... from bit 0 up.
template <class G, class Bit, class Put> __device__ __forceinline__ void for_each_ballot(uint32_t n, G g, Bit bit, Put put) {
  for (uint32_t block = g.warp(); block < (n + 31) / 32; block += G::warps()) {
    uint32_t word = 0;
    if constexpr (G::size == 1) {
      const uint32_t count = n - block * 32 < 32 ? n - block * 32 : 32;
      for (uint32_t i = 0; i < count; i++) word |= uint32_t(bit(block * 32 + i) ? 1 : 0) << i;
    } else {
      const uint32_t i = block * 32 + g.lane();
      word = g.ballot(i < n && bit(i));
    }
    if (g.lane() == 0) put(block, word);
  }
}

/// Elements that go at once: 16 bytes of a block's lane; on the host enough to vectorize over.
template <class T, class G> constexpr int at_once = G::size == 1 ? int(256 / sizeof(T)) : int(16 / sizeof(T));

/// The elements from `at` on, and back; on the device 16 bytes that begin at a multiple of 16.
template <class T, int E> __device__ __forceinline__ void read_elements(const T *at, T (&c)[E]) {
  if constexpr (E * sizeof(T) == 16) {
    const Quad q = *reinterpret_cast<const Quad *>(at);
    memcpy(c, &q, 16);
  } else memcpy(c, at, sizeof c);
}
template <class T, int E> __device__ __forceinline__ void write_elements(T *at, const T (&c)[E]) {
  if constexpr (E * sizeof(T) == 16) {
    Quad q;
    memcpy(&q, c, 16);
    *reinterpret_cast<Quad *>(at) = q;
  } else memcpy(at, c, sizeof c);
}

/// Copy bytes between aligned buffers, strided over the group; no barrier.
template <class G> __device__ __forceinline__ void copy_bytes(const uint8_t *in, uint8_t *out, uint32_t from, uint32_t to, G g) {
  if constexpr (G::size == 1) memcpy(out + from, in + from, to - from);
  else for (uint32_t i = from + g.rank(); i < to; i += G::size) out[i] = in[i];
}

}  // namespace briquette
