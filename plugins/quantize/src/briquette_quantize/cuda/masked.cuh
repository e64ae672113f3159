// Quantizers that mark what has no code: the lowest code of its type stands for it until forward-fill has replaced it.
// Role: ELEMENTWISE heads, floating-point -> code (Masked/FilledLog: float32 and float64 only); the policies of masked.py.
// Requires: the parameters of the quantizer each builds on, with fill the lowest code; Filled...: missing0 to missing3 (int64), bits.
// Source: LinearQuantizer and LogQuantizer; missing values as in netCDF's conventions (_FillValue, missing_value).
#pragma once
#include <briquette_quantize/cuda/linear.cuh>
#include <briquette_quantize/cuda/log.cuh>

namespace briquette_quantize {
namespace masked {

/// x, or NaN where its bits are those of a missing value: NaN is kept aside by every quantizer.
template <class X, class P> __device__ __forceinline__ X blanked(X x, const P &p) {
  typedef typename briquette::Bits<X>::type B;
  B bits;
  if constexpr (briquette::is_narrow<X>) bits = x.bits;
  else bits = logarithm::bits_of_value(x);
  const bool missing = (bits == B(p.missing0)) | (bits == B(p.missing1)) | (bits == B(p.missing2)) | (bits == B(p.missing3));
  if constexpr (briquette::is_narrow<X>) return X(missing ? 0x7fff : int(bits));
  else return logarithm::value_of_bits<X>(missing ? B(~(B(1) << (8 * sizeof(X) - 1))) : bits);
}

/// Quantize a lane's array by `Q`, missing values blanked.
template <class Q, class X, class C, class P, int E> __device__ __forceinline__ bool all(const X (&x)[E], C (&code)[E], uint8_t (&kept)[E], const P &p) {
  X seen[E];
  BRIQUETTE_UNROLL
  for (int m = 0; m < E; m++) seen[m] = blanked(x[m], p);
  return Q::quantize_all(seen, code, kept, p);
}

}  // namespace masked

struct MaskedLinear : LinearQuantizer {
#if !BRIQUETTE_HOST
  template <class X, class C, class P> __device__ static void resolve(double low, double high, double first, bool any, bool relative, double eb, P &p) {
    LinearQuantizer::resolve<X, C>(low, high, first, any, relative, eb, p);
    p.fill = C(briquette::unsigned_of<C>(1) << (briquette::bits_of<C> - 1));
  }
#endif
};

struct FilledLinear : LinearQuantizer {
  template <class X, class C, class P> __device__ __forceinline__ static bool quantize(X x, C &code, const P &p) { return LinearQuantizer::quantize(masked::blanked(x, p), code, p); }
  template <class X, class C, class P> __device__ __forceinline__ static typename briquette::only_if<!briquette::is_narrow<X>, bool>::type quantize_fast(X x, C &code, const P &p) { return LinearQuantizer::quantize_fast(masked::blanked(x, p), code, p); }
#if BRIQUETTE_HOST
  template <class X, class C, class P, int E> __device__ __forceinline__ static bool quantize_all(const X (&x)[E], C (&code)[E], uint8_t (&kept)[E], const P &p) { return masked::all<LinearQuantizer>(x, code, kept, p); }
#else
  template <class X, class C, class P, int E> __device__ static void quantize_all(const X (&)[E], C (&)[E], uint8_t (&)[E], const P &) = delete;
#endif
};

struct MaskedLog : LogQuantizer {};

struct FilledLog : LogQuantizer {
  template <class X, class C, class P> __device__ __forceinline__ static bool quantize(X x, C &code, const P &p) { return LogQuantizer::quantize(masked::blanked(x, p), code, p); }
#if BRIQUETTE_HOST
  template <class X, class C, class P, int E> __device__ __forceinline__ static bool quantize_all(const X (&x)[E], C (&code)[E], uint8_t (&kept)[E], const P &p) { return masked::all<LogQuantizer>(x, code, kept, p); }
#endif
};

}  // namespace briquette_quantize
