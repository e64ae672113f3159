// The bytes of a chunk's 4-byte words, sorted by their place in the word. FILL IN
// Role: REGION_LOCAL over a byte-chunk, of a thread (host) or a block (GPU).
// Requires: nothing; what fills no whole word is copied.
// Source: FILL IN: where the method comes from.
#pragma once
#include <briquette_chunk/cuda/coop.cuh>

namespace my_pack {

struct MyPack {
  // FILL IN: what NumPy's forward does with `bytes` bytes, the last chunk's too. Loops are strided by G::size, the lanes there are;
  // where one lane reads what another wrote to `out`, g.sync() stands between, reached by all.
  template <int BYTES, class G> __device__ static void forward(const uint8_t *in, uint8_t *out, uint32_t bytes, G g) {
    const uint32_t words = bytes / 4;
    for (uint32_t i = g.rank(); i < bytes; i += G::size) out[i] = in[i < 4 * words ? i % words * 4 + i / words : i];
  }
  // FILL IN: undo it exactly
  template <int BYTES, class G> __device__ static void inverse(const uint8_t *in, uint8_t *out, uint32_t bytes, G g) {
    const uint32_t words = bytes / 4;
    for (uint32_t i = g.rank(); i < bytes; i += G::size) out[i < 4 * words ? i % words * 4 + i / words : i] = in[i];
  }
};

}  // namespace my_pack
