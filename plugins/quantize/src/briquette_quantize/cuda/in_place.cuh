// Quantizers without a side stream: where no code fits, the value's own bits, less an offset, stand in the stream of codes.
// Role: ELEMENTWISE head, float16, bfloat16, float32 or float64 -> code as wide as the value.
// Requires: the quantizer's parameters, and half, count, offset, near (uint64): a word w is a code where w + half < count.
// Source: outliers in place as in PFPL (Fallin et al., IPDPS 2025); which bit patterns are codes is briquette's own, see inplace.py.
#pragma once
#include <briquette_quantize/cuda/linear.cuh>
#include <briquette_quantize/cuda/log.cuh>

namespace briquette_quantize {

/// Q: the quantizer. Bounded: its codes, where it answers that the value is within the bound, have places.
template <class Q, bool Bounded> struct InPlace {
  template <class X, class C, class P> __device__ __forceinline__ static bool quantize(X x, C &code, const P &p) {
    static_assert(sizeof(X) == sizeof(C), "codes are as wide as values");
    const C own = own_bits<C>(x, p);
    C made;
    const bool within = Q::quantize(x, made, p);
    code = within & (Bounded || is_code(made, p)) ? made : own;
    return true;
  }
  template <class X, class C, class P> __device__ __forceinline__ static X dequantize(C code, X, const P &p) {
    if (is_code(code, p)) return Q::dequantize(code, X(0), p);
    return value_of<X>(code, p);
  }

#if BRIQUETTE_HOST
  /// The same for a lane's whole array, in passes that vectorize.
  template <class X, class C, class P, int E> __device__ __forceinline__ static bool quantize_all(const X (&x)[E], C (&code)[E], uint8_t (&kept)[E], const P &p) {
    typedef briquette::unsigned_of<C> U;
    const bool within = Q::quantize_all(x, code, kept, p);
    const U half = U(p.half), count = U(p.count);
    U beyond = 0;
    if constexpr (!Bounded) {
      BRIQUETTE_UNROLL
      for (int m = 0; m < E; m++) beyond |= U(U(code[m]) + half) < count ? U(0) : U(1);
    }
    if (within && !beyond) return true;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const bool coded = (within || !kept[m]) && (Bounded || U(U(code[m]) + half) < count);
      code[m] = coded ? code[m] : own_bits<C>(x[m], p);
    }
    return true;
  }
  template <class X, class C, class P, int E> __device__ __forceinline__ static void dequantize_all(const C (&code)[E], X (&x)[E], const P &p) {
    typedef briquette::unsigned_of<C> U;
    const U half = U(p.half), count = U(p.count);
    U beyond = 0;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) beyond |= U(U(code[m]) + half) < count ? U(0) : U(1);
    if (!beyond) { all(code, x, p); return; }
    C held[E];
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) held[m] = U(U(code[m]) + half) < count ? code[m] : C(0);
    all(held, x, p);
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) if (!is_code(code[m], p)) x[m] = value_of<X>(code[m], p);
  }
#endif

 protected:
  template <class C, class P> __device__ __forceinline__ static bool is_code(C word, const P &p) {
    typedef briquette::unsigned_of<C> U;
    return U(U(word) + U(p.half)) < U(p.count);
  }

 private:
  /// The word of a value that has no code of the quantizer's; 0 is within the bound of values near it.
  template <class C, class X, class P> __device__ __forceinline__ static C own_bits(X x, const P &p) {
    typedef briquette::unsigned_of<C> U;
    U bits;
    memcpy(&bits, &x, sizeof bits);
    const U magnitude = U(bits & U(U(~U(0)) >> 1));
    return magnitude < U(p.near) ? C(0) : C(U(bits - U(p.offset)));
  }
  template <class X, class C, class P> __device__ __forceinline__ static X value_of(C word, const P &p) {
    typedef briquette::unsigned_of<C> U;
    const U bits = U(U(word) + U(p.offset));
    X x;
    memcpy(&x, &bits, sizeof x);
    return x;
  }
#if BRIQUETTE_HOST
  template <class X, class C, class P, int E> __device__ __forceinline__ static void all(const C (&code)[E], X (&x)[E], const P &p) {
    if constexpr (briquette::is_narrow<X>) {
      BRIQUETTE_UNROLL
      for (int m = 0; m < E; m++) x[m] = Q::dequantize(code[m], X(0), p);
    } else Q::dequantize_all(code, x, p);
  }
#endif
};

struct InPlaceQuantizer : InPlace<LinearQuantizer, true> {
  template <class X, class C, class P> __device__ __forceinline__ static auto quantize_fast(X x, C &code, const P &p) -> decltype(LinearQuantizer::quantize_fast(x, code, p)) {
    return LinearQuantizer::quantize_fast(x, code, p);
  }
  template <class X, class C, class P> __device__ __forceinline__ static auto dequantize_fast(C code, X &x, const P &p) -> decltype(LinearQuantizer::dequantize_fast(code, x, p)) {
    return LinearQuantizer::dequantize_fast(code, x, p) & is_code(code, p);
  }
#if !BRIQUETTE_HOST
  /// What the stage's priming computes, on the device.
  template <class X, class C, class P> __device__ static void resolve(double low, double high, double first, bool any, bool relative, double eb, P &p) {
    typedef briquette::unsigned_of<C> U;
    LinearQuantizer::resolve_step<X, C, true>(low, high, first, any, relative, eb, p);
    X near;
    if constexpr (sizeof(X) == 8) near = p.bound;
    else if constexpr (sizeof(X) == 4) near = p.bound32;
    else near = X::nearest(p.bound32);
    U top;
    memcpy(&top, &near, sizeof top);
    top = U(top & U(U(~U(0)) >> 1));  // the bound of a constant field may be -0
    if constexpr (briquette::is_narrow<X>) top = U(top - (float(near) > p.bound32 ? 1 : 0));
    p.near = (unsigned long long)(top) + 1;
    p.offset = top / 2;
    p.half = top / 2;
    p.count = p.half * 2 + 1;
    if (sizeof(X) <= 4 && !(p.step32 <= LinearQuantizer::largest)) p.near = p.offset = p.half = p.count = 0;  // 0 times the step is no number
    p.limit32 = __ll2float_rz((long long)(p.half));
    p.limit = sizeof(X) <= 4 ? double(p.limit32) : __ll2double_rz((long long)(p.half));
    p.fill = 0;
  }
#endif
};

typedef InPlace<LogQuantizer, false> InPlaceLogQuantizer;

}  // namespace briquette_quantize
