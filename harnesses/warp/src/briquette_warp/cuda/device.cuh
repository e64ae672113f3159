// The device skeleton's common ground: geometry, block-wide sums, decoupled look-back, tile transfers.
// Role: shared by the forward, inverse and outlier kernels of the CUDA target.
// Requires: NVRTC or nvcc, sm_80 or newer; 256 lanes a block, 32 elements a lane.
// Source: single-pass look-back after Merrill and Garland, NVR-2016-002; tickets as in Onesweep (Adinets and Merrill, 2022).
#pragma once
#include <briquette_warp/cuda/calls.cuh>

namespace briquette {
namespace device {

constexpr int lanes = 256;           // of a block
constexpr int per_lane = 32;         // elements
constexpr int chunk = lanes * per_lane;

enum Flag : uint32_t { damaged = 1 };

/// A row of shared memory holds one lane's elements and 16 bytes of padding, so that 16-byte accesses do not collide.
template <class X> constexpr int pitch = int((per_lane * sizeof(X) + 16) / sizeof(X));

/// `name` is the block's dynamic shared memory, as an array of T.
#if BRIQUETTE_EMULATED
#define BRIQUETTE_DYNAMIC_SHARED(T, name) T *const name = static_cast<T *>(briquette::emulator::shared_memory())
struct __attribute__((may_alias, aligned(16))) Vector { uint32_t v[4]; };
#else
#define BRIQUETTE_DYNAMIC_SHARED(T, name) extern __shared__ T name[]
struct alignas(16) Vector { uint32_t v[4]; };
#endif

__device__ __forceinline__ bool aligned16(const void *p) { return (reinterpret_cast<uint64_t>(p) & 15) == 0; }

/// Copy `count` of a chunk's elements into the rows of `tile`; what lies beyond is zero. Ends with a barrier.
template <class X> __device__ __forceinline__ void load_tile(const X *in, uint32_t count, X *tile) {
  constexpr int V = 16 / sizeof(X), rows = per_lane / V;
  if (count == uint32_t(chunk) && aligned16(in)) {
    const uint32_t row = threadIdx.x / rows, column = threadIdx.x % rows;  // of this lane's first piece; the others follow at
    const X *from = in + threadIdx.x * V;
#if BRIQUETTE_EMULATED
    X *to = tile + row * pitch<X> + column * V;
    for (int k = 0; k < rows; k++) *reinterpret_cast<Vector *>(to + k * (lanes / rows) * pitch<X>) = *reinterpret_cast<const Vector *>(from + k * lanes * V);
#else
    const unsigned to = unsigned(__cvta_generic_to_shared(tile + row * pitch<X> + column * V));  // constant distances
    BRIQUETTE_UNROLL
    for (int k = 0; k < rows; k++)
      asm volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(to + unsigned(k * (lanes / rows) * pitch<X> * sizeof(X))), "l"(from + k * lanes * V));
    asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;" ::: "memory");
#endif
  } else {
    for (int i = int(threadIdx.x); i < chunk; i += lanes) tile[(i / per_lane) * pitch<X> + i % per_lane] = uint32_t(i) < count ? in[i] : X(0);
  }
  __syncthreads();
}

/// Copy the rows of `tile` to `count` elements of a chunk. Begins with a barrier.
template <class X> __device__ __forceinline__ void store_tile(X *out, uint32_t count, const X *tile) {
  constexpr int V = 16 / sizeof(X), rows = per_lane / V;
  __syncthreads();
  if (count == uint32_t(chunk) && aligned16(out)) {
    const X *from = tile + threadIdx.x / rows * pitch<X> + threadIdx.x % rows * V;
    Vector *to = reinterpret_cast<Vector *>(out) + threadIdx.x;
    BRIQUETTE_UNROLL
    for (int k = 0; k < rows; k++) to[k * lanes] = *reinterpret_cast<const Vector *>(from + k * (lanes / rows) * pitch<X>);
  } else {
    for (uint32_t i = threadIdx.x; i < count; i += lanes) out[i] = tile[(i / per_lane) * pitch<X> + i % per_lane];
  }
}

/// A lane's elements from its row, and back.
template <class X> __device__ __forceinline__ void read_row(const X *row, X (&x)[per_lane]) {
  constexpr int V = 16 / sizeof(X);
  BRIQUETTE_UNROLL
  for (int k = 0; k < per_lane / V; k++) {
    const Vector held = *reinterpret_cast<const Vector *>(row + k * V);
    const X *part = reinterpret_cast<const X *>(&held);
    BRIQUETTE_UNROLL
    for (int j = 0; j < V; j++) x[k * V + j] = part[j];
  }
}
template <class X> __device__ __forceinline__ void write_row(X *row, const X (&x)[per_lane]) {
  constexpr int V = 16 / sizeof(X);
  BRIQUETTE_UNROLL
  for (int k = 0; k < per_lane / V; k++) {
    Vector held;
    X *part = reinterpret_cast<X *>(&held);
    BRIQUETTE_UNROLL
    for (int j = 0; j < V; j++) part[j] = x[k * V + j];
    *reinterpret_cast<Vector *>(row + k * V) = held;
  }
}

/// Exclusive sum of `value` over the block's lanes; `total` gets the sum. `scratch` is 8 words. One barrier inside.
__device__ __forceinline__ uint32_t block_sum(uint32_t value, uint32_t *scratch, uint32_t &total) {
  const int lane = int(threadIdx.x & 31), warp = int(threadIdx.x >> 5);
  uint32_t sum = value;
  BRIQUETTE_UNROLL
  for (int step = 1; step < 32; step <<= 1) { uint32_t got = __shfl_up_sync(0xffffffffu, sum, step); if (lane >= step) sum += got; }
  if (lane == 31) scratch[warp] = sum;
  __syncthreads();
  uint32_t before = 0;
  total = 0;
  BRIQUETTE_UNROLL
  for (int w = 0; w < lanes / 32; w++) { const uint32_t other = scratch[w]; if (w < warp) before += other; total += other; }
  return before + sum - value;
}

/// Words that blocks hand one another: whole, and in no order with anything else.
#if BRIQUETTE_EMULATED
static inline void store_relaxed(unsigned long long *p, unsigned long long x) { __atomic_store_n(p, x, __ATOMIC_RELAXED); }
static inline unsigned long long load_relaxed(const unsigned long long *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
#else
__device__ __forceinline__ void store_relaxed(unsigned long long *p, unsigned long long x) { asm volatile("st.relaxed.gpu.global.u64 [%0],%1;" ::"l"(p), "l"(x) : "memory"); }
__device__ __forceinline__ unsigned long long load_relaxed(const unsigned long long *p) {
  unsigned long long x;
  asm volatile("ld.relaxed.gpu.global.u64 %0,[%1];" : "=l"(x) : "l"(p) : "memory");
  return x;
}
#endif

/// State of the look-back of one run: a ticket, then one word a tile; all zero at the start.
struct Lookback {
  unsigned long long *words;
  static constexpr unsigned long long aggregate = 1ull << 62, prefix = 2ull << 62, mask = (1ull << 62) - 1;

  /// The next tile in the order in which blocks start, so that a tile's predecessors are running or done.
  __device__ __forceinline__ uint64_t ticket(unsigned long long *shared) const {
    if (threadIdx.x == 0) *shared = atomicAdd(words, 1ull);
    __syncthreads();
    return *shared;
  }
  __device__ __forceinline__ void publish(uint64_t tile, unsigned long long state) const {
    // one word says all there is to say, so that nothing else need be ordered
    store_relaxed(words + 1 + tile, state);
  }
  __device__ __forceinline__ void announce(uint64_t tile, uint64_t total) const {
    if (threadIdx.x == 0) publish(tile, (tile == 0 ? prefix : aggregate) | total);
  }
  /// The sum over all earlier tiles; called by the whole first warp, after announce.
  __device__ __forceinline__ uint64_t before(uint64_t tile, uint64_t total) const {
    if (tile == 0) return 0;
    const int lane = int(threadIdx.x & 31);
    unsigned long long sum = 0;
    for (long long at = (long long)(tile) - 1 - lane;; at -= 32) {
      unsigned long long state = prefix;
      do {
        if (at >= 0) state = load_relaxed(words + 1 + at);
      } while (!__all_sync(0xffffffffu, (state >> 62) != 0));
      const unsigned done = __ballot_sync(0xffffffffu, (state >> 62) == 2);
      const int first = done ? __ffs(int(done)) - 1 : 32;
      unsigned long long value = lane <= first ? state & mask : 0;
      BRIQUETTE_UNROLL
      for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(0xffffffffu, value, step);
      sum += value;
      if (done) break;
    }
    if (lane == 0) publish(tile, prefix | (sum + total));
    return sum;
  }
};

/// Word offset of chunk `c`: the table's offset of its block of 64, and the sizes since. Called by a whole warp.
__device__ __forceinline__ uint64_t chunk_offset(const uint64_t *blocks, const uint32_t *sizes, uint64_t c) {
  const int lane = int(threadIdx.x & 31);
  const uint32_t *block = sizes + (c & ~uint64_t(63));
  const int within = int(c & 63);
  uint32_t sum = lane < within ? block[lane] : 0;  // 64 chunks are less than 2^32 words, and what is not is found out
  if (lane + 32 < within) sum += block[lane + 32];
  return blocks[c >> 6] + __reduce_add_sync(0xffffffffu, sum);
}

/// A policy on its own share of lanes: slices of one lane, or the lanes a longer span is spread over.
template <class O, class T> __device__ __forceinline__ void lane_forward(T (&c)[per_lane], const uint8_t *params) {
  if constexpr (O::span > per_lane) op_forward<O>(c, WarpLanes<O::span / per_lane>(), params);
  else each_forward<O>(c, OneLane(), params);
}
template <class O, class T> __device__ __forceinline__ void lane_inverse(T (&c)[per_lane], const uint8_t *params) {
  if constexpr (O::span > per_lane) op_inverse<O>(c, WarpLanes<O::span / per_lane>(), params);
  else each_inverse<O>(c, OneLane(), params);
}

/// The lanes a coder's segment is spread over, and how many segments a lane's array holds.
template <bool Spread, int S> struct SegmentLanes { typedef WarpLanes<S / per_lane> Group; };
template <int S> struct SegmentLanes<false, S> { typedef OneLane Group; };
/// Whether a coder packs with the whole warp, one segment after another (element.cuh).
template <class Q> struct packs_together {
  template <class R> __device__ static auto test(int) -> decltype(char(R::together));
  template <class R> __device__ static long test(...);
  static constexpr bool value = sizeof(test<Q>(0)) == 1;
};
template <class O> struct Segments {
  static constexpr bool together = packs_together<typename O::Policy>::value;
  static constexpr bool spread = O::span > per_lane;
  static constexpr int each = spread ? per_lane : O::span;  // elements of a segment in one lane
  static constexpr int held = per_lane / each;              // segments, or shares of one, in a lane
  typedef typename SegmentLanes<spread, O::span>::Group Group;
};

/// Heads with a branch-free form that is right for most values say so by `quantize_fast` and `dequantize_fast`.
template <class H, class X, class C, class P> struct has_fast {
  template <class Q> __device__ static auto quantize(int) -> decltype(Q::quantize_fast(X(0), *(C *)0, *(const P *)0), char());
  template <class Q> __device__ static long quantize(...);
  template <class Q> __device__ static auto dequantize(int) -> decltype(Q::dequantize_fast(C(0), *(X *)0, *(const P *)0), char());
  template <class Q> __device__ static long dequantize(...);
  static constexpr bool in = sizeof(quantize<H>(0)) == 1, out = sizeof(dequantize<H>(0)) == 1;
};

}  // namespace device
}  // namespace briquette
