// Turns the bytes of a chunk around, then swaps those of each pair, in two passes with a barrier in between.
// Role: REGION_LOCAL on chunks.
// Requires: coop.cuh.
// Source: an example.
#pragma once
#include <briquette_chunk/cuda/coop.cuh>

namespace acme_roles {

struct Swap {
  template <int BYTES, class G> __device__ static void forward(const uint8_t *in, uint8_t *out, uint32_t bytes, G g) {
    for (uint32_t i = g.rank(); i < bytes; i += G::size) out[i] = in[bytes - 1 - i];
    g.sync();
    for (uint32_t k = g.rank(); k < bytes / 2; k += G::size) {
      const uint8_t held = out[2 * k];
      out[2 * k] = out[2 * k + 1];
      out[2 * k + 1] = held;
    }
  }
  template <int BYTES, class G> __device__ static void inverse(const uint8_t *in, uint8_t *out, uint32_t bytes, G g) {
    for (uint32_t i = g.rank(); i < bytes; i += G::size) out[bytes - 1 - i] = (i ^ 1u) < bytes / 2 * 2 ? in[i ^ 1u] : in[i];
  }
};

}  // namespace acme_roles
