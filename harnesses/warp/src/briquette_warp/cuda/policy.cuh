// What every policy of the warp-register harness may rely on: fixed-width types, device annotations, unsigned arithmetic.
// Role: none; included by policies.
// Requires: C++17; NVRTC, or a host compiler with GNU attributes.
// Source: briquette's policy contract (docs/contracts.md).
#pragma once

#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
#else
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#endif

#if !defined(__CUDACC__)
#define __device__
#undef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))
#define BRIQUETTE_HOST 1
#define BRIQUETTE_UNROLL
#else
#define BRIQUETTE_HOST 0
#if BRIQUETTE_EMULATED
#define BRIQUETTE_UNROLL
#else
#define BRIQUETTE_UNROLL _Pragma("unroll")
#endif
#endif

namespace briquette {

template <class T> struct unsigned_type { typedef T type; };
template <> struct unsigned_type<int8_t> { typedef uint8_t type; };
template <> struct unsigned_type<int16_t> { typedef uint16_t type; };
template <> struct unsigned_type<int32_t> { typedef uint32_t type; };
template <> struct unsigned_type<int64_t> { typedef uint64_t type; };
/// The unsigned type as wide as T: code arithmetic is done in it, modulo 2^bits.
template <class T> using unsigned_of = typename unsigned_type<T>::type;

template <class T> constexpr bool is_signed = T(-1) < T(0);
template <class T> constexpr bool is_integer = T(3) / T(2) == T(1);
template <class T> constexpr int bits_of = int(sizeof(T) * 8);

/// Fold a signed code so that small magnitudes of either sign become small numbers; unsigned codes stay.
template <class T> __device__ __forceinline__ unsigned_of<T> fold(T code) {
  typedef unsigned_of<T> U;
  if constexpr (is_signed<T>) return U(U(U(code) << 1) ^ U(code >> (bits_of<T> - 1)));
  else return code;
}
template <class T> __device__ __forceinline__ T unfold(unsigned_of<T> value) {
  typedef unsigned_of<T> U;
  if constexpr (is_signed<T>) return T(U(U(value >> 1) ^ U(U(0) - U(value & 1))));
  else return value;
}

/// Magnitude of a code, as unsigned: the lowest code of a signed type has one too.
template <class T> __device__ __forceinline__ unsigned_of<T> magnitude(T code) {
  typedef unsigned_of<T> U;
  if constexpr (is_signed<T>) { U sign = U(code >> (bits_of<T> - 1)); return U(U(U(code) ^ sign) - sign); }
  else return code;
}

/// The bits of a float, and the float of bits.
__device__ __forceinline__ int32_t float_bits(float value) { int32_t bits; memcpy(&bits, &value, 4); return bits; }
__device__ __forceinline__ float bits_float(int32_t bits) { float value; memcpy(&value, &bits, 4); return value; }

/// 16-bit floats: their bits, and exact conversion to float and back, to the nearest, ties to even; what is beyond the largest
/// finite value becomes an infinity. Built from an integer, one has these bits.
struct Half {
  static constexpr int fraction_bits = 10, lowest_unit = -24;  // the smallest unit in the last place is 2^lowest_unit
  uint16_t bits;
  Half() = default;
  __device__ __forceinline__ constexpr explicit Half(int b) : bits(uint16_t(b)) {}
  __device__ __forceinline__ explicit operator float() const {
#if !defined(__CUDACC_RTC__)
    const int32_t rest = (bits & 0x7fff) << 13, normal = rest + (112 << 23);
    // a subnormal is the difference of two normal numbers; infinities and NaN have the exponent of all ones in both
    const int32_t small = float_bits(bits_float(rest + (113 << 23)) - bits_float(113 << 23));
    const int32_t found = rest >= 31 << 23 ? rest | 0x7f800000 : rest < 1 << 23 ? small : normal;
    return bits_float(found | int32_t(uint32_t(bits & 0x8000) << 16));
#else
    float value;
    asm("cvt.f32.f16 %0,%1;" : "=f"(value) : "h"(bits));
    return value;
#endif
  }
  __device__ __forceinline__ explicit operator double() const { return double(float(*this)); }
  __device__ __forceinline__ static Half nearest(float value) {
#if !defined(__CUDACC_RTC__)
    const int32_t all = float_bits(value), size = all & 0x7fffffff;
    // adding a half puts the unit of subnormals where a float ends, so that the addition rounds
    const int32_t small = float_bits(bits_float(size) + 0.5f) - float_bits(0.5f);
    const int32_t normal = (size - (112 << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    const int32_t beyond = size > 0x7f800000 ? 0x7e00 : 0x7c00;
    const int32_t found = size >= 0x477ff000 ? beyond : size < 113 << 23 ? small : normal;
    return Half(found | int32_t(uint32_t(all) >> 16 & 0x8000));
#else
    Half found;
    asm("cvt.rn.f16.f32 %0,%1;" : "=h"(found.bits) : "f"(value));
    return found;
#endif
  }
};
struct BFloat16 {
  static constexpr int fraction_bits = 7, lowest_unit = -133;
  uint16_t bits;
  BFloat16() = default;
  __device__ __forceinline__ constexpr explicit BFloat16(int b) : bits(uint16_t(b)) {}
  __device__ __forceinline__ explicit operator float() const { return bits_float(int32_t(uint32_t(bits) << 16)); }
  __device__ __forceinline__ explicit operator double() const { return double(float(*this)); }
  __device__ __forceinline__ static BFloat16 nearest(float value) {
    const uint32_t all = uint32_t(float_bits(value));
    // a GPU's own NaN has all bits set, and rounding up would make a zero of it
    return BFloat16(value == value ? int((all + 0x7fffu + (all >> 16 & 1u)) >> 16) : 0x7fc0);
  }
};
template <class X> constexpr bool is_narrow = false;
template <> constexpr bool is_narrow<Half> = true;
template <> constexpr bool is_narrow<BFloat16> = true;

/// The bits of an element, as unsigned.
template <class X> struct Bits { typedef unsigned_of<X> type; };
template <> struct Bits<Half> { typedef uint16_t type; };
template <> struct Bits<BFloat16> { typedef uint16_t type; };
template <> struct Bits<float> { typedef uint32_t type; };
template <> struct Bits<double> { typedef uint64_t type; };

template <bool Condition, class T> struct only_if {};
template <class T> struct only_if<true, T> { typedef T type; };

/// Bits needed to write `value`: 0 for 0.
__device__ __forceinline__ uint32_t bit_length(uint32_t value) {
#if BRIQUETTE_HOST
  return value ? 32u - uint32_t(__builtin_clz(value)) : 0u;
#else
  return 32u - uint32_t(__clz(int(value)));
#endif
}
__device__ __forceinline__ uint32_t bit_length(uint64_t value) {
#if BRIQUETTE_HOST
  return value ? 64u - uint32_t(__builtin_clzll(value)) : 0u;
#else
  return 64u - uint32_t(__clzll((long long)(value)));
#endif
}
__device__ __forceinline__ uint32_t bit_length(uint16_t value) { return bit_length(uint32_t(value)); }
__device__ __forceinline__ uint32_t bit_length(uint8_t value) { return bit_length(uint32_t(value)); }

/// What a coder's size() returns for metadata that no segment can have.
constexpr uint32_t bad_size = 0xffffffffu;

/// A lane's array as one of the unsigned type of the same width.
template <class T, int E> __device__ __forceinline__ const unsigned_of<T> (&as_unsigned(const T (&c)[E]))[E] {
  return *reinterpret_cast<const unsigned_of<T>(*)[E]>(&c[0]);
}

template <class T, int E> __device__ __forceinline__ unsigned_of<T> (&as_unsigned(T (&c)[E]))[E] {
  return *reinterpret_cast<unsigned_of<T>(*)[E]>(&c[0]);
}

/// The elements [K * S, K * S + S) of a lane's array, as an array of its own.
template <int S, class T, int E> __device__ __forceinline__ T (&slice(T (&c)[E], int k))[S] {
  static_assert(E % S == 0, "a span divides the lane's array");
  return *reinterpret_cast<T(*)[S]>(&c[k * S]);
}
template <int S, class T, int E> __device__ __forceinline__ const T (&slice(const T (&c)[E], int k))[S] {
  static_assert(E % S == 0, "a span divides the lane's array");
  return *reinterpret_cast<const T(*)[S]>(&c[k * S]);
}

}  // namespace briquette
