// Integers to codes at an odd step, and back: without loss at step 1, else within the integer bound (step - 1) / 2.
// Role: ELEMENTWISE head, any integer -> signed code at least as wide.
// Requires: parameters step, bound, magic, low, high (64 bits), shift (uint32), see briquette_quantize/integer.py.
// Source: near-lossless quantization of JPEG-LS (ITU-T T.87); division as Granlund and Montgomery, PLDI 1994, figure 4.1.
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace briquette_quantize {

struct IntegerQuantizer {
  /// The unsigned type in which integers as wide as X are computed.
  template <class X, bool Long = sizeof(X) == 8> struct Computed { typedef uint32_t type; };
  template <class X> struct Computed<X, true> { typedef uint64_t type; };

  __device__ __forceinline__ static uint32_t high_half(uint32_t a, uint32_t b) { return uint32_t(uint64_t(a) * b >> 32); }
  __device__ __forceinline__ static uint64_t high_half(uint64_t a, uint64_t b) {
#if defined(__CUDACC_RTC__)
    return __umul64hi(a, b);
#else
    return uint64_t((unsigned __int128)(a) * b >> 64);
#endif
  }

  /// The code of x; nothing is ever kept aside.
  template <class X, class C, class P> __device__ __forceinline__ static bool quantize(X x, C &code, const P &p) {
    if (p.step == 1) code = C(x);
    else code = divided<X, C>(x, p);
    return true;
  }
  template <class X, class C, class P> __device__ __forceinline__ static X dequantize(C code, X, const P &p) {
    return p.step == 1 ? X(code) : multiplied<X>(code, p);
  }

  /// The same for a lane's whole array, with one branch for all of it.
  template <class X, class C, class P, int E> __device__ __forceinline__ static bool quantize_all(const X (&x)[E], C (&code)[E], uint8_t (&)[E], const P &p) {
    if (p.step == 1) {
      BRIQUETTE_UNROLL
      for (int m = 0; m < E; m++) code[m] = C(x[m]);
    } else {
      BRIQUETTE_UNROLL
      for (int m = 0; m < E; m++) code[m] = divided<X, C>(x[m], p);
    }
    return true;
  }
  template <class X, class C, class P, int E> __device__ __forceinline__ static void dequantize_all(const C (&code)[E], X (&x)[E], const P &p) {
    if (p.step == 1) {
      BRIQUETTE_UNROLL
      for (int m = 0; m < E; m++) x[m] = X(code[m]);
    } else {
      BRIQUETTE_UNROLL
      for (int m = 0; m < E; m++) x[m] = multiplied<X>(code[m], p);
    }
  }

  /// What the stage's priming computes: the parameters from the extent of the data; `eb` as the caller gave it.
  template <class X, class C, class P> __device__ static void resolve(X low, X high, X, bool any, bool relative, double eb, P &p) {
    constexpr int bits = int(sizeof(X)) * 8, computed = int(sizeof(typename Computed<X>::type)) * 8;
    const uint64_t most = ~0ull >> (65 - bits), range = any ? uint64_t(high) - uint64_t(low) : 0;
    const uint64_t bound = relative ? scaled(eb, range) : scaled(eb, 1), step = 2 * (bound < most ? bound : most) + 1;
    p.step = step;
    p.bound = step >> 1;
    p.magic = 0;
    p.low = p.high = 0;
    p.shift = 0;
    if (step == 1) return;
    p.high = int64_t((briquette::is_signed<X> ? most : ~0ull >> (64 - bits)) / step);
    p.low = briquette::is_signed<X> ? -int64_t((most + 1) / step) : 0;
    p.shift = briquette::bit_length(step) - 1;
    // long division of (2^length - step) * 2^computed by step: the remainder is below the step, and may carry out of 64 bits
    uint64_t rest = (p.shift == 63 ? 0 : 2ull << p.shift) - step, quotient = 0;
    for (int i = 0; i < computed; i++) {
      const bool carry = rest >> 63;
      rest <<= 1;
      const bool fits = carry || rest >= step;
      rest -= fits ? step : 0;
      quotient = quotient << 1 | uint64_t(fits);
    }
    p.magic = quotient + 1;
  }

  /// The floor of factor * count, a factor that is not negative, exactly; 2^64 - 1 for what is more.
  __device__ static uint64_t scaled(double factor, uint64_t count) {
    uint64_t held;
    memcpy(&held, &factor, 8);
    const int exponent = int(held >> 52);
    const uint64_t fraction = (held & 0xfffffffffffffull) | (exponent ? 1ull << 52 : 0);
    const int shift = (exponent ? exponent : 1) - 1075;  // of the product's lowest bit
    const uint64_t low = fraction * count, high = high_half(fraction, count);
    if (!(low | high)) return 0;
    if (shift >= 0) return high || shift > 63 || low >> (63 - shift) > 1 ? ~0ull : low << shift;
    const int down = -shift;
    if (down >= 128) return 0;
    if (down >= 64) return high >> (down - 64);
    return high >> down ? ~0ull : low >> down | high << (64 - down);
  }

 private:
  template <class X, class C, class P> __device__ __forceinline__ static C divided(X x, const P &p) {
    typedef typename Computed<X>::type U;
    const bool negative = briquette::is_signed<X> && x < X(0);
    const U size = negative ? U(U(0) - U(x)) : U(x);
    const U t = high_half(size, U(p.magic));
    U q = U(U(t + U(U(size - t) >> 1)) >> p.shift);
    q += U(size - q * U(p.step)) > U(p.bound) ? 1 : 0;
    return C(negative ? U(U(0) - q) : q);
  }
  template <class X, class C, class P> __device__ __forceinline__ static X multiplied(C code, const P &p) {
    typedef typename Computed<X>::type U;
    constexpr X highest = X(briquette::is_signed<X> ? X(~0ull >> (65 - 8 * sizeof(X))) : X(~0ull)), lowest = briquette::is_signed<X> ? X(-highest - 1) : X(0);
    const X inside = X(U(U(code) * U(p.step)));
    return code > C(p.high) ? highest : code < C(p.low) ? lowest : inside;
  }
};

}  // namespace briquette_quantize
