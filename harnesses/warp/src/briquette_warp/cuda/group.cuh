// Lane groups: who holds a span together, and what they can ask of one another.
// Role: none; the harness hands a group to every policy call.
// Requires: policy.cuh. All lanes of a group take part in every collective; the groups of a warp may take different ways.
// Source: warp-level primitives as in the CUDA C++ programming guide; recursive bit transposition after Warren, Hacker's Delight.
#pragma once
#include <briquette_warp/cuda/policy.cuh>

namespace briquette {

/// One lane holds the whole span: collectives are identities and the policy is plain C++.
struct OneLane {
  static constexpr int size = 1;
  __device__ __forceinline__ int rank() const { return 0; }
  template <class T> __device__ __forceinline__ T shift_up(T, T fill) const { return fill; }
  template <class T> __device__ __forceinline__ T exclusive_sum(T) const { return T(0); }
  template <class T> __device__ __forceinline__ T sum(T x) const { return x; }
  template <class T> __device__ __forceinline__ T max(T x) const { return x; }
  template <class T> __device__ __forceinline__ T bit_or(T x) const { return x; }
  __device__ __forceinline__ bool any(bool x) const { return x; }
  template <class T> __device__ __forceinline__ T broadcast(T x, int) const { return x; }
  template <class T> __device__ __forceinline__ T exchange(T x, int) const { return x; }
  /// What is at least `x`, and the same in all lanes that run together: to choose one way for all of them, where each would
  /// be right. To be called where all lanes come by, whatever their data.
  __device__ __forceinline__ uint32_t most(uint32_t x) const {
#if BRIQUETTE_HOST
    return x;
#else
    return __reduce_max_sync(0xffffffffu, x);
#endif
  }
};

#if !BRIQUETTE_HOST
/// N neighbouring lanes of a warp (a power of two up to 32) hold the span, lane r the elements [r * E, r * E + E).
/// Lockstep: all groups of the warp reach every collective together, which saves asking who is there.
template <int N, bool Lockstep = false> struct WarpLanes {
  static_assert(N >= 2 && N <= 32 && (N & (N - 1)) == 0, "a group is a power of two of lanes");
  static constexpr int size = N;
  __device__ __forceinline__ int rank() const { return int(threadIdx.x & (N - 1)); }
  template <class T> __device__ __forceinline__ T shift_up(T x, T fill) const {
    T got = shuffle_up(x, 1);
    return rank() == 0 ? fill : got;
  }
  template <class T> __device__ __forceinline__ T exclusive_sum(T x) const {
    typedef unsigned_of<T> U;
    U sum = U(x);
    BRIQUETTE_UNROLL
    for (int step = 1; step < N; step <<= 1) { U got = U(shuffle_up(T(sum), step)); if (rank() >= step) sum = U(sum + got); }
    return T(U(sum - U(x)));
  }
  template <class T> __device__ __forceinline__ T sum(T x) const {
    typedef unsigned_of<T> U;
    BRIQUETTE_UNROLL
    for (int step = N / 2; step; step >>= 1) x = T(U(U(x) + U(exchange(x, step))));
    return x;
  }
  template <class T> __device__ __forceinline__ T max(T x) const {
    BRIQUETTE_UNROLL
    for (int step = N / 2; step; step >>= 1) { T got = exchange(x, step); x = got > x ? got : x; }
    return x;
  }
  template <class T> __device__ __forceinline__ T bit_or(T x) const {
    BRIQUETTE_UNROLL
    for (int step = N / 2; step; step >>= 1) x = T(x | exchange(x, step));
    return x;
  }
  __device__ __forceinline__ bool any(bool x) const { return bit_or(uint32_t(x)) != 0; }
  /// The value lane `from` of the group holds; each lane may ask another.
  template <class T> __device__ __forceinline__ T broadcast(T x, int from) const {
    static_assert(is_integer<T>, "lane groups exchange integers");
    if constexpr (sizeof(T) == 8) return T(__shfl_sync(mask(), (unsigned long long)(x), from, N));
    else return T(__shfl_sync(mask(), int(x), from, N));
  }
  /// The value of the lane whose rank differs in `bits`.
  template <class T> __device__ __forceinline__ T exchange(T x, int bits) const {
    static_assert(is_integer<T>, "lane groups exchange integers");
    if constexpr (sizeof(T) == 8) return T(__shfl_xor_sync(mask(), (unsigned long long)(x), bits, N));
    else return T(__shfl_xor_sync(mask(), int(x), bits, N));
  }

 private:
  /// The group's lanes within the warp: what one segment does (its width, say) must not hold up another.
  __device__ __forceinline__ unsigned mask() const {
    if constexpr (N == 32 || Lockstep) return 0xffffffffu;
    else return ((1u << (N & 31)) - 1u) << (threadIdx.x & (32 - N));
  }
  template <class T> __device__ __forceinline__ T shuffle_up(T x, int step) const {
    static_assert(is_integer<T>, "lane groups exchange integers");
    if constexpr (sizeof(T) == 8) return T(__shfl_up_sync(mask(), (unsigned long long)(x), step, N));
    else return T(__shfl_up_sync(mask(), int(x), step, N));
  }
};
#endif

#if BRIQUETTE_HOST
/// Running sums within vectors of 32 bytes: what a loop would do one after another, three additions do for eight.
template <class U, int E> static inline void vector_sum(U (&c)[E]) {
  constexpr int N = 32 / sizeof(U);
  typedef U V __attribute__((vector_size(32)));
  const V zero = {};
  V carry = zero;
  for (int k = 0; k < E; k += N) {
    V v;
    memcpy(&v, &c[k], 32);
    V first, last;
    for (int i = 0; i < N; i++) last[i] = U(N - 1);
#pragma GCC unroll 4
    for (int step = 1; step < N; step <<= 1) {
      for (int i = 0; i < N; i++) first[i] = U(i < step ? i : N + i - step);
      v += __builtin_shuffle(zero, v, first);
    }
    v += carry;
    carry = __builtin_shuffle(v, last);
    memcpy(&c[k], &v, 32);
  }
}
#endif

/// Replace every element of the span by the sum of those up to it, modulo 2^bits.
template <class T, int E, class G> __device__ __forceinline__ void inclusive_sum(T (&c)[E], G g) {
  typedef unsigned_of<T> U;
#if BRIQUETTE_HOST && defined(__GNUC__) && !defined(__clang__)
  if constexpr (G::size == 1 && E % (32 / sizeof(T)) == 0) {
    vector_sum(as_unsigned(c));
    return;
  }
#endif
  U sum = 0;
  BRIQUETTE_UNROLL
  for (int m = 0; m < E; m++) c[m] = T(sum = U(sum + U(c[m])));
  if constexpr (G::size > 1) {
    const U base = U(g.exclusive_sum(c[E - 1]));
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) c[m] = T(U(U(c[m]) + base));
  }
}

