// Smallest, largest and first finite value of a stream, and the parameters a head resolves from them, in one launch.
// Role: a harness primitive for heads; NaN, infinities and missing values are skipped. Integers are found as integers, exactly.
// Requires: device.cuh; results and counter zero at the start.
// Source: briquette; last-block-done reduction as in the CUDA samples (threadFenceReduction).
#pragma once
#include <briquette_warp/cuda/device.cuh>

namespace briquette {
namespace device {

/// Values as integers in the same order; `finite` false for NaN and infinities.
template <class X> struct Ordered;  // of integers: below
template <> struct Ordered<float> {
  static __device__ __forceinline__ uint32_t bits(float x) { return __float_as_uint(x); }
  static __device__ __forceinline__ bool finite(uint32_t b) { return (b & 0x7f800000u) != 0x7f800000u; }
  static __device__ __forceinline__ uint64_t key(uint32_t b) { return b & 0x80000000u ? uint32_t(~b) : b | 0x80000000u; }
  static __device__ __forceinline__ float value(uint64_t k) { const uint32_t b = uint32_t(k); return __uint_as_float(b & 0x80000000u ? b & 0x7fffffffu : ~b); }
};
template <> struct Ordered<double> {
  static __device__ __forceinline__ uint64_t bits(double x) { return uint64_t(__double_as_longlong(x)); }
  static __device__ __forceinline__ bool finite(uint64_t b) { return (b & 0x7ff0000000000000ull) != 0x7ff0000000000000ull; }
  static __device__ __forceinline__ uint64_t key(uint64_t b) { return b >> 63 ? ~b : b | 0x8000000000000000ull; }
  static __device__ __forceinline__ double value(uint64_t k) { return __longlong_as_double((long long)(k >> 63 ? k & 0x7fffffffffffffffull : ~k)); }
};

template <class X, int Exponent> struct OrderedNarrow {
  static __device__ __forceinline__ uint32_t bits(X x) { return x.bits; }
  static __device__ __forceinline__ bool finite(uint32_t b) { return (b & Exponent) != Exponent; }
  static __device__ __forceinline__ uint64_t key(uint32_t b) { return b & 0x8000u ? ~b & 0xffffu : b | 0x8000u; }
  static __device__ __forceinline__ X value(uint64_t k) { return X(int(k & 0x8000u ? k & 0x7fffu : ~k & 0xffffu)); }
};
template <> struct Ordered<Half> : OrderedNarrow<Half, 0x7c00> {};
template <> struct Ordered<BFloat16> : OrderedNarrow<BFloat16, 0x7f80> {};
/// Integers: sign extended to 64 bits, and the sign turned, so that zero is the key of the lowest.
template <class X> struct Ordered {
  static constexpr uint64_t turn = is_signed<X> ? 1ull << 63 : 0;
  static __device__ __forceinline__ X bits(X x) { return x; }
  static __device__ __forceinline__ bool finite(X) { return true; }
  static __device__ __forceinline__ uint64_t key(X x) { return uint64_t(x) ^ turn; }
  static __device__ __forceinline__ X value(uint64_t k) { return X(k ^ turn); }
};
/// What stands for X in the extent: float64 for floating-point values, else the integer, in 64 bits.
template <class X> struct Stated { typedef X type; };
template <> struct Stated<Half> { typedef double type; };
template <> struct Stated<BFloat16> { typedef double type; };
template <> struct Stated<float> { typedef double type; };
template <> struct Stated<double> { typedef double type; };
__device__ __forceinline__ uint64_t stated_bits(double x) { return uint64_t(__double_as_longlong(x)); }
template <class X> __device__ __forceinline__ uint64_t stated_bits(X x) { return uint64_t(x); }

/// What one launch finds, kept as maxima so that zero is the start: the complement of the lowest key, the highest key, and
/// the complement of the first finite value's index.
struct Found { unsigned long long notlow, high, notfirst; };

struct Survey {
  const void *in;
  uint64_t n;
  Found *found;
  unsigned *done;       // blocks that have finished
  uint64_t *extent;     // lo, hi, first (see Stated), and how many of them there are (0.0 or 1.0)
  uint8_t *params;
  double eb;
  uint32_t relative;    // 0: only the first finite value is needed
  uint64_t missing[4];  // bits of values that do not count, where the head names some
  uint64_t *control;    // where a lone block sets so many words to zero first: that is one call of the driver less
  uint64_t cleared;
};

template <class C, class X> __device__ __forceinline__ void visit(X x, uint64_t at, Found &f, const Survey &s) {
  typedef decltype(Ordered<X>::bits(x)) Bits;
  const Bits b = Ordered<X>::bits(x);
  if (!Ordered<X>::finite(b)) return;
  if constexpr (C::skips) {
    BRIQUETTE_UNROLL
    for (int i = 0; i < 4; i++) if (b == Bits(s.missing[i])) return;
  }
  const unsigned long long k = Ordered<X>::key(b);
  f.notlow = ~k > f.notlow ? ~k : f.notlow;
  f.high = k > f.high ? k : f.high;
  f.notfirst = ~at > f.notfirst ? ~at : f.notfirst;
}

/// Look at the whole stream; the last block to finish hands the outcome to `resolve`. Only a grid of one block clears words.
template <class C> __device__ __forceinline__ void survey(const Survey &s) {
  typedef typename C::Source X;
  constexpr int V = 16 / sizeof(X), deep = 4;
  const X *in = reinterpret_cast<const X *>(s.in);
  Found f = {0, 0, 0};
  for (uint64_t i = threadIdx.x; i < s.cleared; i += blockDim.x) s.control[i] = 0;
  if (s.cleared) __syncthreads();
  const uint64_t me = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x, all = uint64_t(gridDim.x) * blockDim.x;
  if (s.relative) {
    const uint64_t vectors = aligned16(in) ? s.n / V : 0;
    const Vector *wide = reinterpret_cast<const Vector *>(in);
    uint64_t v = me;
    for (; v + (deep - 1) * all < vectors; v += deep * all) {
      Vector held[deep];
      BRIQUETTE_UNROLL
      for (int k = 0; k < deep; k++) held[k] = wide[v + k * all];
      BRIQUETTE_UNROLL
      for (int k = 0; k < deep; k++) {
        const X *x = reinterpret_cast<const X *>(&held[k]);
        BRIQUETTE_UNROLL
        for (int j = 0; j < V; j++) visit<C>(x[j], (v + k * all) * V + j, f, s);
      }
    }
    for (; v < vectors; v += all) {
      const Vector held = wide[v];
      const X *x = reinterpret_cast<const X *>(&held);
      BRIQUETTE_UNROLL
      for (int j = 0; j < V; j++) visit<C>(x[j], v * V + j, f, s);
    }
    for (uint64_t i = vectors * V + me; i < s.n; i += all) visit<C>(in[i], i, f, s);
  } else {
    // a lane looks further until what it would see next lies behind a finite value that is known
    for (uint64_t i = me; i < s.n; i += all) {
      visit<C>(in[i], i, f, s);
      if (f.notfirst) { atomicMax(&s.found->notfirst, f.notfirst); break; }
      if (load_relaxed(&s.found->notfirst) > ~(i + all)) break;
    }
  }
  BRIQUETTE_UNROLL
  for (int step = 16; step; step >>= 1) {
    const unsigned long long notlow = __shfl_xor_sync(0xffffffffu, f.notlow, step), high = __shfl_xor_sync(0xffffffffu, f.high, step);
    const unsigned long long notfirst = __shfl_xor_sync(0xffffffffu, f.notfirst, step);
    f.notlow = notlow > f.notlow ? notlow : f.notlow;
    f.high = high > f.high ? high : f.high;
    f.notfirst = notfirst > f.notfirst ? notfirst : f.notfirst;
  }
  if ((threadIdx.x & 31) == 0 && f.notfirst) {
    atomicMax(&s.found->notlow, f.notlow);
    atomicMax(&s.found->high, f.high);
    atomicMax(&s.found->notfirst, f.notfirst);
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && atomicAdd(s.done, 1u) == gridDim.x - 1) {
    __threadfence();
    const volatile Found &v = *s.found;
    const Found r = {v.notlow, v.high, v.notfirst};
    const bool any = r.notfirst != 0;
    typedef typename Stated<X>::type R;
    const R low = any ? R(Ordered<X>::value(~r.notlow)) : R(0), high = any ? R(Ordered<X>::value(r.high)) : R(0);
    const R first = any ? R(in[~r.notfirst]) : R(0);
    s.extent[0] = stated_bits(low);
    s.extent[1] = stated_bits(high);
    s.extent[2] = stated_bits(first);
    s.extent[3] = stated_bits(any ? 1.0 : 0.0);
    if constexpr (C::resolves) {
      typedef typename C::Head H;
      H::Policy::template resolve<X, typename H::Out>(low, high, first, any, s.relative != 0, s.eb, *reinterpret_cast<typename H::Params *>(s.params + C::head_params));
    }
  }
}

}  // namespace device
}  // namespace briquette
