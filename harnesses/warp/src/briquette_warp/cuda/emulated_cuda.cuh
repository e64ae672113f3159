// CUDA's built-in functions, as the emulator's threads call them: warp collectives, barriers, atomics, bits, conversions.
// Role: the second half of emulator.cuh, which includes it.
// Requires: emulator.cuh before it.
// Source: the CUDA C++ programming guide (warp functions, atomics) and the CUDA math API (integer intrinsics, casts).
#pragma once

namespace briquette {
namespace emulator {

template <class T, class U> static inline T of_bits(U value) {
  T out;
  memset(&out, 0, sizeof out);
  memcpy(&out, &value, sizeof out < sizeof value ? sizeof out : sizeof value);
  return out;
}

/// Every lane reads from lane `from(lane)`.
template <class F> BRIQUETTE_EMULATOR_FN void read_from(Lane *warp, unsigned mask, const char *operation, F from) {
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest), source = from(lane, warp[lane]);
    if (!(mask >> source & 1)) {
      const bool gone = warp[lane].mask >> source & 1;
      fail("thread %u reads lane %d in %s of mask %08x, which %s", warp[lane].index, source, operation, warp[lane].mask, gone ? "has returned" : "is not in the mask");
    }
    warp[lane].result = warp[source].value;
  }
}
BRIQUETTE_EMULATOR_FN void indexed(Lane *w, unsigned mask, const char *operation) {
  read_from(w, mask, operation, [](int lane, const Lane &at) { return (lane & ~(at.width - 1)) + (at.argument & (at.width - 1)); });
}
BRIQUETTE_EMULATOR_FN void from_below(Lane *w, unsigned mask, const char *operation) {
  read_from(w, mask, operation, [](int lane, const Lane &at) { return unsigned(at.argument) > unsigned(lane & (at.width - 1)) ? lane : lane - at.argument; });
}
BRIQUETTE_EMULATOR_FN void from_above(Lane *w, unsigned mask, const char *operation) {
  read_from(w, mask, operation, [](int lane, const Lane &at) { return unsigned(at.argument) + unsigned(lane & (at.width - 1)) >= unsigned(at.width) ? lane : lane + at.argument; });
}
BRIQUETTE_EMULATOR_FN void exchanged(Lane *w, unsigned mask, const char *operation) {
  read_from(w, mask, operation, [](int lane, const Lane &at) {
    const int other = lane ^ (at.argument & 31);
    return other >= (lane & ~(at.width - 1)) + at.width ? lane : other;
  });
}
/// All lanes get what `add` makes of their values.
template <class F> BRIQUETTE_EMULATOR_FN void reduced(Lane *warp, unsigned mask, F add) {
  uint64_t sum = warp[__builtin_ctz(mask)].value;
  for (unsigned rest = mask & (mask - 1); rest; rest &= rest - 1) sum = add(sum, warp[__builtin_ctz(rest)].value);
  for (unsigned rest = mask; rest; rest &= rest - 1) warp[__builtin_ctz(rest)].result = sum;
}
#define BRIQUETTE_REDUCTION(name, expression) \
  BRIQUETTE_EMULATOR_FN void name(Lane *w, unsigned mask, const char *) { reduced(w, mask, [](uint64_t a, uint64_t b) -> uint64_t { return expression; }); }
BRIQUETTE_REDUCTION(summed, uint32_t(a + b))
BRIQUETTE_REDUCTION(anded, a & b)
BRIQUETTE_REDUCTION(ored, a | b)
BRIQUETTE_REDUCTION(xored, a ^ b)
BRIQUETTE_REDUCTION(least_unsigned, uint32_t(a) < uint32_t(b) ? a : b)
BRIQUETTE_REDUCTION(most_unsigned, uint32_t(a) > uint32_t(b) ? a : b)
BRIQUETTE_REDUCTION(least_signed, int32_t(a) < int32_t(b) ? a : b)
BRIQUETTE_REDUCTION(most_signed, int32_t(a) > int32_t(b) ? a : b)
#undef BRIQUETTE_REDUCTION
BRIQUETTE_EMULATOR_FN void matched(Lane *warp, unsigned mask, const char *) {
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    Lane &lane = warp[__builtin_ctz(rest)];
    uint64_t same = 0;
    for (unsigned others = mask; others; others &= others - 1) same |= uint64_t(warp[__builtin_ctz(others)].value == lane.value) << __builtin_ctz(others);
    lane.result = same;
  }
}
BRIQUETTE_EMULATOR_FN void nothing(Lane *, unsigned, const char *) {}

static inline uint64_t lane_bit(bool set) { return uint64_t(set) << (machine.current->index & 31); }

