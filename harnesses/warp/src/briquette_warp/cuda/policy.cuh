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
#define BRIQUETTE_UNROLL _Pragma("unroll")
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
