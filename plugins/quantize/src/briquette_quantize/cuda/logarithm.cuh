// Logarithm and power of two by fixed steps: the same bits on every machine, without a mathematics library.
// Role: none; included by quantizers.
// Requires: IEEE arithmetic, nearest even, no contraction, denormals kept. Mirrors logarithm.py operation by operation.
// Source: the series of the inverse hyperbolic tangent and of the exponential (Abramowitz and Stegun, 4.1.27 and 4.2.1).
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace briquette_quantize {
namespace logarithm {

/// What the steps need to know of a value type.
template <class X> struct Form;
template <> struct Form<float> {
  typedef int32_t Bits;
  static constexpr int fraction = 23;
  static constexpr Bits low = 0x3f3504f3, infinite = 0x7f800000;  // of sqrt(1/2), of infinity
  static constexpr float normal = 0x1p-126f, lift = 0x1p24f;
  static constexpr double most = 1000.0;
};
template <> struct Form<double> {
  typedef int64_t Bits;
  static constexpr int fraction = 52;
  static constexpr Bits low = 0x3fe6a09e667f3bcd, infinite = 0x7ff0000000000000;
  static constexpr double normal = 0x1p-1022, lift = 0x1p53;
  static constexpr double most = 1100.0;
};

template <class X> __device__ __forceinline__ typename Form<X>::Bits bits_of_value(X value) {
  typename Form<X>::Bits bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
template <class X> __device__ __forceinline__ X value_of_bits(typename Form<X>::Bits bits) {
  X value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/// Adding 1.5 * 2^52 rounds to an integer, ties to even, and leaves it in the low bits.
constexpr double shift = 6755399441055744.0;
constexpr int64_t shift_bits = 0x4338000000000000;

/// The logarithm of a finite value above 0; of anything else a finite number without meaning.
template <class X> __device__ __forceinline__ double log2(X magnitude) {
  typedef Form<X> F;
  typedef typename F::Bits B;
  const bool small = magnitude < F::normal;
  const B above = B(bits_of_value(small ? magnitude * F::lift : magnitude) - F::low);
  const B exponent = B((above >> F::fraction) - (small ? F::fraction + 1 : 0));
  const double m = double(value_of_bits<X>(B((above & ((B(1) << F::fraction) - 1)) + F::low)));
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p;
  if constexpr (sizeof(X) == 4) p = z * 0x1.0c9a84994022dp-2;
  else {
    p = z * 0x1.5b9ac9b743f0dp-3;
    p = (p + 0x1.89f3b1694cffep-3) * z;
    p = (p + 0x1.c68f568d31760p-3) * z;
    p = (p + 0x1.0c9a84994022dp-2) * z;
  }
  p = (p + 0x1.484b13d7c02a9p-2) * z;
  p = (p + 0x1.a61762a7aded9p-2) * z;
  p = (p + 0x1.2776c50ef9bfep-1) * z;
  p = (p + 0x1.ec709dc3a03fdp-1) * z;
  p = (p + 0x1.71547652b82fep+1) * s;
  return p + double(int32_t(exponent));
}

/// 2 to a power, as X; infinite, or 0, where that does not fit.
template <class X> __device__ __forceinline__ X exp2(double power) {
  constexpr double most = Form<X>::most;
  const double t = power < -most ? -most : power > most ? most : power;
  const double shifted = t + shift, f = t - (shifted - shift);
  double p;
  if constexpr (sizeof(X) == 4) p = f * 0x1.62c0223a5c824p-20;
  else {
    p = f * 0x1.c3bd650fc2986p-36;
    p = (p + 0x1.e8cac7351bb25p-32) * f;
    p = (p + 0x1.e4cf5158b8ecap-28) * f;
    p = (p + 0x1.b5253d395e7c4p-24) * f;
    p = (p + 0x1.62c0223a5c824p-20) * f;
  }
  p = (p + 0x1.ffcbfc588b0c7p-17) * f;
  p = (p + 0x1.430912f86c787p-13) * f;
  p = (p + 0x1.5d87fe78a6731p-10) * f;
  p = (p + 0x1.3b2ab6fba4e77p-7) * f;
  p = (p + 0x1.c6b08d704a0c0p-5) * f;
  p = (p + 0x1.ebfbdff82c58fp-3) * f;
  p = (p + 0x1.62e42fefa39efp-1) * f;
  p = p + 1.0;
  const uint64_t n = uint64_t(bits_of_value(shifted) - shift_bits);
  if constexpr (sizeof(X) == 4) return float(p * value_of_bits<double>(int64_t((n + 1023) << 52)));
  else {  // a factor of 2^n may be beyond float64; the first product is exact
    const uint64_t half = ((n + 4096) >> 1) - 2048;
    return p * value_of_bits<double>(int64_t((half + 1023) << 52)) * value_of_bits<double>(int64_t((n - half + 1023) << 52));
  }
}

}  // namespace logarithm
}  // namespace briquette_quantize