template <class F> static auto rounded(int mode, F compute) -> decltype(compute()) {
  fesetround(mode);
  const auto result = compute();
  fesetround(FE_TONEAREST);
  return result;
}
/// A float as an integer of `T`, saturated; NaN is 0 (0x80..0 for 64 bits).
template <class T> static inline T saturated(double rounded_value, bool nan) {
  const double low = T(-1) < T(0) ? -ldexp(1.0, int(sizeof(T) * 8) - 1) : 0.0, high = ldexp(1.0, int(sizeof(T) * 8) - (T(-1) < T(0) ? 1 : 0));
  if (nan) return sizeof(T) == 8 ? T(uint64_t(1) << 63) : T(0);
  if (rounded_value <= low) return T(-1) < T(0) ? T(uint64_t(1) << (sizeof(T) * 8 - 1)) : T(0);
  if (rounded_value >= high) return T(-1) < T(0) ? T((uint64_t(1) << (sizeof(T) * 8 - 1)) - 1) : T(-1);
  return T(rounded_value);
}

}  // namespace emulator
}  // namespace briquette

// -- warps ----------------------------------------------------------------------------------------------------------------
#define BRIQUETTE_SHUFFLE(name, argument_type, resolver) \
  template <class T> static inline T name(unsigned mask, T x, argument_type argument, int width = 32) { \
    namespace e = briquette::emulator; \
    return e::of_bits<T>(e::collective(#name, mask, e::of_bits<uint64_t>(x), int(argument), width, e::resolver)); \
  }
BRIQUETTE_SHUFFLE(__shfl_sync, int, indexed)
BRIQUETTE_SHUFFLE(__shfl_up_sync, unsigned, from_below)
BRIQUETTE_SHUFFLE(__shfl_down_sync, unsigned, from_above)
BRIQUETTE_SHUFFLE(__shfl_xor_sync, int, exchanged)
#undef BRIQUETTE_SHUFFLE
#define BRIQUETTE_COLLECTIVE(type, name, value, resolver) type(briquette::emulator::collective(#name, mask, value, 0, 32, briquette::emulator::resolver))
static inline unsigned __ballot_sync(unsigned mask, int set) { return BRIQUETTE_COLLECTIVE(unsigned, __ballot_sync, briquette::emulator::lane_bit(set != 0), ored); }
static inline int __any_sync(unsigned mask, int set) { return BRIQUETTE_COLLECTIVE(int, __any_sync, set != 0, ored); }
static inline int __all_sync(unsigned mask, int set) { return BRIQUETTE_COLLECTIVE(int, __all_sync, set != 0, anded); }
static inline unsigned __reduce_add_sync(unsigned mask, unsigned x) { return BRIQUETTE_COLLECTIVE(unsigned, __reduce_add_sync, x, summed); }
static inline unsigned __reduce_min_sync(unsigned mask, unsigned x) { return BRIQUETTE_COLLECTIVE(unsigned, __reduce_min_sync, x, least_unsigned); }
static inline unsigned __reduce_max_sync(unsigned mask, unsigned x) { return BRIQUETTE_COLLECTIVE(unsigned, __reduce_max_sync, x, most_unsigned); }
static inline int __reduce_add_sync(unsigned mask, int x) { return BRIQUETTE_COLLECTIVE(int, __reduce_add_sync, unsigned(x), summed); }
static inline int __reduce_min_sync(unsigned mask, int x) { return BRIQUETTE_COLLECTIVE(int, __reduce_min_sync, unsigned(x), least_signed); }
static inline int __reduce_max_sync(unsigned mask, int x) { return BRIQUETTE_COLLECTIVE(int, __reduce_max_sync, unsigned(x), most_signed); }
static inline unsigned __reduce_and_sync(unsigned mask, unsigned x) { return BRIQUETTE_COLLECTIVE(unsigned, __reduce_and_sync, x, anded); }
static inline unsigned __reduce_or_sync(unsigned mask, unsigned x) { return BRIQUETTE_COLLECTIVE(unsigned, __reduce_or_sync, x, ored); }
static inline unsigned __reduce_xor_sync(unsigned mask, unsigned x) { return BRIQUETTE_COLLECTIVE(unsigned, __reduce_xor_sync, x, xored); }
template <class T> static inline unsigned __match_any_sync(unsigned mask, T x) { return BRIQUETTE_COLLECTIVE(unsigned, __match_any_sync, briquette::emulator::of_bits<uint64_t>(x), matched); }
template <class T> static inline unsigned __match_all_sync(unsigned mask, T x, int *all) {
  const unsigned same = BRIQUETTE_COLLECTIVE(unsigned, __match_all_sync, briquette::emulator::of_bits<uint64_t>(x), matched);
  *all = same == mask;
  return *all ? mask : 0;
}
#undef BRIQUETTE_COLLECTIVE
/// Of all warp functions only this one orders memory.
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
  namespace e = briquette::emulator;
  // lanes of a whole warp have passed as many; of parts of one nobody knows, so those share one address
  char *sync = &e::machine.synced[e::machine.current->index / 32][mask == 0xffffffffu ? e::machine.current->syncs++ & 1 : 2];
  e::release(sync);
  e::collective("__syncwarp", mask, 0, 0, 32, e::nothing);
  e::acquire(sync);
}
static inline unsigned __activemask() { return ~briquette::emulator::machine.warps[briquette::emulator::machine.current->index / 32].returned; }

// -- blocks ---------------------------------------------------------------------------------------------------------------
static inline void __syncthreads() { briquette::emulator::barrier("__syncthreads", 0); }
static inline int __syncthreads_count(int set) { return int(uint32_t(briquette::emulator::barrier("__syncthreads_count", set != 0))); }
static inline int __syncthreads_and(int set) { return int(briquette::emulator::barrier("__syncthreads_and", set != 0) >> 32); }
static inline int __syncthreads_or(int set) { return uint32_t(briquette::emulator::barrier("__syncthreads_or", set != 0)) != 0; }
// fences pair with one another: that orders more than CUDA promises, and never less
static inline void __threadfence() { briquette::emulator::release(&briquette::emulator::machine.fenced); briquette::emulator::acquire(&briquette::emulator::machine.fenced); }
static inline void __threadfence_block() { __threadfence(); }
static inline void __threadfence_system() { __threadfence(); }
static inline void __nanosleep(unsigned) {}
[[noreturn]] static inline void __trap() { briquette::emulator::fail("thread %u calls __trap", briquette::emulator::machine.current->index); }

// -- atomics: relaxed, as CUDA's ------------------------------------------------------------------------------------------
template <class T> struct briquette_atomic { typedef T type; };  // the second argument converts to the first's type
#define BRIQUETTE_ATOMIC(name, builtin) \
  template <class T> static inline T name(T *p, typename briquette_atomic<T>::type x) { return builtin(p, x, __ATOMIC_RELAXED); }
BRIQUETTE_ATOMIC(atomicOr, __atomic_fetch_or)
BRIQUETTE_ATOMIC(atomicAnd, __atomic_fetch_and)
BRIQUETTE_ATOMIC(atomicXor, __atomic_fetch_xor)
BRIQUETTE_ATOMIC(atomicSub, __atomic_fetch_sub)
#undef BRIQUETTE_ATOMIC
template <class T> static inline T atomicCAS(T *p, typename briquette_atomic<T>::type expected, typename briquette_atomic<T>::type x) {
  __atomic_compare_exchange_n(p, &expected, x, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
#define BRIQUETTE_ATOMIC(name, expression) \
  template <class T> static inline T name(T *p, typename briquette_atomic<T>::type x) { \
    T was, made; \
    __atomic_load(p, &was, __ATOMIC_RELAXED); \
    do made = expression; while (!__atomic_compare_exchange(p, &was, &made, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)); \
    return was; \
  }
BRIQUETTE_ATOMIC(atomicAdd, T(was + x))
BRIQUETTE_ATOMIC(atomicExch, x)
BRIQUETTE_ATOMIC(atomicMin, x < was ? x : was)
BRIQUETTE_ATOMIC(atomicMax, x > was ? x : was)
BRIQUETTE_ATOMIC(atomicInc, was >= x ? T(0) : T(was + 1))
#undef BRIQUETTE_ATOMIC

// -- memory ---------------------------------------------------------------------------------------------------------------
template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline void __stcg(T *p, T x) { *p = x; }
template <class T> static inline void __stcs(T *p, T x) { *p = x; }

// -- bits -----------------------------------------------------------------------------------------------------------------
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)(x)) : 64; }
static inline unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
static inline unsigned long long __brevll(unsigned long long x) { return (unsigned long long)(__brev(unsigned(x))) << 32 | __brev(unsigned(x >> 32)); }
static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t bytes = uint64_t(high) << 32 | low;
  unsigned out = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned s = selector >> (4 * i) & 15u, byte = unsigned(bytes >> (8 * (s & 7u))) & 255u;
    out |= (s & 8u ? (byte & 128u ? 255u : 0u) : byte) << (8 * i);
  }
  return out;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) { return unsigned((uint64_t(high) << 32 | low) << (shift & 31) >> 32); }
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) { return unsigned((uint64_t(high) << 32 | low) >> (shift & 31)); }
static inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) { return shift >= 32 ? low : __funnelshift_l(low, high, shift); }
static inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) { return shift >= 32 ? high : __funnelshift_r(low, high, shift); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
static inline int __mulhi(int a, int b) { return int(int64_t(a) * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)(a) * b >> 64); }

