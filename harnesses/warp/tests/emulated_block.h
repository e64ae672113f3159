// Runs whole kernels of the CUDA skeletons on a CPU, for correctness only: a block's lanes are fibers, blocks run one after
// another. A collective or a barrier that not every lane of its mask, or of the block, reaches is an error.
// The skeletons' PTX is replaced by plain C++ before they are compiled (see test_selector_kernels.py).
#pragma once
#undef _FORTIFY_SOURCE  // whose longjmp refuses to change stacks
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "emulated_numbers.h"

#define __CUDACC__ 1
#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static  // a block ends before the next begins
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))

struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {

constexpr int lanes = 256;
constexpr size_t stack_bytes = 128 << 10;
enum State { ready, waiting, done };
enum Kind { indexed, exchanged, up, sum, most, any, all, ballot, barrier };
struct Collective { Kind kind; unsigned mask; int argument, width; uint64_t value; };
struct Lane { ucontext_t context; jmp_buf place; bool begun; State state; Collective at; uint64_t result; };

static Lane lane_of[lanes];
static ucontext_t beginning;
static jmp_buf scheduler;
static int current;
static void (*kernel)(const void *);
static const void *slots;
alignas(128) static uint8_t memory[256 << 10];  // dynamic shared memory

static void lane_main() {
  kernel(slots);
  lane_of[current].state = done;
  _longjmp(scheduler, 1);
}
__attribute__((noinline)) static void resume() {
  if (_setjmp(scheduler)) return;
  if (lane_of[current].begun) _longjmp(lane_of[current].place, 1);
  lane_of[current].begun = true;
  swapcontext(&beginning, &lane_of[current].context);
}
__attribute__((noinline)) static uint64_t collective(Kind kind, unsigned mask, uint64_t value, int argument, int width) {
  Lane &lane = lane_of[current];
  lane.at = Collective{kind, mask, argument, width, value};
  lane.state = waiting;
  if (!_setjmp(lane.place)) _longjmp(scheduler, 1);
  return lane_of[current].result;
}

/// Whether lane `i` waits for the same as `at` does.
static bool same(int i, const Collective &at) {
  const Collective &other = lane_of[i].at;
  return lane_of[i].state == waiting && other.kind == at.kind && other.mask == at.mask && other.width == at.width;
}
/// Let those lanes go on whose collective all of its lanes have reached; false where that is none of them.
static bool release() {
  bool any_released = false;
  for (int i = 0; i < lanes; i++) {
    if (lane_of[i].state != waiting) continue;
    const Collective at = lane_of[i].at;
    const bool block = at.kind == barrier;
    const int first = block ? 0 : i & ~31, last = block ? lanes : first + 32;
    bool together = block || (at.mask >> (i & 31) & 1);
    for (int j = first; j < last; j++) if (block || (at.mask >> (j & 31) & 1)) together = together && same(j, at);
    if (!together) continue;
    uint64_t total = 0, largest = 0, every = 1, some = 0;
    for (int j = first; j < last; j++) {
      if (!block && !(at.mask >> (j & 31) & 1)) continue;
      const uint64_t value = lane_of[j].at.value;
      total += value;
      largest = value > largest ? value : largest;
      every &= uint64_t(value != 0);
      if (at.kind == ballot) some |= uint64_t(value != 0) << (j & 31);
      else some |= uint64_t(value != 0);
    }
    for (int j = first; j < last; j++) {
      if (!block && !(at.mask >> (j & 31) & 1)) continue;
      const int base = j & ~(at.width - 1), argument = lane_of[j].at.argument;
      int from = at.kind == indexed ? base + (argument & (at.width - 1)) : at.kind == up ? j - argument : j ^ argument;
      if (from < base || from >= base + at.width) from = j;
      uint64_t &result = lane_of[j].result;
      if (at.kind == sum) result = uint32_t(total);
      else if (at.kind == most) result = largest;
      else if (at.kind == any || at.kind == ballot) result = some;
      else if (at.kind == all || at.kind == barrier) result = every;
      else result = lane_of[from].at.value;
      lane_of[j].state = ready;
    }
    any_released = true;
  }
  return any_released;
}

static bool run_block(char *message) {
  static uint8_t *stacks = static_cast<uint8_t *>(aligned_alloc(64, lanes * stack_bytes));
  memset(memory, 0xa5, sizeof memory);
  for (int i = 0; i < lanes; i++) {
    Lane &lane = lane_of[i];
    getcontext(&lane.context);
    lane.context.uc_stack.ss_sp = stacks + i * stack_bytes;
    lane.context.uc_stack.ss_size = stack_bytes;
    lane.context.uc_link = nullptr;
    lane.begun = false;
    lane.state = ready;
    makecontext(&lane.context, lane_main, 0);
  }
  for (;;) {
    int left = 0;
    for (current = 0; current < lanes; current++) {
      if (lane_of[current].state == ready) { threadIdx.x = unsigned(current); resume(); }
      left += lane_of[current].state != done;
    }
    if (!left) return true;
    if (!release()) { snprintf(message, 256, "block %u: %d lanes wait for others for ever", blockIdx.x, left); return false; }
  }
}

}  // namespace emulated

