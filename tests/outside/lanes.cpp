// Runs the outside packs' policies on groups of 1 to 32 lanes, a thread each, and compares with one lane that holds the whole span.
#include <pthread.h>
#include <stdio.h>

#include <thread>
#include <vector>

#include <acme_coder/cuda/byte_coder.cuh>
#include <acme_difference2/cuda/difference2.cuh>

/// N threads that take part in every collective, as the lanes of a warp do.
struct Shared {
  pthread_barrier_t barrier;
  uint64_t slot[32];
};
template <int N> struct Lanes {
  static constexpr int size = N;
  Shared *shared;
  int lane;
  int rank() const { return lane; }
  template <class T, class F> T collect(T x, F fold) const {
    memcpy(&shared->slot[lane], &x, sizeof x);
    pthread_barrier_wait(&shared->barrier);
    T all[N];
    for (int r = 0; r < N; r++) memcpy(&all[r], &shared->slot[r], sizeof x);
    pthread_barrier_wait(&shared->barrier);
    return fold(all);
  }
  template <class T> T shift_up(T x, T fill) const { return collect(x, [&](T *all) { return lane ? all[lane - 1] : fill; }); }
  template <class T> T exclusive_sum(T x) const {
    return collect(x, [&](T *all) { briquette::unsigned_of<T> sum = 0; for (int r = 0; r < lane; r++) sum += briquette::unsigned_of<T>(all[r]); return T(sum); });
  }
  template <class T> T bit_or(T x) const { return collect(x, [&](T *all) { T sum = 0; for (int r = 0; r < N; r++) sum |= all[r]; return sum; }); }
};

template <int N, class F> static void each_lane(F work) {
  Shared shared;
  pthread_barrier_init(&shared.barrier, nullptr, N);
  std::vector<std::thread> threads;
  for (int r = 0; r < N; r++) threads.emplace_back([&, r] { work(Lanes<N>{&shared, r}); });
  for (auto &thread : threads) thread.join();
  pthread_barrier_destroy(&shared.barrier);
}

static int failures = 0, checks = 0;
static void expect(bool same, const char *what, int lanes, size_t width) {
  checks++;
  if (!same) { failures++; printf("%s differs: %d lanes, %zu-byte codes\n", what, lanes, width); }
}

template <class T, int S> static void fill(T (&c)[S]) {
  static uint64_t state = 88172645463325252ull;
  for (int i = 0; i < S; i++) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    c[i] = T(state >> (2 * i < S ? 8 * (sizeof(T) - 1) : 0));
  }
}

template <class T, int S, int N> static void difference2() {
  typedef acme_difference2::Difference2 Policy;
  T codes[S], deltas[S];
  fill(codes);
  memcpy(deltas, codes, sizeof codes);
  Policy::forward(deltas, briquette::OneLane());
  alignas(64) T there[S], back[S];
  each_lane<N>([&](Lanes<N> g) {
    T c[S / N];
    memcpy(c, codes + g.rank() * (S / N), sizeof c);
    Policy::forward(c, g);
    memcpy(there + g.rank() * (S / N), c, sizeof c);
    Policy::inverse(c, g);
    memcpy(back + g.rank() * (S / N), c, sizeof c);
  });
  expect(!memcmp(there, deltas, sizeof deltas), "Difference2::forward", N, sizeof(T));
  expect(!memcmp(back, codes, sizeof codes), "Difference2::inverse", N, sizeof(T));
}

template <class T, int N> static void byte_coder() {
  typedef acme_coder::ByteCoder Policy;
  constexpr int S = 64;
  const struct { int64_t center; } params = {3};
  T codes[S], back[S];
  fill(codes);
  uint32_t one[S * 2] = {}, shared[S * 2] = {}, metas[N];
  const uint32_t meta = Policy::cost(codes, briquette::OneLane(), params), words = Policy::size<T, S>(meta, params);
  Policy::pack(codes, meta, briquette::OneLane(), one, params);
  each_lane<N>([&](Lanes<N> g) {
    T c[S / N], d[S / N];
    memcpy(c, codes + g.rank() * (S / N), sizeof c);
    metas[g.rank()] = Policy::cost(c, g, params);
    Policy::pack(c, meta, g, shared, params);
    pthread_barrier_wait(&g.shared->barrier);
    Policy::decode(meta, shared, d, g, params);
    memcpy(back + g.rank() * (S / N), d, sizeof d);
  });
  for (uint32_t got : metas) expect(got == meta, "ByteCoder::cost", N, sizeof(T));
  expect(words > 0 && words <= S * sizeof(T) / 4 && !memcmp(one, shared, sizeof one), "ByteCoder::pack", N, sizeof(T));
  expect(!memcmp(back, codes, sizeof codes), "ByteCoder::decode", N, sizeof(T));
}

template <class T, int N> static void policies() {
  difference2<T, 128, N>();
  difference2<T, 32, N>();
  byte_coder<T, N>();
}
template <class T> static void geometries() {
  policies<T, 1>(); policies<T, 2>(); policies<T, 4>(); policies<T, 8>(); policies<T, 16>(); policies<T, 32>();
}

int main() {
  geometries<int16_t>();
  geometries<uint32_t>();
  geometries<int64_t>();
  printf("%d checks, %d failures\n", checks, failures);
  return failures != 0;
}
