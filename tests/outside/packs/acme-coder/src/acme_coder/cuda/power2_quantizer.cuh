// Mid-tread quantization at a power-of-two step: code = rint(x / step) without any rounding but that to an integer.
// Role: ELEMENTWISE head, float32 -> int32.
// Requires: nothing; scalar form only, the harness loops.
// Source: mid-tread uniform quantization; the bound is checked as in SZ (Di and Cappello, IPDPS 2016).
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace acme_coder {

struct Power2Quantizer {
  struct Params {
    float step, inverse, bound;
    int32_t fill;
  };
  /// Write the code of x; false when x must be kept aside.
  __device__ __forceinline__ static bool quantize(float x, int32_t &code, const Params &p) {
    const float q = rintf(x * p.inverse);
    const bool fits = fabsf(q) <= 2147483520.0f;  // false for NaN
    code = fits ? int32_t(q) : p.fill;
    return fits && fabsf(x - q * p.step) <= p.bound;
  }
  __device__ __forceinline__ static float dequantize(int32_t code, float, const Params &p) { return float(code) * p.step; }
};

}  // namespace acme_coder
