// Quantization at a power-of-two step: scaling is exact, the only rounding is that to an integer. FILL IN
// Role: ELEMENTWISE head, float32 -> int32.
// Requires: parameters step, inverse, bound (float32) and fill (int32); IEEE arithmetic without contraction.
// Source: FILL IN: where the method comes from.
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace my_pack {

struct MyPack {
  /// Write the code of x; false when x must be kept aside. FILL IN
  template <class P> __device__ __forceinline__ static bool quantize(float x, int32_t &code, const P &p) {
    const float q = rintf(x * p.inverse);
    const bool fits = fabsf(q) <= 2147483520.0f;  // false for NaN
    code = fits ? int32_t(q) : p.fill;
    return fits && fabsf(x - q * p.step) <= p.bound;
  }
  /// FILL IN: exactly what the check above takes for the decoded value
  template <class P> __device__ __forceinline__ static float dequantize(int32_t code, float, const P &p) { return float(code) * p.step; }
};

}  // namespace my_pack
