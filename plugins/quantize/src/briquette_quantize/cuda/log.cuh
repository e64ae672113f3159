// Logarithmic quantization under a point-wise relative bound: steps = rint(log2|x| / step), checked after decoding.
// Role: ELEMENTWISE head, float32 -> int32, float64 -> int64.
// Requires: parameters inverse, step, center, check, limit (float64), low, span, base, fill (int64); see log.py.
// Source: Liang et al., CLUSTER 2018; bound check as PFPL (Fallin et al. 2025); arithmetic fixed by docs/contracts.md.
#pragma once
#include <briquette_quantize/cuda/logarithm.cuh>

namespace briquette_quantize {

struct LogQuantizer {
  template <class X, class C, class P> __device__ __forceinline__ static X dequantize(C code, X, const P &p) {
    typedef briquette::unsigned_of<C> U;
    static_assert(sizeof(X) == sizeof(C), "codes are as wide as values");
    const C signed_rank = C(U(U(code) + U(p.base)));
    const bool negative = signed_rank < 0;
    const C rank = negative ? C(~signed_rank) : signed_rank;
    const U low = U(p.low), span = U(p.span);
    const C k = C(rank <= C(p.span) ? U(U(rank) - U(1) + low) : U(low - U(U(rank) - span)));
    const X size = rank == 0 ? X(0) : logarithm::exp2<X>(double(k) * p.step + p.center);
    return negative ? -size : size;
  }

  /// Write the code of x; true when the value it decodes to is within the bound, false when x must be kept aside.
  template <class X, class C, class P> __device__ __forceinline__ static bool quantize(X x, C &code, const P &p) {
    typedef briquette::unsigned_of<C> U;
    typedef logarithm::Form<X> F;
    const typename F::Bits sign = logarithm::bits_of_value(x) >> (8 * sizeof(X) - 1), plain = logarithm::bits_of_value(x) & ~(typename F::Bits(1) << (8 * sizeof(X) - 1));
    const X size = logarithm::value_of_bits<X>(plain);
    const bool zero = plain == 0;
    const double q = rint(logarithm::log2(size) * p.inverse);
    const bool coded = (fabs(q) <= p.limit) & (plain < F::infinite);
    const C k = steps<C>(coded ? q : 0.0);
    const bool within = miss(size, logarithm::exp2<X>(double(k) * p.step + p.center), p.check) <= 0.0;
    const U low = U(p.low);
    const U above = U(U(k) - low + U(1)), below = U(low - U(k) + U(p.span));
    U rank = k >= C(p.low) ? above : below;
    rank = zero ? U(0) : rank;
    const U made = U(U(rank ^ U(sign)) - U(p.base));
    code = coded | zero ? C(made) : C(p.fill);
    return (coded & within) | zero;
  }

#if BRIQUETTE_HOST
  /// The same for a lane's whole array, in passes that vectorize; GPUs take the values one by one. False: `kept` marks the values to keep aside.
  template <class X, class C, class P, int E> __device__ __forceinline__ static bool quantize_all(const X (&x)[E], C (&code)[E], uint8_t (&kept)[E], const P &p) {
    typedef briquette::unsigned_of<C> U;
    typedef logarithm::Form<X> F;
    typedef typename F::Bits B;
    const double inverse = p.inverse, step = p.step, center = p.center, check = p.check, limit = p.limit;
    const C low = C(p.low), fill = C(p.fill);
    const U span = U(p.span), base = U(p.base);
    double q[E];
    C good[E];
    C bad = 0;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) q[m] = rint(logarithm::log2(X(fabs(x[m]))) * inverse);
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const double held = fabs(q[m]) <= limit ? q[m] : 0.0;
      good[m] = fabs(q[m]) <= limit ? C(1) : C(0);
      code[m] = steps<C>(held);
    }
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) q[m] = miss(X(fabs(x[m])), logarithm::exp2<X>(double(code[m]) * step + center), check);
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const C k = code[m];
      const B bits = logarithm::bits_of_value(x[m]);
      const B plain = bits & ~(B(1) << (8 * sizeof(X) - 1));
      const C coded = plain < F::infinite ? good[m] : C(0);
      const C ok = q[m] <= 0.0 ? coded : C(0);
      const U above = U(U(k) - U(low) + U(1)), below = U(U(low) - U(k) + span);
      const U rank = plain == 0 ? U(0) : k >= low ? above : below;
      const U made = U(U(rank ^ U(bits >> (8 * sizeof(X) - 1))) - base);
      code[m] = (plain == 0 ? C(1) : coded) ? C(made) : fill;
      good[m] = plain == 0 ? C(0) : C(ok ^ 1);
      bad |= good[m];
    }
    if (!bad) return true;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) kept[m] = uint8_t(good[m]);
    return false;
  }
  template <class X, class C, class P, int E> __device__ __forceinline__ static void dequantize_all(const C (&code)[E], X (&x)[E], const P &p) {
    typedef briquette::unsigned_of<C> U;
    const double step = p.step, center = p.center;
    const C most = C(p.span);
    const U low = U(p.low), span = U(p.span), base = U(p.base);
    C signed_rank[E], k[E];
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const C r = C(U(U(code[m]) + base));
      const C rank = r < 0 ? C(~r) : r;
      signed_rank[m] = r;
      k[m] = C(rank <= most ? U(U(rank) - U(1) + low) : U(low - U(U(rank) - span)));
    }
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) x[m] = logarithm::exp2<X>(double(k[m]) * step + center);
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) {
      const C r = signed_rank[m];
      const X size = r == 0 || r == -1 ? X(0) : x[m];
      x[m] = r < 0 ? -size : size;
    }
  }
#endif

 private:
  /// An integer of magnitude at most 2^50, without the conversion that vectors of the host and GPUs lack.
  template <class C> __device__ __forceinline__ static C steps(double q) {
    if constexpr (sizeof(C) == 4) return C(int32_t(q));
    else return C(logarithm::bits_of_value(q + logarithm::shift) - logarithm::shift_bits);
  }

  /// |size - back| less what the bound allows, which is cut so that rounding errors never favour a value.
  __device__ __forceinline__ static double miss(float size, float back, double check) { return fabs(double(size) - double(back)) - check * double(size); }
  __device__ __forceinline__ static double miss(double size, double back, double check) {
    const double scale = size < 0x1p-500 ? 0x1p500 : 1.0;  // so that no product is subnormal
    return fabs(size * scale - back * scale) - check * (size * scale);
  }
};

}  // namespace briquette_quantize
