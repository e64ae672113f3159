// Plain CUDA C++ on a CPU, for checking: each thread of a block is a fiber, each warp collective and each barrier a switch.
// Role: comes before everything else in a source written for CUDA; `launch` runs a kernel of it, block after block.
// Requires: GCC or clang, POSIX. Under ThreadSanitizer and AddressSanitizer it tells them of its fibers; docs/contracts.md has the limits.
// Source: fibers for work groups as in the CPU runtimes of OpenCL (Jaaskelainen et al., pocl, IJPP 2015).
#pragma once
#if defined(__CUDACC__)
#error "the emulator takes the place of CUDA: include it first, and compile with a host compiler"
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-strict-aliasing")  // kernels read the bytes of one type as another
#endif
#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define __CUDACC__ 1
#define BRIQUETTE_EMULATED 1
#define __device__
#define __host__
#define __global__
#define __constant__ static
#define __shared__ static  // of one block at a time; for memory of a launch's size see shared_memory()
#define __grid_constant__
#define __launch_bounds__(...)
#undef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))

#include <briquette_warp/cuda/emulated_sanitizers.cuh>

// Changing stacks: a few instructions where we know them; ucontext elsewhere, which makes two system calls a switch.
#if !defined(BRIQUETTE_EMULATOR_UCONTEXT)
#if defined(__linux__) && defined(__x86_64__)
#define BRIQUETTE_EMULATOR_UCONTEXT 0
#else
#define BRIQUETTE_EMULATOR_UCONTEXT 1
#endif
#endif
#if BRIQUETTE_EMULATOR_UCONTEXT
#include <ucontext.h>
#else
extern "C" void briquette_emulator_switch(void **from, void *to);
__asm__(
    ".text\n.p2align 4\n.local briquette_emulator_switch\n.type briquette_emulator_switch,@function\n"
    "briquette_emulator_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\nmovq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size briquette_emulator_switch,.-briquette_emulator_switch\n");
#endif

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
static dim3 threadIdx(0, 0, 0), blockIdx(0, 0, 0), blockDim, gridDim;
static constexpr int warpSize = 32;