template <class T> T __shfl_sync(unsigned mask, T x, int from, int width = 32) { return T(emulated::collective(emulated::indexed, mask, uint64_t(x), from, width)); }
template <class T> T __shfl_xor_sync(unsigned mask, T x, int bits, int width = 32) { return T(emulated::collective(emulated::exchanged, mask, uint64_t(x), bits, width)); }
template <class T> T __shfl_up_sync(unsigned mask, T x, int step, int width = 32) { return T(emulated::collective(emulated::up, mask, uint64_t(x), step, width)); }
static inline unsigned __reduce_add_sync(unsigned mask, unsigned x) { return unsigned(emulated::collective(emulated::sum, mask, x, 0, 32)); }
static inline unsigned __reduce_max_sync(unsigned mask, unsigned x) { return unsigned(emulated::collective(emulated::most, mask, x, 0, 32)); }
static inline int __any_sync(unsigned mask, int x) { return int(emulated::collective(emulated::any, mask, x != 0, 0, 32)); }
static inline int __all_sync(unsigned mask, int x) { return int(emulated::collective(emulated::all, mask, x != 0, 0, 32)); }
static inline unsigned __ballot_sync(unsigned mask, int x) { return unsigned(emulated::collective(emulated::ballot, mask, x != 0, 0, 32)); }
static inline int __syncthreads_and(int x) { return int(emulated::collective(emulated::barrier, 0, x != 0, 0, 32)); }
static inline void __syncthreads() { emulated::collective(emulated::barrier, 0, 1, 0, 32); }
static inline void __threadfence() {}
template <class T, class U> T atomicAdd(T *at, U x) { const T was = *at; *at = T(was + x); return was; }
template <class T, class U> T atomicOr(T *at, U x) { const T was = *at; *at = T(was | x); return was; }
template <class T, class U> T atomicMax(T *at, U x) { const T was = *at; if (T(x) > was) *at = T(x); return was; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
/// Shared addresses are offsets in the block's memory.
static inline size_t __cvta_generic_to_shared(const void *p) { return size_t(static_cast<const uint8_t *>(p) - emulated::memory); }
static inline void copy16(unsigned to, const void *from) { memcpy(emulated::memory + to, from, 16); }

/// Run a kernel on `grid` blocks; 0, or 1 with a message of at most 256 bytes.
extern "C" __attribute__((visibility("default"))) int32_t emulate(void (*kernel)(const void *), uint32_t grid, const void *slots, char *message) {
  emulated::kernel = kernel;
  emulated::slots = slots;
  blockDim.x = emulated::lanes;
  gridDim.x = grid;
  for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++) if (!emulated::run_block(message)) return 1;
  return 0;
}
