// Runs the kernels that probe.py composes on a CPU, for correctness only.
// With BRIQUETTE_EMULATE, the device form: each lane of a warp is a fiber, each warp collective a switch, and the policies
// and the lane groups are compiled as for CUDA. A collective that not every lane of its mask reaches is an error.
// Without, the host form: one lane after another, as the host target compiles policies.
#pragma once
#undef _FORTIFY_SOURCE  // whose longjmp refuses to change stacks
#include <fenv.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __global__ __attribute__((visibility("default")))
#define __launch_bounds__(threads)

struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, blockDim;

namespace emulated {

typedef void (*Kernel)(const uint8_t *in, uint8_t *out, uint32_t *words, const uint8_t *params);
struct Launch { Kernel kernel; const uint8_t *in; uint8_t *out; uint32_t *words; const uint8_t *params; };

}  // namespace emulated

#if BRIQUETTE_EMULATE
#include <setjmp.h>
#include <ucontext.h>
#define __CUDACC__ 1
#define __device__
#define __forceinline__ inline __attribute__((always_inline))

namespace emulated {

enum State { ready, waiting, done };
enum Kind { indexed, exchanged, up };
struct Collective { Kind kind; unsigned mask; int argument, width, bytes; uint64_t value; };
struct Lane { ucontext_t context; jmp_buf place; bool begun; State state; Collective at; uint64_t result; };

constexpr size_t stack_bytes = 256 << 10;
static Lane lanes[32];
static ucontext_t beginning;
static jmp_buf scheduler;
static int current;
static Launch launch;

static void lane_main() {
  launch.kernel(launch.in, launch.out, launch.words, launch.params);
  lanes[current].state = done;
  _longjmp(scheduler, 1);
}

/// Run the current lane until it waits or ends. A context only begins it: switching by longjmp makes no system call.
__attribute__((noinline)) static void resume() {
  if (_setjmp(scheduler)) return;
  if (lanes[current].begun) _longjmp(lanes[current].place, 1);
  lanes[current].begun = true;
  swapcontext(&beginning, &lanes[current].context);
}

static bool same(const Collective &a, const Collective &b) { return a.kind == b.kind && a.mask == b.mask && a.width == b.width && a.bytes == b.bytes; }

/// The lane that `lane` reads from.
static int source(int lane, const Collective &at) {
  const int base = lane & ~(at.width - 1);
  if (at.kind == indexed) return base + (at.argument & (at.width - 1));
  const int from = at.kind == up ? lane - at.argument : lane ^ at.argument;
  return from < base || from >= base + at.width ? lane : from;
}

/// Let every lane that waits with all others of its mask go on; false where the lanes have parted for good.
static bool release(char *message, size_t room) {
  bool any = false, all_done = true;
  for (int lane = 0; lane < 32; lane++) {
    const Collective at = lanes[lane].at;
    if (lanes[lane].state == done) continue;
    all_done = false;
    if (lanes[lane].state == ready) continue;
    bool together = (at.mask >> lane & 1) != 0;
    for (int other = 0; other < 32; other++)
      if (at.mask >> other & 1) together = together && lanes[other].state == waiting && same(at, lanes[other].at);
    if (!together) continue;
    for (int other = 0; other < 32; other++) {
      if (!(at.mask >> other & 1)) continue;
      const int from = source(other, lanes[other].at);
      if (!(at.mask >> from & 1)) { snprintf(message, room, "lane %d reads lane %d, which is not in its mask %08x", other, from, at.mask); return false; }
      lanes[other].result = lanes[from].at.value;
    }
    for (int other = 0; other < 32; other++) if (at.mask >> other & 1) lanes[other].state = ready;
    any = true;
  }
  if (!any && !all_done) {
    for (int lane = 0; lane < 32; lane++) {
      if (lanes[lane].state != waiting) continue;
      snprintf(message, room, "lane %d waits in a collective of mask %08x that not all of its lanes reach", lane, lanes[lane].at.mask);
      break;
    }
    return false;
  }
  return true;
}

__attribute__((noinline)) static uint64_t collective(Kind kind, unsigned mask, uint64_t value, int argument, int width, int bytes) {
  Lane &lane = lanes[current];
  lane.at = Collective{kind, mask, argument, width, bytes, value};
  lane.state = waiting;
  if (!_setjmp(lane.place)) _longjmp(scheduler, 1);
  return lanes[current].result;
}

static bool run_warp(unsigned first, char *message, size_t room) {
  static char *stacks = static_cast<char *>(aligned_alloc(64, 32 * stack_bytes));
  for (int lane = 0; lane < 32; lane++) {
    getcontext(&lanes[lane].context);
    lanes[lane].context.uc_stack.ss_sp = stacks + lane * stack_bytes;
    lanes[lane].context.uc_stack.ss_size = stack_bytes;
    lanes[lane].context.uc_link = nullptr;
    lanes[lane].begun = false;
    lanes[lane].state = ready;
    makecontext(&lanes[lane].context, lane_main, 0);
  }
  for (;;) {
    bool live = false;
    for (current = 0; current < 32; current++) {
      if (lanes[current].state != ready) continue;
      threadIdx.x = first + unsigned(current);
      resume();
      live = live || lanes[current].state != done;
    }
    if (!live) {
      for (int lane = 0; lane < 32; lane++) live = live || lanes[lane].state != done;
      if (!live) return true;
    }
    if (!release(message, room)) return false;
  }
}

}  // namespace emulated

template <class T> T __shfl_sync(unsigned mask, T x, int from, int width) { return T(emulated::collective(emulated::indexed, mask, uint64_t(x), from, width, sizeof(T))); }
template <class T> T __shfl_xor_sync(unsigned mask, T x, int bits, int width) { return T(emulated::collective(emulated::exchanged, mask, uint64_t(x), bits, width, sizeof(T))); }
template <class T> T __shfl_up_sync(unsigned mask, T x, int step, int width) { return T(emulated::collective(emulated::up, mask, uint64_t(x), step, width, sizeof(T))); }
/// Over a whole warp, which all its lanes reach.
static inline unsigned __reduce_max_sync(unsigned mask, unsigned x) {
  for (int step = 16; step; step >>= 1) { const unsigned got = __shfl_xor_sync(mask, x, step, 32); x = got > x ? got : x; }
  return x;
}
#include "emulated_numbers.h"
#endif

/// Run `kernel` with `threads` threads (a multiple of 32) in one block; 0, or 1 with a message of at most 256 bytes.
extern "C" __attribute__((visibility("default"))) int32_t emulate(emulated::Kernel kernel, uint32_t threads, const uint8_t *in, uint8_t *out, uint32_t *words, const uint8_t *params, char *message) {
  blockDim.x = threads;
#if BRIQUETTE_EMULATE
  emulated::launch = emulated::Launch{kernel, in, out, words, params};
  for (uint32_t first = 0; first < threads; first += 32) if (!emulated::run_warp(first, message, 256)) return 1;
#else
  (void)message;
  for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) kernel(in, out, words, params);
#endif
  return 0;
}
