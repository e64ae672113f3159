// Linear quantization under a strict bound: code = rint(x / step), checked after dequantization and narrowing.
// Role: ELEMENTWISE head, float16, bfloat16, float32 or float64 -> code.
// Requires: parameters inverse, step, bound, limit (float64), inverse32, step32, bound32, limit32 (float32), fill (int64).
// Source: SZ (Di and Cappello, IPDPS 2016); bound check as PFPL (Fallin et al. 2025); arithmetic fixed by docs/contracts.md.
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace briquette_quantize {

struct LinearQuantizer {
  /// Codes of at least this magnitude are computed in float64 in both directions.
  static constexpr float wide = 65536.0f;
  static constexpr float round_magic = 12582912.0f;
  /// The largest finite float32: only NaN and infinities are beyond it.
  static constexpr float largest = 0x1.fffffep127f;

  template <class C, class P> __device__ __forceinline__ static float dequantize(C code, float, const P &p) {
    const float narrow = float(code);
    return narrow > -wide && narrow < wide ? narrow * p.step32 : float(double(code) * p.step);
  }
  template <class C, class P> __device__ __forceinline__ static double dequantize(C code, double, const P &p) { return double(code) * p.step; }

  /// Write the code of x; true when the value it decodes to is within the bound, false when x must be kept aside.
  template <class C, class P> __device__ __forceinline__ static bool quantize(float x, C &code, const P &p) {
    const float q = rintf(x * p.inverse32);
    if (fabsf(q) < wide) {
      const bool fits = fabsf(q) <= p.limit32;
      code = fits ? C(q) : C(p.fill);
      return fits && fabsf(x - q * p.step32) <= p.bound32;
    }
    const double w = rint(double(x) * p.inverse);
    if (!(fabs(w) <= p.limit)) { code = C(p.fill); return false; }
    code = C(w);
    return fabsf(x - dequantize(code, 0.0f, p)) <= p.bound32;
  }
  template <class C, class P> __device__ __forceinline__ static bool quantize(double x, C &code, const P &p) {
    const double q = rint(x * p.inverse);
    const bool fits = fabs(q) <= p.limit;
    code = fits ? C(q) : C(p.fill);
    return fits && fabs(x - q * p.step) <= p.bound;
  }

  /// 16-bit floats: float32 throughout, and narrowing, which puts right what float32 loses of a large code.
  template <class X, class C, class P> __device__ __forceinline__ static typename briquette::only_if<briquette::is_narrow<X>, bool>::type quantize(X x, C &code, const P &p) {
    const float value = float(x), q = rintf(value * p.inverse32);
    const bool fits = fabsf(q) <= p.limit32;
    const float held = fits ? q : 0.0f;
    code = fits ? C(held) : C(p.fill);
    return (fabsf(value - float(X::nearest(held * p.step32))) <= p.bound32) & fits;
  }
  template <class X, class C, class P> __device__ __forceinline__ static typename briquette::only_if<briquette::is_narrow<X>, X>::type dequantize(C code, X, const P &p) {
    return X::nearest(float(code) * p.step32);
  }

#if !BRIQUETTE_HOST
  /// What the stage's priming computes, on the device: the parameters from the extent of the finite values.
  template <class X, class C, class P> __device__ static void resolve(double low, double high, double first, bool any, bool relative, double eb, P &p) {
    resolve_step<X, C, false>(low, high, first, any, relative, eb, p);
  }
  /// Close: what rounding makes of the largest magnitude is known, so that less of the step is given up.
  template <class X, class C, bool Close, class P> __device__ static void resolve_step(double low, double high, double first, bool any, bool relative, double eb, P &p) {
    double margin = eb, shrink = 0.9921875;
    if (relative) {
      const double range = __dadd_rd(high, -low);
      const bool finite = fabs(__dadd_rn(high, -low)) < __longlong_as_double(0x7ff0000000000000ll);
      const double most = __longlong_as_double(0x7fefffffffffffffll);
      eb = finite ? __dmul_rd(eb, range) : fmin(2.0 * __dmul_rd(eb, __dadd_rd(high * 0.5, low * -0.5)), most);
      if constexpr (!briquette::is_narrow<X>) {
        const double half = ulp(X(fmax(fabs(low), fabs(high)))) * 0.5;
        margin = eb - half > 0.0 ? eb - half : eb;
        if (Close && eb > 0.0) shrink = 1.0 - fmin(fmax(fmax(fabs(low), fabs(high)) / eb * 0x1p-21, 0x1p-12), 0x1p-7);
      }
    }
    if constexpr (briquette::is_narrow<X>) {
      const double half = relative ? ulp<X>(fmax(fabs(low), fabs(high))) * 0.5 : __longlong_as_double(0x7ff0000000000000ll);
      margin = aligned(eb, half);
      margin = margin > 0.0 ? margin : eb;
    }
    double step = 2.0 * margin * shrink, inverse = step > 0.0 ? 1.0 / step : 0.0;
    const double infinite = __longlong_as_double(0x7ff0000000000000ll);
    if (!(step > 0.0 && step < infinite && inverse > 0.0 && inverse < infinite)) step = inverse = 0.0;
    const long long most = (long long)((~0ull) >> (65 - 8 * sizeof(C)));
    p.inverse = inverse;
    p.step = step;
    p.inverse32 = __double2float_rn(inverse);
    p.step32 = __double2float_rn(step);
    p.bound32 = __double2float_rz(eb);
    p.bound = sizeof(X) <= 4 ? double(p.bound32) : eb;
    p.limit32 = __ll2float_rz(most);
    p.limit = sizeof(X) <= 4 ? double(p.limit32) : __ll2double_rz(most);
    p.fill = 0;
    C code = 0;
    if constexpr (briquette::is_narrow<X>) {
      if (any) quantize(X::nearest(float(first)), code, p);
    } else if (any) quantize(X(first), code, p);
    p.fill = code;
  }
  /// Half a step for 16-bit floats, whose unit in the last place is large: see `step_for` in briquette_quantize/bound.py.
  __device__ static double aligned(double eb, double half) {
    if (eb >= half) return eb < 0x1p52 * half ? floor(eb / half) * half : eb;
    return __longlong_as_double(__double_as_longlong(eb) & 0x7ff0000000000000ll);
  }
  template <class X> __device__ static double ulp(double magnitude) {
    const int exponent = int(__double_as_longlong(magnitude) >> 52) - 1023 - X::fraction_bits;
    return __longlong_as_double((long long)((exponent > X::lowest_unit ? exponent : X::lowest_unit) + 1023) << 52);
  }
  __device__ static double ulp(float magnitude) {
    const int exponent = int(__float_as_uint(magnitude) >> 23);
    return __longlong_as_double((long long)((exponent ? exponent : 1) - 150 + 1023) << 52);
  }
  __device__ static double ulp(double magnitude) {
    const long long exponent = (long long)(__double_as_longlong(magnitude) >> 52);
    return __longlong_as_double(exponent > 52 ? (exponent - 52) << 52 : exponent > 0 ? 1ll << (exponent - 1) : 1ll);
  }
#endif

  /// The same without a branch, for most values: false also where quantize() might still answer true.
  template <class C, class P> __device__ __forceinline__ static bool quantize_fast(float x, C &code, const P &p) {
    // adding 1.5 * 2^23 rounds to an integer, ties to even, and leaves it in the low bits: no conversion, which is slow on GPUs
    const float shifted = x * p.inverse32 + round_magic, q = shifted - round_magic;
    const float top = p.limit32 < wide ? p.limit32 : wide - 1.0f;
    code = C(int32_t(uint32_t(briquette::float_bits(shifted)) - uint32_t(briquette::float_bits(round_magic))));
    return (fabsf(x - q * p.step32) <= p.bound32) & (fabsf(q) <= top);
  }
  template <class C, class P> __device__ __forceinline__ static bool quantize_fast(double x, C &code, const P &p) {
    const double q = rint(x * p.inverse);
    code = C((long long)(q));
    return (fabs(x - q * p.step) <= p.bound) & (fabs(q) <= p.limit);
  }
  template <class C, class P> __device__ __forceinline__ static bool dequantize_fast(C code, float &x, const P &p) {
    if constexpr (sizeof(C) == 4) {
      const float narrow = briquette::bits_float(int32_t(uint32_t(code) + uint32_t(briquette::float_bits(round_magic)))) - round_magic;
      x = narrow * p.step32;
      return fabsf(narrow) < wide;
    } else {
      const float narrow = float(code);
      x = narrow * p.step32;
      return fabsf(narrow) < wide;
    }
  }
  template <class C, class P> __device__ __forceinline__ static bool dequantize_fast(C code, double &x, const P &p) {
    x = double(code) * p.step;
    return true;
  }

  template <class X, class C, class P, int E> __device__ __forceinline__ static typename briquette::only_if<briquette::is_narrow<X>, bool>::type quantize_all(const X (&x)[E], C (&code)[E], uint8_t (&kept)[E], const P &p) {
    const float inverse = p.inverse32, step = p.step32, bound = p.bound32, limit = p.limit32;
    const C fill = C(p.fill);
    int bad = 0;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const float value = float(x[m]), q = rintf(value * inverse);
      const bool fits = fabsf(q) <= limit;
      const float held = fits ? q : 0.0f;
      code[m] = C(held);
      bad |= (fabsf(value - float(X::nearest(held * step))) <= bound) & fits ? 0 : 1;
    }
    if (!bad) return true;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const float value = float(x[m]), q = rintf(value * inverse);
      const bool fits = fabsf(q) <= limit;
      const float held = fits ? q : 0.0f;
      kept[m] = (fabsf(value - float(X::nearest(held * step))) <= bound) & fits ? 0 : 1;
      code[m] = fits ? code[m] : fill;
    }
    return false;
  }

  /// The same for a lane's whole array, in passes that vectorize. False: `kept` marks the values to keep aside.
  template <class C, class P, int E> __device__ __forceinline__ static bool quantize_all(const float (&x)[E], C (&code)[E], uint8_t (&kept)[E], const P &p) {
    const float inverse = p.inverse32, step = p.step32, bound = p.bound32;
    const float top = p.limit32 < wide ? p.limit32 : wide - 1.0f;
    int bad = 0;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const float q = rintf(x[m] * inverse);
      const float held = fabsf(q) <= top ? q : 0.0f;
      code[m] = C(int32_t(held));
      bad |= fabsf(x[m] - q * step) <= bound && fabsf(q) <= top ? 0 : 1;
    }
    if (!bad) return true;
    int finite = 0;
    const C fill = C(p.fill);
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const float q = rintf(x[m] * inverse);
      const bool inside = fabsf(q) <= top, real = fabsf(x[m]) <= largest;
      kept[m] = (fabsf(x[m] - q * step) <= bound) & inside ? 0 : 1;
      finite |= real & !inside ? 1 : 0;
      code[m] = real ? code[m] : fill;
    }
    if (finite) wide_codes(x, code, kept, p);
    return false;
  }
  template <class C, class P, int E> __device__ __forceinline__ static bool quantize_all(const double (&x)[E], C (&code)[E], uint8_t (&kept)[E], const P &p) {
    const double inverse = p.inverse, step = p.step, bound = p.bound, limit = p.limit;
    const C fill = C(p.fill);
    long bad = 0;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const double q = rint(x[m] * inverse);
      const bool fits = fabs(q) <= limit;
      const C made = C(fits ? q : 0.0);
      code[m] = fits ? made : fill;
      bad |= fabs(x[m] - q * step) <= bound && fits ? 0 : 1;
    }
    if (!bad) return true;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const double q = rint(x[m] * inverse);
      kept[m] = fabs(x[m] - q * step) <= bound && fabs(q) <= limit ? 0 : 1;
    }
    return false;
  }
  template <class C, class P, int E> __device__ __forceinline__ static void dequantize_all(const C (&code)[E], float (&x)[E], const P &p) {
    typedef briquette::unsigned_of<C> U;
    const float step = p.step32;
    bool big = false;
    if constexpr (sizeof(C) > 2) {
      U far = 0;
      BRIQUETTE_UNROLL
      for (int m = 0; m < E; m++) far |= U(U(code[m]) + U(65535)) > U(131070) ? U(1) : U(0);
      big = far != 0;
    }
    if (!big) {
      BRIQUETTE_UNROLL
      for (int m = 0; m < E; m++) x[m] = float(int32_t(code[m])) * step;
      return;
    }
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) x[m] = dequantize(code[m], 0.0f, p);
  }
  template <class C, class P, int E> __device__ __forceinline__ static void dequantize_all(const C (&code)[E], double (&x)[E], const P &p) {
    const double step = p.step;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) x[m] = double(code[m]) * step;
  }

 private:
  template <class C, class P, int E> __device__ static void wide_codes(const float (&x)[E], C (&code)[E], uint8_t (&kept)[E], const P &p) {
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const float q = rintf(x[m] * p.inverse32);
      const double w = rint(double(x[m]) * p.inverse);
      const bool small = fabsf(q) < wide;
      const double chosen = small ? double(q) : w;
      const bool fits = fabs(chosen) <= p.limit;
      const C made = C(fits ? chosen : 0.0);
      code[m] = fits ? made : C(p.fill);
      const float back = fabs(chosen) < double(wide) ? float(chosen) * p.step32 : float(chosen * p.step);
      kept[m] = fits && fabsf(x[m] - back) <= p.bound32 ? 0 : 1;
    }
  }
};

}  // namespace briquette_quantize
