// Runs the kernels that probe.py composes on a CPU, for correctness only.
// With BRIQUETTE_EMULATE, the device form: policies and lane groups compiled as for CUDA, in the emulator.
// Without, the host form: one lane after another, as the host target compiles policies.
#pragma once
#if BRIQUETTE_EMULATE
#include <briquette_warp/cuda/emulator.cuh>
#undef __global__
#else
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#define __launch_bounds__(threads)
struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, blockDim;
#endif
#define __global__ __attribute__((visibility("default")))

typedef void (*Kernel)(const uint8_t *in, uint8_t *out, uint32_t *words, const uint8_t *params);

/// Run `kernel` with `threads` threads (a multiple of 32), a warp a block; 0, or 1 with a message of at most 512 bytes.
extern "C" __attribute__((visibility("default"))) int32_t emulate(Kernel kernel, uint32_t threads, const uint8_t *in, uint8_t *out, uint32_t *words, const uint8_t *params, char *message) {
#if BRIQUETTE_EMULATE
  return briquette::emulator::launch(dim3(threads / 32), dim3(32), 0, message, [=] { kernel(in, out, words, params); });
#else
  (void)message;
  blockDim.x = threads;
  for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) kernel(in, out, words, params);
  return 0;
#endif
}