namespace briquette {
namespace emulator {

constexpr unsigned most_threads = 1024;  // of a block
#if BRIQUETTE_EMULATOR_TSAN || BRIQUETTE_EMULATOR_ASAN
constexpr size_t stack_bytes = 512 << 10;
#else
constexpr size_t stack_bytes = 128 << 10;
#endif
constexpr size_t guard_bytes = 64 << 10;  // a whole number of pages of any size
constexpr unsigned all_lanes = 0xffffffffu;

enum State : uint8_t { ready, waiting, at_barrier, returned };

/// One thread of the block, or the caller's own.
struct Lane {
#if BRIQUETTE_EMULATOR_UCONTEXT
  ucontext_t context;
#endif
  void *stack_pointer;
  char *stack;
  size_t stack_size;
  void *fiber;  // what a sanitizer calls it
  unsigned index;
  State state;
  const char *operation;  // where it waits, and with what
  unsigned mask;
  int argument, width;
  uint64_t value, result;
  unsigned barriers, syncs;  // passed: of the block, and of the whole warp
};
struct Warp { unsigned ready, waiting, returned; };

struct Machine {
  Lane lanes[most_threads], host;
  Warp warps[most_threads / 32];
  Lane *current;
  unsigned threads, live, arrived;
  char *stacks;
  dim3 shape;
  void (*body)(void *);
  void *argument;
  unsigned char *shared;
  size_t shared_bytes;
  bool failed;
  char message[512];
  // Their addresses are what ThreadSanitizer orders by. Barriers take turns with two: a thread that has reached the next one
  // while others have not left this one must not be ordered before them.
  char started, ended, barred[2], fenced, synced[most_threads / 32][3];
};
static Machine machine;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

#if BRIQUETTE_EMULATOR_TSAN
BRIQUETTE_EMULATOR_FN void acquire(void *p) { __tsan_acquire(p); }
BRIQUETTE_EMULATOR_FN void release(void *p) { __tsan_release(p); }
#else
static inline void acquire(void *) {}
static inline void release(void *) {}
#endif

static void lane_main();

BRIQUETTE_EMULATOR_FN void switch_to(Lane *to) {
  Machine &m = machine;
  Lane *from = m.current;
  if (to == from) return;
  m.current = to;
  threadIdx.x = to->index % m.shape.x;
  threadIdx.y = to->index / m.shape.x % m.shape.y;
  threadIdx.z = to->index / m.shape.x / m.shape.y;
#if BRIQUETTE_EMULATOR_TSAN
  __tsan_switch_to_fiber(to->fiber, 1);  // 1: a switch orders nothing
#endif
#if BRIQUETTE_EMULATOR_ASAN
  __sanitizer_start_switch_fiber(&from->fiber, to->stack, to->stack_size);
#endif
#if BRIQUETTE_EMULATOR_UCONTEXT
  swapcontext(&from->context, &to->context);
#else
  briquette_emulator_switch(&from->stack_pointer, to->stack_pointer);
#endif
#if BRIQUETTE_EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(from->fiber, 0, 0);
#endif
}

/// End the launch with a message; the fibers stay where they are and are begun anew by the next one.
[[noreturn]] BRIQUETTE_EMULATOR_FN void fail(const char *format, ...) {
  Machine &m = machine;
  va_list arguments;
  va_start(arguments, format);
  const int used = snprintf(m.message, sizeof m.message, "block %u: ", blockIdx.x);
  vsnprintf(m.message + used, sizeof m.message - size_t(used), format, arguments);
  va_end(arguments);
  m.failed = true;
  switch_to(&m.host);
  abort();
}

/// A lane's place in words.
BRIQUETTE_EMULATOR_FN void describe(const Lane &lane, char *out, size_t room) {
  if (lane.state == returned) snprintf(out, room, "has returned");
  else if (lane.state == at_barrier) snprintf(out, room, "is at %s", lane.operation);
  else if (lane.state == waiting) snprintf(out, room, "waits in %s of mask %08x", lane.operation, lane.mask);
  else snprintf(out, room, "runs");
}

/// All lanes wait and none can go on: say who waits for whom.
[[noreturn]] BRIQUETTE_EMULATOR_FN void deadlock() {
  Machine &m = machine;
  for (unsigned t = 0; t < m.threads; t++) {
    const Lane &lane = m.lanes[t];
    if (lane.state != waiting) continue;
    for (unsigned other = t & ~31u; other < m.threads && other < (t | 31u) + 1; other++) {
      const Lane &o = m.lanes[other];
      if (!(lane.mask >> (other & 31) & 1) || o.state == returned) continue;
      if (o.state == waiting && o.mask == lane.mask && !strcmp(o.operation, lane.operation)) continue;
      char place[128];
      describe(o, place, sizeof place);
      fail("thread %u waits in %s of mask %08x for thread %u, which %s", t, lane.operation, lane.mask, other, place);
    }
  }
  fail("no thread can go on");
}

/// The next thread that can run, the current one's warp first.
BRIQUETTE_EMULATOR_FN Lane *next() {
  Machine &m = machine;
  const unsigned warps = (m.threads + 31) / 32, here = m.current == &m.host ? 0 : m.current->index / 32;
  if (m.current != &m.host) {
    const unsigned lane = m.current->index & 31, after = lane == 31 ? 0 : m.warps[here].ready >> (lane + 1) << (lane + 1);
    if (after) return &m.lanes[here * 32 + unsigned(__builtin_ctz(after))];
  }
  for (unsigned k = 0; k < warps; k++) {
    const unsigned w = (here + k) % warps;
    if (m.warps[w].ready) return &m.lanes[w * 32 + unsigned(__builtin_ctz(m.warps[w].ready))];
  }
  if (!m.live) return &m.host;
  deadlock();
}

typedef void (*Resolve)(Lane *warp, unsigned mask, const char *operation);

/// Whether every lane of the mask that has not returned waits in this operation.
BRIQUETTE_EMULATOR_FN bool complete(const Lane &lane) {
  const Warp &warp = machine.warps[lane.index / 32];
  if ((lane.mask & ~(warp.waiting | warp.returned)) != 0) return false;
  const Lane *lanes = &machine.lanes[lane.index & ~31u];
  for (unsigned rest = lane.mask & ~warp.returned; rest; rest &= rest - 1) {
    const Lane &o = lanes[__builtin_ctz(rest)];
    if (o.mask != lane.mask || (o.operation != lane.operation && strcmp(o.operation, lane.operation))) return false;
  }
  return true;
}

BRIQUETTE_EMULATOR_FN void release_lanes(Warp &warp, Lane *lanes, unsigned mask) {
  const unsigned free = mask & ~warp.returned;
  for (unsigned rest = free; rest; rest &= rest - 1) lanes[__builtin_ctz(rest)].state = ready;
  warp.waiting &= ~free;
  warp.ready |= free;
}

/// Wait for the lanes of `mask`; the last to come computes what all of them get.
BRIQUETTE_EMULATOR_FN uint64_t collective(const char *operation, unsigned mask, uint64_t value, int argument, int width, Resolve resolve) {
  Machine &m = machine;
  Lane &lane = *m.current;
  Warp &warp = m.warps[lane.index / 32];
  const unsigned own = 1u << (lane.index & 31);
  if (!(mask & own)) fail("thread %u calls %s with the mask %08x, in which it is not", lane.index, operation, mask);
  const unsigned there = m.threads - (lane.index & ~31u);
  if (there < 32 && mask >> there) mask &= (1u << there) - 1u;  // of a warp that is not full
  if (width < 1 || width > 32 || (width & (width - 1))) fail("thread %u calls %s with a width of %d: it is a power of two up to 32", lane.index, operation, width);
  lane.operation = operation;
  lane.mask = mask;
  lane.argument = argument;
  lane.width = width;
  lane.value = value;
  lane.state = waiting;
  warp.waiting |= own;
  warp.ready &= ~own;
  if (complete(lane)) {
    Lane *lanes = &m.lanes[lane.index & ~31u];
    resolve(lanes, mask & ~warp.returned, operation);
    release_lanes(warp, lanes, mask);
  } else {
    // the resolver is the same for all of one operation, so that a thread that returns can finish for those who wait
    lane.result = uint64_t(reinterpret_cast<uintptr_t>(resolve));
    switch_to(next());
  }
  return machine.current->result;
}

BRIQUETTE_EMULATOR_FN void open_barrier() {
  Machine &m = machine;
  const char *operation = 0;
  bool all = true;
  unsigned count = 0;
  for (unsigned t = 0; t < m.threads; t++) {
    const Lane &lane = m.lanes[t];
    if (lane.state != at_barrier) continue;
    if (!operation) operation = lane.operation;
    else if (strcmp(operation, lane.operation)) fail("thread %u is at %s while others are at %s", t, lane.operation, operation);
    all = all && lane.value;
    count += lane.value != 0;
  }
  for (unsigned t = 0; t < m.threads; t++) {
    Lane &lane = m.lanes[t];
    if (lane.state != at_barrier) continue;
    lane.state = ready;
    lane.result = uint64_t(all) << 32 | count;
    m.warps[t / 32].ready |= 1u << (t & 31);
  }
  m.arrived = 0;
}

/// Wait for all threads of the block that have not returned: the count of non-zero values, and above it whether all are.
BRIQUETTE_EMULATOR_FN uint64_t barrier(const char *operation, uint64_t value) {
  Machine &m = machine;
  Lane &lane = *m.current;
  lane.operation = operation;
  lane.value = value;
  lane.state = at_barrier;
  m.warps[lane.index / 32].ready &= ~(1u << (lane.index & 31));
  char *turn = &m.barred[lane.barriers++ & 1];
  release(turn);
  if (++m.arrived == m.live) open_barrier();
  else switch_to(next());
  acquire(turn);
  return machine.current->result;
}

/// What a thread does last; it never comes back.
[[noreturn]] BRIQUETTE_EMULATOR_FN void leave() {
  Machine &m = machine;
  Lane &lane = *m.current;
  Warp &warp = m.warps[lane.index / 32];
  Lane *lanes = &m.lanes[lane.index & ~31u];
  release(&m.ended);
  lane.state = returned;
  warp.ready &= ~(1u << (lane.index & 31));
  warp.returned |= 1u << (lane.index & 31);
  m.live--;
  for (unsigned rest = warp.waiting; rest; rest &= rest - 1) {
    Lane &o = lanes[__builtin_ctz(rest)];
    if (o.state != waiting || !(o.mask >> (lane.index & 31) & 1) || !complete(o)) continue;
    const Resolve resolve = reinterpret_cast<Resolve>(uintptr_t(o.result));
    resolve(lanes, o.mask & ~warp.returned, o.operation);
    release_lanes(warp, lanes, o.mask);
  }
  if (m.live && m.arrived == m.live) open_barrier();
  switch_to(next());
  abort();
}

BRIQUETTE_EMULATOR_FN void lane_main() {
#if BRIQUETTE_EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(0, 0, 0);
#endif
  acquire(&machine.started);
  machine.body(machine.argument);
  leave();
}

/// Give every thread of the block a stack above a page that may not be touched: one mapping, for one launch.
/// A process loads many kernels, and has no room for the guarded stacks of all of them.
BRIQUETTE_EMULATOR_FN bool take_stacks(unsigned threads) {
  Machine &m = machine;
  constexpr size_t each = guard_bytes + stack_bytes;
  void *got = mmap(0, threads * each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) return false;
  m.stacks = static_cast<char *>(got);
  for (unsigned t = 0; t < threads; t++) {
    Lane &lane = m.lanes[t];
    if (mprotect(m.stacks + t * each, guard_bytes, PROT_NONE)) return false;
    lane.stack = m.stacks + t * each + guard_bytes;
    lane.stack_size = stack_bytes;
    lane.index = t;
#if BRIQUETTE_EMULATOR_TSAN
    lane.fiber = __tsan_create_fiber(0);
#endif
  }
  return true;
}

BRIQUETTE_EMULATOR_FN void drop_stacks(unsigned threads) {
  Machine &m = machine;
  for (unsigned t = 0; m.stacks && t < threads; t++) {
#if BRIQUETTE_EMULATOR_TSAN
    if (void *fiber = m.lanes[t].fiber) __tsan_destroy_fiber(fiber), m.lanes[t].fiber = 0;
#elif BRIQUETTE_EMULATOR_ASAN
    __asan_unpoison_memory_region(m.stacks + t * (guard_bytes + stack_bytes) + guard_bytes, stack_bytes);
#endif
  }
  if (m.stacks) munmap(m.stacks, threads * (guard_bytes + stack_bytes));
  m.stacks = 0;
}

/// Put a thread to the kernel's beginning. Tops of stacks are apart, or they would share a few sets of the cache.
BRIQUETTE_EMULATOR_FN void begin(Lane &lane) {
  lane.state = ready;
  lane.barriers = lane.syncs = 0;
  char *top = lane.stack + stack_bytes - (lane.index * 192) % 8192;
#if BRIQUETTE_EMULATOR_UCONTEXT
  getcontext(&lane.context);
  lane.context.uc_stack.ss_sp = lane.stack;
  lane.context.uc_stack.ss_size = size_t(top - lane.stack);
  lane.context.uc_link = 0;
  makecontext(&lane.context, lane_main, 0);
#else
  void **frame = reinterpret_cast<void **>(top) - 8;  // six registers, where to go, and no caller
  for (int i = 0; i < 8; i++) frame[i] = 0;
  frame[6] = reinterpret_cast<void *>(&lane_main);
  lane.stack_pointer = frame;
#endif
#if BRIQUETTE_EMULATOR_ASAN
  lane.fiber = 0;
  __asan_unpoison_memory_region(lane.stack, stack_bytes);
#endif
}

BRIQUETTE_EMULATOR_FN void run_block(unsigned threads) {
  Machine &m = machine;
  m.live = threads;
  m.arrived = 0;
  if (m.shared_bytes) memset(m.shared, 0xcd, m.shared_bytes);  // as on a GPU: it holds anything
  for (unsigned w = 0; w < (threads + 31) / 32; w++) {
    const unsigned there = threads - 32 * w;
    m.warps[w] = Warp{there < 32 ? (1u << there) - 1u : all_lanes, 0, there < 32 ? all_lanes << there : 0};
  }
  for (unsigned t = 0; t < threads; t++) begin(m.lanes[t]);
  release(&m.started);
  m.current = &m.host;
  switch_to(&m.lanes[0]);
  acquire(&m.ended);
}

/// Run `body` in every thread of every block, one block after another.
/// Returns 0, or 1 with a message that names the operation at which the threads parted.
BRIQUETTE_EMULATOR_FN int run(dim3 grid, dim3 block, size_t shared_bytes, void (*body)(void *), void *argument, char *message, size_t room) {
  Machine &m = machine;
  const unsigned threads = block.x * block.y * block.z;
  if (!threads || threads > most_threads) {
    snprintf(message, room, "a block of %u threads: the emulator runs 1 to %u", threads, most_threads);
    return 1;
  }
  pthread_mutex_lock(&one_at_a_time);
  fenv_t before;  // IEEE arithmetic whatever the caller has set
  fegetenv(&before);
  fesetenv(FE_DFL_ENV);
  m.threads = threads;
  m.shape = blockDim = block;
  gridDim = grid;
  m.body = body;
  m.argument = argument;
  m.failed = false;
  m.shared = 0;
  m.shared_bytes = shared_bytes;
  void *held = 0;
  bool sound = take_stacks(threads);
  if (sound && shared_bytes) sound = !posix_memalign(&held, 128, shared_bytes);  // exactly so many: a sanitizer sees its end
  m.shared = static_cast<unsigned char *>(held);
#if BRIQUETTE_EMULATOR_TSAN
  m.host.fiber = __tsan_get_current_fiber();
#endif
#if BRIQUETTE_EMULATOR_ASAN && defined(__linux__)
  pthread_attr_t attributes;
  if (!pthread_getattr_np(pthread_self(), &attributes)) {
    void *bottom = 0;
    pthread_attr_getstack(&attributes, &bottom, &m.host.stack_size);
    m.host.stack = static_cast<char *>(bottom);
    pthread_attr_destroy(&attributes);
  }
#endif
  for (unsigned z = 0; sound && z < grid.z && !m.failed; z++)
    for (unsigned y = 0; y < grid.y && !m.failed; y++)
      for (unsigned x = 0; x < grid.x && !m.failed; x++) {
        blockIdx = dim3(x, y, z);
        run_block(threads);
      }
  free(held);
  drop_stacks(threads);
  fesetenv(&before);
  if (!sound) snprintf(message, room, "no memory for %u stacks of %zu bytes and %zu bytes of shared memory", threads, stack_bytes, shared_bytes);
  if (m.failed) snprintf(message, room, "%s", m.message);
  const bool failed = m.failed || !sound;
  pthread_mutex_unlock(&one_at_a_time);
  return failed;
}

template <class F> static void call_body(void *f) { (*static_cast<F *>(f))(); }
/// The same for anything that can be called; `message` has room for 512 bytes.
template <class F> static int launch(dim3 grid, dim3 block, size_t shared_bytes, char *message, F body) {
  return run(grid, block, shared_bytes, &call_body<F>, &body, message, 512);
}

/// What a host target calls: blocks, threads of a block, bytes of shared memory, and the addresses of the kernel's one
/// argument and of 512 bytes for a message.
template <class P> static int32_t launch(uint64_t *slots, void (*kernel)(P)) {
  const P *argument = reinterpret_cast<const P *>(slots[3]);
  return launch(dim3(unsigned(slots[0])), dim3(unsigned(slots[1])), size_t(slots[2]), reinterpret_cast<char *>(slots[4]), [=] { kernel(*argument); });
}

/// The launch's dynamic shared memory.
BRIQUETTE_EMULATOR_FN void *shared_memory() { return machine.shared; }

}  // namespace emulator
}  // namespace briquette

#include <briquette_warp/cuda/emulated_cuda.cuh>