/// Transpose the 32 x 32 bit matrix whose row i is element i of 32 elements: afterwards element p holds bit p of every row,
/// row i in bit i. E elements a lane, so 32 / E neighbouring lanes hold a matrix; a larger group transposes several.
template <int E, class G> __device__ __forceinline__ void bit_transpose(uint32_t (&row)[E], G g) {
  static_assert(E <= 32 && (E & (E - 1)) == 0 && E * G::size % 32 == 0, "a bit transpose takes 32 elements at a time");
  constexpr uint32_t low[5] = {0x0000ffffu, 0x00ff00ffu, 0x0f0f0f0fu, 0x33333333u, 0x55555555u};
  BRIQUETTE_UNROLL
  for (int level = 0; level < 5; level++) {
    const int step = 16 >> level;
    const uint32_t mask = low[level];
    if (step < E) {
      BRIQUETTE_UNROLL
      for (int i = 0; i < E; i++)
        if (!(i & step)) {
          uint32_t a = row[i], b = row[i | (step < E ? step : 0)];
          uint32_t t = ((a >> step) ^ b) & mask;
          row[i] = a ^ (t << step);
          row[i | (step < E ? step : 0)] = b ^ t;
        }
    } else {
      const int other = step / E;
      const bool upper = (g.rank() & other) != 0;
      BRIQUETTE_UNROLL
      for (int i = 0; i < E; i++) {
        uint32_t got = g.exchange(row[i], other);
        row[i] = upper ? ((row[i] & ~mask) | ((got >> step) & mask)) : ((row[i] & mask) | ((got & mask) << step));
      }
    }
  }
}

}  // namespace briquette
