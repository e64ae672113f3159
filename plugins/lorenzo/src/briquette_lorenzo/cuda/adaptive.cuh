// The cheapest of four predictors a tile: first or second order, of the codes or of the codes less the tile's mean.
// Role: TILE_SELECTOR, code -> code; the mean is the side element of the centred modes.
// Requires: any code type and geometry; arithmetic modulo 2^bits; the sum of a tile's codes modulo 2^64.
// Source: FSZ's choice by exact cost; predictors of Ibarria et al. (Computer Graphics Forum 2003) and SZ (Di and Cappello, IPDPS 2016).
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace briquette_lorenzo {

struct AdaptiveLorenzo {
  static constexpr int modes = 4;  // bit 0: second order, bit 1: centred
  static constexpr int most_sides = 1;
  static constexpr bool lockstep = true;
  __device__ __forceinline__ static constexpr int sides(uint32_t mode) { return int(mode >> 1 & 1); }

  template <class Tail, class T, int E, class G>
  __device__ __forceinline__ static uint32_t select(T (&c)[E], uint32_t count, G g, const Tail &tail, T (&side)[1]) {
    typedef briquette::unsigned_of<T> U;
    const T last = g.shift_up(c[E - 1], T(0));
    const History<U> none{U(last), U(g.shift_up(E > 1 ? c[E > 1 ? E - 2 : 0] : last, T(0)))};
    const U mean = mean_of(c, g, tail.elements());
    History<U> centred = none;
    // as if the mean had gone on for ever
    if (g.rank() == 0) centred.last = mean;
    if (g.rank() * E < 2) centred.before = mean;
    uint32_t mode;
    if constexpr (Tail::additive && Tail::each >= 2) mode = by_sums(c, count, g, tail, none, centred);
    else mode = by_trial(c, g, tail, none, centred);
    side[0] = T(mean);
    differences(c, mode, g, mode & 2 ? centred : none);
    return mode;
  }

  template <class T, int E, class G> __device__ __forceinline__ static void restore(uint32_t mode, const T (&side)[1], T (&c)[E], G g) {
    typedef briquette::unsigned_of<T> U;
    const bool second = (mode & 1) != 0;
    const U mean = mode & 2 && g.rank() == 0 ? U(side[0]) : U(0);
    if constexpr (G::size == 1) {
      if (second) briquette::inclusive_sum(c, g);
      c[0] = T(U(U(c[0]) + mean));
      briquette::inclusive_sum(c, g);
    } else {
      // both orders at once: a lane's codes as if nothing stood before it, then what the lanes before it add
      const Wide<U> order = second ? 1 : 0;
      Wide<U> slope = 0, code = mean;
      BRIQUETTE_UNROLL
      for (int m = 0; m < E; m++) {
        slope = slope * order + Wide<U>(U(c[m]));
        code += slope;
        c[m] = T(code);
      }
      const Wide<U> step = g.exclusive_sum(Wide<U>(slope * order));
      Wide<U> add = g.exclusive_sum(Wide<U>(code + Wide<U>(E) * step));
      BRIQUETTE_UNROLL
      for (int m = 0; m < E; m++) {
        add += step;
        c[m] = T(Wide<U>(U(c[m])) + add);
      }
    }
  }

 private:
  /// What arithmetic modulo 2^bits is done in: 16 bits are no register.
  template <class U, bool = (sizeof(U) < 4)> struct wide { typedef uint32_t type; };
  template <class U> struct wide<U, false> { typedef U type; };
  template <class U> using Wide = typename wide<U>::type;

  /// The two codes before a lane's.
  template <class U> struct History { U last, before; };

  /// Floor of the sum over the count. Of codes up to 32 bits the high and the low halves are summed apart: each sum fits 32 bits.
  template <class T, int E, class G> __device__ __forceinline__ static briquette::unsigned_of<T> mean_of(const T (&c)[E], G g, uint32_t count) {
    typedef briquette::unsigned_of<T> U;
    if constexpr (sizeof(T) == 8) {
      uint64_t sum = 0;
      BRIQUETTE_UNROLL
      for (int m = 0; m < E; m++) sum += uint64_t(c[m]);
      return U(floor_of(int64_t(g.sum(sum)), count));
    } else if constexpr (sizeof(T) == 4) {
      T high = 0;
      uint32_t all = 0;
      BRIQUETTE_UNROLL
      for (int m = 0; m < E; m++) { high = T(uint32_t(high) + uint32_t(c[m] >> 16)); all += uint32_t(c[m]); }
      high = g.sum(high);
      all = g.sum(all);
      const uint32_t low = all - (uint32_t(high) << 16);
      return U(floor_of(int64_t(uint64_t(int64_t(high)) << 16) + int64_t(low), count));
    } else {
      uint32_t sum = 0;
      BRIQUETTE_UNROLL
      for (int m = 0; m < E; m++) sum += uint32_t(int32_t(c[m]));
      sum = g.sum(sum);
      return U(floor_of(briquette::is_signed<T> ? int64_t(int32_t(sum)) : int64_t(sum), count));
    }
  }
  __device__ __forceinline__ static int64_t floor_of(int64_t sum, uint32_t count) {
    if ((count & (count - 1)) == 0) return sum >> (briquette::bit_length(count) - 1);
    const int64_t whole = sum / int64_t(count);
    return whole * int64_t(count) > sum ? whole - 1 : whole;
  }

  /// Replace codes by the deltas of a mode.
  template <class T, int E, class G, class U> __device__ __forceinline__ static void differences(T (&c)[E], uint32_t mode, G g, History<U> h) {
    if constexpr (G::size == 1) {  // two passes that vectorize
      for (int m = E - 1; m > 0; m--) c[m] = T(U(U(c[m]) - U(c[m - 1])));
      c[0] = T(U(U(c[0]) - h.last));
      if (mode & 1) {
        for (int m = E - 1; m > 0; m--) c[m] = T(U(U(c[m]) - U(c[m - 1])));
      }
    } else {
      const Wide<U> order = mode & 1 ? Wide<U>(0) - 1 : 0;
      Wide<U> upper = Wide<U>(U(c[E - 1])) - Wide<U>(E > 1 ? U(c[E > 1 ? E - 2 : 0]) : h.last);
      BRIQUETTE_UNROLL
      for (int m = E - 1; m >= 0; m--) {
        const Wide<U> lower = m > 1 ? Wide<U>(U(c[m - 1])) - Wide<U>(U(c[m - 2])) : m > 0 ? Wide<U>(U(c[0])) - Wide<U>(h.last) : Wide<U>(h.last) - Wide<U>(h.before);
        c[m] = T(upper + lower * order);
        upper = lower;
      }
    }
  }

  template <class T> __device__ __forceinline__ static T delta(T a, T b) {
    typedef briquette::unsigned_of<T> U;
    return T(U(U(a) - U(b)));
  }

  /// Sum up what first and second differences cost in one pass; centring changes a tile's first two elements only.
  template <class Tail, class T, int E, class G, class U>
  __device__ __forceinline__ static uint32_t by_sums(const T (&c)[E], uint32_t count, G g, const Tail &tail, History<U> none, History<U> centred) {
    typedef typename Tail::Sum Sum;
    uint32_t first = 0, second = 0, first_centred = 0, second_centred = 0;
    BRIQUETTE_UNROLL
    for (int k = 0; k < Tail::held; k++) {
      Sum one = Sum(), two = Sum();
      if (k == 0) {
        gather<2, Tail::each - 2>(&c[0], count, tail, one, two);
        if (Tail::whole || count > 1) tail.add(one, delta(c[1], c[0]));
        Sum one_centred = one, two_centred = two;
        edge(c, count, tail, none, one, two);
        edge(c, count, tail, centred, one_centred, two_centred);
        first_centred = tail.words(one_centred, 0);
        second_centred = tail.words(two_centred, 0);
        first = tail.words(one, 0);
        second = tail.words(two, 0);
        first_centred -= first;
        second_centred -= second;
      } else {
        gather<0, Tail::each>(&c[k * Tail::each], count < uint32_t(k * Tail::each) ? 0u : count - uint32_t(k * Tail::each), tail, one, two);
        first += tail.words(one, k);
        second += tail.words(two, k);
      }
    }
    const uint32_t mean = briquette::side_words<T>(1);
    if constexpr (G::size > 1 && Tail::most_words < 65536u) {
      const uint32_t both = g.sum(first | second << 16);
      first = both & 0xffffu;
      second = both >> 16;
    } else {
      first = g.sum(first);
      second = g.sum(second);
    }
    const uint32_t cost[4] = {first, second, first + first_centred + mean, second + second_centred + mean};
    // the words of the tile's first segment are counted in its first lane, which so knows all four costs
    return g.broadcast(cheapest(cost, tail.modes()), 0);
  }
  /// Add both differences of the codes from `First` on, N of them; two codes more stand before the first.
  template <int First, int N, class Tail, class T, class Sum>
  __device__ __forceinline__ static void gather(const T *c, uint32_t count, const Tail &tail, Sum &one, Sum &two) {
    BRIQUETTE_UNROLL
    for (int m = First; m < First + N; m++) {
      if (Tail::whole || uint32_t(m) < count) {
        const T now = delta(c[m], c[m - 1]);
        tail.add(one, now);
        tail.add(two, delta(now, delta(c[m - 1], c[m - 2])));
      }
    }
  }
  /// Add the differences of a lane that need what stands before it.
  template <class Tail, class T, int E, class U, class Sum>
  __device__ __forceinline__ static void edge(const T (&c)[E], uint32_t count, const Tail &tail, History<U> h, Sum &one, Sum &two) {
    const T last = T(h.last), before = T(h.before), zero = delta(c[0], last);
    if (Tail::whole || count > 0) {
      tail.add(one, zero);
      tail.add(two, delta(zero, delta(last, before)));
    }
    if (Tail::whole || count > 1) tail.add(two, delta(delta(c[1], c[0]), zero));
  }

  /// Ask for the words of each mode's deltas, where a coder tells no more than its cost.
  template <class Tail, class T, int E, class G, class U>
  __device__ __forceinline__ static uint32_t by_trial(const T (&c)[E], G g, const Tail &tail, History<U> none, History<U> centred) {
    uint32_t cost[4];
    for (uint32_t mode = 0; mode < 4; mode++) {
      T trial[E];
      BRIQUETTE_UNROLL
      for (int m = 0; m < E; m++) trial[m] = c[m];
      differences(trial, mode, g, mode & 2 ? centred : none);
      cost[mode] = g.sum(tail.words(trial)) + briquette::side_words<T>(uint32_t(sides(mode)));
    }
    return cheapest(cost, tail.modes());
  }
  __device__ __forceinline__ static uint32_t cheapest(const uint32_t (&cost)[4], uint32_t modes) {
    uint32_t best = 0, least = cost[0];
    BRIQUETTE_UNROLL
    for (uint32_t mode = 1; mode < 4; mode++) if (mode < modes && cost[mode] < least) { least = cost[mode]; best = mode; }
    return best;
  }
};

}  // namespace briquette_lorenzo
