// Toys of the harness's tests: a transform with parameters, and a coder.
// Role: REGION_LOCAL and SEGMENT_CODEC on chunks.
// Requires: coop.cuh.
// Source: briquette.
#pragma once
#include <briquette_chunk/cuda/coop.cuh>

namespace toychunks {

struct Turn {
  template <int BYTES, class G, class P> __device__ __forceinline__ static void forward(const uint8_t *in, uint8_t *out, uint32_t bytes, G g, const P &p) {
    for (uint32_t i = g.rank(); i < bytes; i += G::size) out[i] = uint8_t(in[bytes - 1 - i] + p.add);
  }
  template <int BYTES, class G, class P> __device__ __forceinline__ static void inverse(const uint8_t *in, uint8_t *out, uint32_t bytes, G g, const P &p) {
    for (uint32_t i = g.rank(); i < bytes; i += G::size) out[i] = uint8_t(in[bytes - 1 - i] - p.add);
  }
};

struct Trim {
  __device__ static constexpr int scratch_bytes(int BYTES) { return BYTES / 256; }

  template <int BYTES, class G> __device__ __forceinline__ static uint32_t encode(const uint8_t *in, uint8_t *out, uint32_t bytes, uint8_t *scratch, G g) {
    uint32_t last = 0;
    for (uint32_t i = g.rank(); i < bytes; i += G::size) if (in[i]) last = i + 1;
    const uint32_t used = g.max(last);
    for (uint32_t i = g.rank(); i < uint32_t(BYTES / 256); i += G::size) scratch[i] = uint8_t(i);
    briquette::copy_bytes(in, out, 0, used, g);
    return used;
  }
  template <int BYTES, class G> __device__ __forceinline__ static bool decode(const uint8_t *in, uint32_t coded, uint8_t *out, uint32_t bytes, uint8_t *, G g) {
    if (coded && !(in[coded - 1] | in[coded - 2] | in[coded - 3] | in[coded - 4])) return false;
    for (uint32_t i = g.rank(); i < bytes; i += G::size) out[i] = i < coded ? in[i] : uint8_t(0);
    return true;
  }
};

}  // namespace toychunks