// -- numbers --------------------------------------------------------------------------------------------------------------
static inline int __float_as_int(float x) { return briquette::emulator::of_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return briquette::emulator::of_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return briquette::emulator::of_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return briquette::emulator::of_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return briquette::emulator::of_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return briquette::emulator::of_bits<double>(x); }
static inline int __double2hiint(double x) { return int(__double_as_longlong(x) >> 32); }
static inline int __double2loint(double x) { return int(__double_as_longlong(x)); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
// `volatile` keeps a compiler that knows nothing of rounding modes from computing at the wrong place
#define BRIQUETTE_ROUNDED(suffix, mode, to_integer) \
  static inline float __fadd_##suffix(float a, float b) { return briquette::emulator::rounded(mode, [=] { volatile float x = a, y = b; volatile float r = x + y; return float(r); }); } \
  static inline float __fsub_##suffix(float a, float b) { return __fadd_##suffix(a, -b); } \
  static inline float __fmul_##suffix(float a, float b) { return briquette::emulator::rounded(mode, [=] { volatile float x = a, y = b; volatile float r = x * y; return float(r); }); } \
  static inline float __fdiv_##suffix(float a, float b) { return briquette::emulator::rounded(mode, [=] { volatile float x = a, y = b; volatile float r = x / y; return float(r); }); } \
  static inline double __dadd_##suffix(double a, double b) { return briquette::emulator::rounded(mode, [=] { volatile double x = a, y = b; volatile double r = x + y; return double(r); }); } \
  static inline double __dsub_##suffix(double a, double b) { return __dadd_##suffix(a, -b); } \
  static inline double __dmul_##suffix(double a, double b) { return briquette::emulator::rounded(mode, [=] { volatile double x = a, y = b; volatile double r = x * y; return double(r); }); } \
  static inline double __ddiv_##suffix(double a, double b) { return briquette::emulator::rounded(mode, [=] { volatile double x = a, y = b; volatile double r = x / y; return double(r); }); } \
  static inline float __double2float_##suffix(double a) { return briquette::emulator::rounded(mode, [=] { volatile double x = a; volatile float r = float(x); return float(r); }); } \
  static inline float __int2float_##suffix(int a) { return __double2float_##suffix(double(a)); } \
  static inline float __uint2float_##suffix(unsigned a) { return __double2float_##suffix(double(a)); } \
  static inline float __ll2float_##suffix(long long a) { return briquette::emulator::rounded(mode, [=] { volatile long long x = a; volatile float r = float(x); return float(r); }); } \
  static inline double __ll2double_##suffix(long long a) { return briquette::emulator::rounded(mode, [=] { volatile long long x = a; volatile double r = double(x); return double(r); }); } \
  static inline int __float2int_##suffix(float a) { return briquette::emulator::saturated<int>(to_integer(double(a)), a != a); } \
  static inline unsigned __float2uint_##suffix(float a) { return briquette::emulator::saturated<unsigned>(to_integer(double(a)), a != a); } \
  static inline long long __float2ll_##suffix(float a) { return briquette::emulator::saturated<long long>(to_integer(double(a)), a != a); } \
  static inline int __double2int_##suffix(double a) { return briquette::emulator::saturated<int>(to_integer(a), a != a); } \
  static inline long long __double2ll_##suffix(double a) { return briquette::emulator::saturated<long long>(to_integer(a), a != a); }
BRIQUETTE_ROUNDED(rn, FE_TONEAREST, rint)
BRIQUETTE_ROUNDED(rz, FE_TOWARDZERO, trunc)
BRIQUETTE_ROUNDED(ru, FE_UPWARD, ceil)
BRIQUETTE_ROUNDED(rd, FE_DOWNWARD, floor)
#undef BRIQUETTE_ROUNDED
#define BRIQUETTE_EXTREMES(T) \
  static inline T min(T a, T b) { return b < a ? b : a; } \
  static inline T max(T a, T b) { return a < b ? b : a; }
BRIQUETTE_EXTREMES(int)
BRIQUETTE_EXTREMES(unsigned)
BRIQUETTE_EXTREMES(long)
BRIQUETTE_EXTREMES(unsigned long)
BRIQUETTE_EXTREMES(long long)
BRIQUETTE_EXTREMES(unsigned long long)
#undef BRIQUETTE_EXTREMES
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
