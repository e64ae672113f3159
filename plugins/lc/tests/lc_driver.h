// Runs chunk policies for tests: by one lane, and by N lanes that are fibers taking turns at barriers.
// Lanes run in ascending or descending order between two barriers, so that a barrier which is missing shows.
// What a decoder reads ends at a page that may not be touched.
#pragma once
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <functional>
#include <vector>

#include <briquette_chunk/cuda/coop.cuh>

namespace driver {

constexpr size_t stack_bytes = 64 << 10, page = 4096;
struct Lane { ucontext_t context; jmp_buf place; bool begun, done; };
static std::vector<Lane> lanes;
static std::function<void(uint32_t)> work;
static ucontext_t beginning;
static jmp_buf scheduler;
static uint32_t current;
static uint64_t slots[1024];

static void lane_main() {
  work(current);
  lanes[current].done = true;
  _longjmp(scheduler, 1);
}
__attribute__((noinline)) static void resume() {
  if (_setjmp(scheduler)) return;
  if (lanes[current].begun) _longjmp(lanes[current].place, 1);
  lanes[current].begun = true;
  swapcontext(&beginning, &lanes[current].context);
}
/// Wait until every lane has come here.
__attribute__((noinline)) static void barrier() {
  Lane &lane = lanes[current];
  if (!_setjmp(lane.place)) _longjmp(scheduler, 1);
}
/// Run `f(rank)` in n lanes; false where some end while others wait.
static bool run(uint32_t n, bool descending, std::function<void(uint32_t)> f) {
  static char *stacks = static_cast<char *>(aligned_alloc(4096, 1024 * stack_bytes));
  work = f;
  lanes.resize(n);
  for (uint32_t i = 0; i < n; i++) {
    getcontext(&lanes[i].context);
    lanes[i].context.uc_stack.ss_sp = stacks + i * stack_bytes;
    lanes[i].context.uc_stack.ss_size = stack_bytes;
    lanes[i].context.uc_link = nullptr;
    lanes[i].begun = lanes[i].done = false;
    makecontext(&lanes[i].context, lane_main, 0);
  }
  for (;;) {
    uint32_t ended = 0;
    for (uint32_t i = 0; i < n; i++) {
      current = descending ? n - 1 - i : i;
      resume();
      ended += lanes[current].done;
    }
    if (ended == n) return true;
    if (ended) return false;
  }
}

/// N lanes as a block of a GPU has them.
template <int N> struct Lanes {
  static constexpr int size = N, warp_size = 32;
  uint32_t own;
  uint32_t rank() const { return own; }
  uint32_t warp() const { return own / 32; }
  uint32_t lane() const { return own % 32; }
  static constexpr uint32_t warps() { return N / 32; }
  void sync() const { barrier(); }
  template <class F> void all(uint64_t x, F f) const {
    barrier();
    slots[own] = x;
    barrier();
    for (uint32_t i = 0; i < N; i++) f(i, slots[i]);
    barrier();
  }
  uint32_t exclusive_sum(uint32_t x, uint32_t &total) const {
    uint32_t before = 0, sum = 0;
    all(x, [&](uint32_t i, uint64_t y) { if (i < own) before += uint32_t(y); sum += uint32_t(y); });
    total = sum;
    return before;
  }
  uint32_t sum(uint32_t x) const { uint32_t total; exclusive_sum(x, total); return total; }
  uint32_t max(uint32_t x) const { uint32_t most = x; all(x, [&](uint32_t, uint64_t y) { if (y > most) most = uint32_t(y); }); return most; }
  bool any(bool x) const { bool found = false; all(x, [&](uint32_t, uint64_t y) { found |= y != 0; }); return found; }
  uint32_t ballot(bool x) const {
    uint32_t word = 0;
    all(x, [&](uint32_t i, uint64_t y) { if (i / 32 == own / 32 && y) word |= 1u << (i % 32); });
    return word;
  }
  template <class T> T shuffle(T x, uint32_t from) const { T got = x; all(x, [&](uint32_t i, uint64_t y) { if (i == own / 32 * 32 + from) got = T(y); }); return got; }
  template <class T> T shuffle_up(T x, T fill) const { T got = fill; all(x, [&](uint32_t i, uint64_t y) { if (own % 32 && i + 1 == own) got = T(y); }); return got; }
  void add(uint32_t *counter, uint32_t x) const { *counter += x; }
};

constexpr uint32_t parted = 0xffffffffu, disagreed = 0xfffffffeu;

/// Call `f(group)` in all lanes, or by one; the result that all of them return.
template <int N, class F> static uint32_t call(bool descending, F f) {
  if constexpr (N == 1) return f(briquette::ChunkLane());
  else {
    uint32_t result[N];
    if (!run(N, descending, [&](uint32_t rank) { result[rank] = f(Lanes<N>{rank}); })) return parted;
    for (int i = 1; i < N; i++) if (result[i] != result[0]) return disagreed;
    return result[0];
  }
}

alignas(64) static uint8_t scratch[1 << 17];

template <class P, int BYTES, int N> static uint32_t encode(const uint8_t *in, uint8_t *out, uint32_t bytes, bool descending) {
  static_assert(size_t(P::scratch_bytes(BYTES)) <= sizeof scratch - 64, "room");
  memset(scratch, 0xa5, sizeof scratch);
  const uint32_t got = call<N>(descending, [=](auto g) { return P::template encode<BYTES>(in, out, bytes, scratch, g); });
  for (int i = 0; i < 64; i++) if (scratch[P::scratch_bytes(BYTES) + i] != 0xa5) return 0xfffffffdu;
  return got;
}
/// A copy of `coded` bytes that ends where a page begins that nobody may read.
static const uint8_t *guarded(const uint8_t *in, uint32_t coded) {
  constexpr size_t room = 8 * page;
  static uint8_t *pages = nullptr;
  if (!pages) {
    pages = static_cast<uint8_t *>(mmap(nullptr, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(pages + room, page, PROT_NONE);
  }
  memcpy(pages + room - coded, in, coded);
  return pages + room - coded;
}
template <class P, int BYTES, int N> static uint32_t decode(const uint8_t *in, uint32_t coded, uint8_t *out, uint32_t bytes, bool descending) {
  memset(scratch, 0xa5, sizeof scratch);
  const uint8_t *from = guarded(in, coded);
  const uint32_t got = call<N>(descending, [=](auto g) { return uint32_t(P::template decode<BYTES>(from, coded, out, bytes, scratch, g)); });
  for (int i = 0; i < 64; i++) if (scratch[P::scratch_bytes(BYTES) + i] != 0xa5) return 0xfffffffdu;
  return got;
}
template <class P, int BYTES, int N> static void turn(const uint8_t *in, uint8_t *out, uint32_t bytes, bool back) {
  call<N>(false, [=](auto g) { if (back) P::template inverse<BYTES>(in, out, bytes, g); else P::template forward<BYTES>(in, out, bytes, g); return 0u; });
}

}  // namespace driver
