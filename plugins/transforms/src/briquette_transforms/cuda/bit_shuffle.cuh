// Bit shuffle: the bits of a chunk's words by significance, from the top plane down.
// Role: REGION_LOCAL on chunks of bytes.
// Requires: coop.cuh; on the device all lanes of whole warps.
// Source: the BIT component of the LC framework and PFPL (Burtscher et al.); transposition after Warren, Hacker's Delight.
#pragma once
#include <briquette_chunk/cuda/coop.cuh>
#include <briquette_transforms/cuda/bit_shuffle_host.cuh>
#include <briquette_warp/cuda/group.cuh>

namespace briquette_transforms {

/// U: unsigned words of B bits; B of them make a group, G groups make B planes of G words.
template <class U> struct BitShuffle {
  static constexpr int B = int(sizeof(U) * 8);

  template <int BYTES, class G> __device__ __forceinline__ static void forward(const uint8_t *in, uint8_t *out, uint32_t bytes, G g) {
    turn<BYTES, true>(in, out, bytes, g);
  }
  template <int BYTES, class G> __device__ __forceinline__ static void inverse(const uint8_t *in, uint8_t *out, uint32_t bytes, G g) {
    turn<BYTES, false>(in, out, bytes, g);
  }

 private:
  template <int BYTES, bool Forward, class G> __device__ __forceinline__ static void turn(const uint8_t *in, uint8_t *out, uint32_t bytes, G g) {
    const uint32_t groups = bytes / (B * uint32_t(sizeof(U)));
    const U *x = reinterpret_cast<const U *>(in);
    U *y = reinterpret_cast<U *>(out);
    briquette::copy_bytes(in, out, groups * B * uint32_t(sizeof(U)), bytes, g);
#if BRIQUETTE_HOST
    if (bytes == uint32_t(BYTES)) bit_shuffle_host<Forward>(x, y, BYTES / (B * uint32_t(sizeof(U))));
    else bit_shuffle_host<Forward>(x, y, groups);
#else
    if constexpr (B == 64) turn_long<Forward>(x, y, groups, g);
    else if constexpr (B == 32) {
      if (groups % 16 == 0) turn_fast<Forward>(x, y, groups, g);
      else turn_short<Forward>(x, y, groups, g);
    } else turn_short<Forward>(x, y, groups, g);
#endif
  }

#if !BRIQUETTE_HOST
  /// Each warp turns 32 x 32 bits at a time: row i holds words i, 32 + i, ... side by side, so that its transpose has a
  /// plane's words of neighbouring groups side by side.
  template <bool Forward, class G> __device__ __forceinline__ static void turn_short(const U *x, U *y, uint32_t groups, G g) {
    constexpr int side = 32 / B;  // words side by side in a row
    const briquette::WarpLanes<32> warp;
    const uint32_t lane = g.lane(), part = lane / B, plane = B - 1 - lane % B;
    for (uint32_t at = g.warp() * side * side; at < groups; at += G::warps() * side * side) {
      uint32_t row[1] = {0};
      if constexpr (Forward) {
        BRIQUETTE_UNROLL
        for (int s = 0; s < side; s++)
          if (at + s * side + lane / B < groups) row[0] |= uint32_t(x[at * B + lane + 32 * s]) << (B * s & 31);
      } else {
        BRIQUETTE_UNROLL
        for (int s = 0; s < side; s++)
          if (at + part * side + s < groups) row[0] |= uint32_t(x[plane * groups + at + part * side + s]) << (B * s & 31);
      }
      briquette::bit_transpose(row, warp);
      if constexpr (Forward) {
        BRIQUETTE_UNROLL
        for (int s = 0; s < side; s++)
          if (at + part * side + s < groups) y[plane * groups + at + part * side + s] = U(row[0] >> (B * s & 31));
      } else {
        BRIQUETTE_UNROLL
        for (int s = 0; s < side; s++)
          if (at + s * side + lane / B < groups) y[at * B + lane + 32 * s] = U(row[0] >> (B * s & 31));
      }
    }
  }

  /// Words of 32 bits, groups by sixteens: 8 lanes hold 4 matrices, each lane 16 bytes of every one, and 16 bytes of a plane after.
  template <bool Forward, class G> __device__ __forceinline__ static void turn_fast(const U *x, U *y, uint32_t groups, G g) {
    const briquette::WarpLanes<8> eight;
    const uint32_t four = (g.lane() & 7) * 4;
    for (uint32_t at = (g.warp() * 4 + g.lane() / 8) * 4; at < groups; at += G::warps() * 16) {
      uint32_t r[4][4];  // of group at + k the words four, four + 1, ...
      if constexpr (Forward) {
        BRIQUETTE_UNROLL
        for (int k = 0; k < 4; k++) read(x + (at + k) * 32 + four, r[k]);
      } else {
        BRIQUETTE_UNROLL
        for (int j = 0; j < 4; j++) {
          uint32_t plane[4];
          read(x + (31 - four - j) * groups + at, plane);
          BRIQUETTE_UNROLL
          for (int k = 0; k < 4; k++) r[k][j] = plane[k];
        }
      }
      BRIQUETTE_UNROLL
      for (int k = 0; k < 4; k++) briquette::bit_transpose(r[k], eight);
      if constexpr (Forward) {
        BRIQUETTE_UNROLL
        for (int j = 0; j < 4; j++) {
          const briquette::Quad plane = {{r[0][j], r[1][j], r[2][j], r[3][j]}};
          *reinterpret_cast<briquette::Quad *>(y + (31 - four - j) * groups + at) = plane;
        }
      } else {
        BRIQUETTE_UNROLL
        for (int k = 0; k < 4; k++) {
          const briquette::Quad words = {{r[k][0], r[k][1], r[k][2], r[k][3]}};
          *reinterpret_cast<briquette::Quad *>(y + (at + k) * 32 + four) = words;
        }
      }
    }
  }
  __device__ __forceinline__ static void read(const U *from, uint32_t (&to)[4]) {
    const briquette::Quad q = *reinterpret_cast<const briquette::Quad *>(from);
    BRIQUETTE_UNROLL
    for (int k = 0; k < 4; k++) to[k] = q.v[k];
  }

  /// Words of 64 bits: a warp turns the four quarters of a matrix, two rows a lane.
  template <bool Forward, class G> __device__ __forceinline__ static void turn_long(const U *x, U *y, uint32_t groups, G g) {
    const briquette::WarpLanes<32> warp;
    const uint32_t lane = g.lane();
    for (uint32_t at = g.warp(); at < groups; at += G::warps()) {
      U a, b;  // rows lane and 32 + lane
      if constexpr (Forward) { a = x[at * 64 + lane]; b = x[at * 64 + 32 + lane]; }
      else { a = x[(63 - lane) * groups + at]; b = x[(31 - lane) * groups + at]; }
      uint32_t q[4][1] = {{uint32_t(a)}, {uint32_t(b)}, {uint32_t(uint64_t(a) >> 32)}, {uint32_t(uint64_t(b) >> 32)}};
      BRIQUETTE_UNROLL
      for (int k = 0; k < 4; k++) briquette::bit_transpose(q[k], warp);
      a = U(q[0][0] | uint64_t(q[1][0]) << 32);
      b = U(q[2][0] | uint64_t(q[3][0]) << 32);
      if constexpr (Forward) { y[(63 - lane) * groups + at] = a; y[(31 - lane) * groups + at] = b; }
      else { y[at * 64 + lane] = a; y[at * 64 + 32 + lane] = b; }
    }
  }
#endif
};

typedef BitShuffle<uint8_t> BitShuffle1;
typedef BitShuffle<uint16_t> BitShuffle2;
typedef BitShuffle<uint32_t> BitShuffle4;
typedef BitShuffle<uint64_t> BitShuffle8;

}  // namespace briquette_transforms
