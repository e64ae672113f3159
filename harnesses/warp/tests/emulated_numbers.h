// What policies and kernels ask of a GPU's arithmetic, on a CPU, for correctness only.
#pragma once
#include <fenv.h>
#include <stdint.h>
#include <string.h>

// Conversions and arithmetic of a stated rounding, and the bits of numbers, as policies may use them on a device.
namespace emulated {
template <class F> static auto rounded(int mode, F compute) { fesetround(mode); const auto result = compute(); fesetround(FE_TONEAREST); return result; }
}
#define BRIQUETTE_ROUNDED(suffix, mode) \
  static inline double __dadd_##suffix(double a, double b) { return emulated::rounded(mode, [=] { volatile double x = a, y = b; volatile double r = x + y; return double(r); }); } \
  static inline double __dmul_##suffix(double a, double b) { return emulated::rounded(mode, [=] { volatile double x = a, y = b; volatile double r = x * y; return double(r); }); } \
  static inline float __double2float_##suffix(double a) { return emulated::rounded(mode, [=] { volatile double x = a; volatile float r = float(x); return float(r); }); } \
  static inline float __ll2float_##suffix(long long a) { return emulated::rounded(mode, [=] { volatile long long x = a; volatile float r = float(x); return float(r); }); } \
  static inline double __ll2double_##suffix(long long a) { return emulated::rounded(mode, [=] { volatile long long x = a; volatile double r = double(x); return double(r); }); }
BRIQUETTE_ROUNDED(rn, FE_TONEAREST)
BRIQUETTE_ROUNDED(rz, FE_TOWARDZERO)
BRIQUETTE_ROUNDED(ru, FE_UPWARD)
BRIQUETTE_ROUNDED(rd, FE_DOWNWARD)
#undef BRIQUETTE_ROUNDED
static inline double __longlong_as_double(long long x) { double r; memcpy(&r, &x, 8); return r; }
static inline long long __double_as_longlong(double x) { long long r; memcpy(&r, &x, 8); return r; }
static inline float __uint_as_float(unsigned x) { float r; memcpy(&r, &x, 4); return r; }
static inline unsigned __float_as_uint(float x) { unsigned r; memcpy(&r, &x, 4); return r; }
static inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)(x)) : 64; }
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) { shift &= 31; return shift ? low >> shift | high << (32 - shift) : low; }
