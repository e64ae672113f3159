// How the harness calls chunk policies: a list of passes over a chunk, from one buffer to the other and back.
// Role: shared by the skeletons of every target.
// Requires: coop.cuh; buffers of BYTES bytes, aligned to 16, which may be read and written up to a multiple of 256 bytes.
// Source: briquette; ping-pong between two buffers as in the LC framework (Burtscher et al.).
#pragma once
#include <briquette_chunk/cuda/coop.cuh>
#include <briquette_warp/cuda/calls.cuh>

namespace briquette {
namespace chunks {

/// An op on whole chunks: the policy, its parameter struct (void: none) and where its parameters lie in the run's block.
template <class Policy_, class Params_, uint32_t At> struct ChunkOp {
  typedef Policy_ Policy;
  typedef Params_ Params;
  static constexpr uint32_t at = At;
};

/// No ELEMENTWISE ops.
struct Nothing {
  static constexpr bool empty = true;
  template <class T, int E> __device__ __forceinline__ static void forward(T (&)[E], const uint8_t *) {}
  template <class T, int E> __device__ __forceinline__ static void inverse(T (&)[E], const uint8_t *) {}
};

/// ELEMENTWISE ops on what is in registers, handed to what loads and stores. No lambdas: NVRTC 13.0 takes generic ones for host code.
template <class Each> struct Forwards {
  const uint8_t *params;
  template <class T, int E> __device__ __forceinline__ void operator()(T (&c)[E]) const { Each::forward(c, params); }
};
template <class Each, class T> struct Inverses {
  const uint8_t *params;
  template <class U, int E> __device__ __forceinline__ void operator()(U (&c)[E]) const { Each::inverse(as<T>(c), params); }
};

/// An op on whole chunks, and the ELEMENTWISE ops that follow it on elements of type T.
template <class Op_, class Each_, class T_> struct Pass {
  typedef Op_ Op;
  typedef Each_ Each;
  typedef T_ T;
};
template <class... P> struct Passes;

template <class O, int BYTES, class G> __device__ __forceinline__ void chunk_forward(const uint8_t *in, uint8_t *out, uint32_t bytes, G g, const uint8_t *params) {
  if constexpr (no_params<typename O::Params>) O::Policy::template forward<BYTES>(in, out, bytes, g);
  else O::Policy::template forward<BYTES>(in, out, bytes, g, *reinterpret_cast<const typename O::Params *>(params + O::at));
}
template <class O, int BYTES, class G> __device__ __forceinline__ void chunk_inverse(const uint8_t *in, uint8_t *out, uint32_t bytes, G g, const uint8_t *params) {
  if constexpr (no_params<typename O::Params>) O::Policy::template inverse<BYTES>(in, out, bytes, g);
  else O::Policy::template inverse<BYTES>(in, out, bytes, g, *reinterpret_cast<const typename O::Params *>(params + O::at));
}
template <class O, int BYTES, class G> __device__ __forceinline__ uint32_t chunk_encode(const uint8_t *in, uint8_t *out, uint32_t bytes, uint8_t *scratch, G g, const uint8_t *params) {
  if constexpr (no_params<typename O::Params>) return O::Policy::template encode<BYTES>(in, out, bytes, scratch, g);
  else return O::Policy::template encode<BYTES>(in, out, bytes, scratch, g, *reinterpret_cast<const typename O::Params *>(params + O::at));
}
template <class O, int BYTES, class G> __device__ __forceinline__ bool chunk_decode(const uint8_t *in, uint32_t coded, uint8_t *out, uint32_t bytes, uint8_t *scratch, G g, const uint8_t *params) {
  if constexpr (no_params<typename O::Params>) return O::Policy::template decode<BYTES>(in, coded, out, bytes, scratch, g);
  else return O::Policy::template decode<BYTES>(in, coded, out, bytes, scratch, g, *reinterpret_cast<const typename O::Params *>(params + O::at));
}

/// Run `each(c)` over the elements of a buffer, in place. What lies beyond the last element, up to the array's end, means nothing.
template <class T, class G, class F> __device__ __forceinline__ void each_in_place(uint8_t *buffer, uint32_t bytes, G g, F each) {
  constexpr int E = at_once<T, G>;
  T *x = reinterpret_cast<T *>(buffer);
  for (uint32_t at = g.rank() * E; at < bytes / sizeof(T); at += G::size * E) {
    alignas(16) T c[E];
    read_elements(x + at, c);
    each(c);
    write_elements(x + at, c);
  }
}

/// A transform whose output elements each come from a few input elements around says so by `gather`; ELEMENTWISE ops that
/// follow are then applied before anything is stored.
template <class Q, class U, int E> struct has_gather {
  template <class R> __device__ static auto test(int) -> decltype(R::gather((const U *)0, uint32_t(0), *(U(*)[E])0), char());
  template <class R> __device__ static long test(...);
  static constexpr bool value = sizeof(test<Q>(0)) == 1;
};
template <class Q, class T, class G, class F> __device__ __forceinline__ void gather_each(const uint8_t *in, uint8_t *out, uint32_t bytes, G g, F each) {
  typedef unsigned_of<T> U;
  constexpr int E = at_once<T, G>;
  for (uint32_t at = g.rank() * E; at < bytes / sizeof(T); at += G::size * E) {
    alignas(16) U c[E];
    Q::gather(reinterpret_cast<const U *>(in), at, c);
    each(as<T>(c));
    write_elements(reinterpret_cast<U *>(out) + at, c);
  }
}

/// A transform whose inverse can begin with ELEMENTWISE ops says so by `inverse_after`.
template <class Q, int BYTES, class G> struct has_inverse_after {
  struct None { template <class U, int E> __device__ void operator()(U (&)[E]) const {} };
  template <class R> __device__ static auto test(int) -> decltype(R::template inverse_after<BYTES>((const uint8_t *)0, (uint8_t *)0, uint32_t(0), *(const G *)0, None()), char());
  template <class R> __device__ static long test(...);
  static constexpr bool value = sizeof(test<Q>(0)) == 1;
};

/// All passes, from buffer `a` by turns to `b` and back. Begins and ends with the data in place for all lanes; returns where they are.
template <> struct Passes<> {
  static constexpr int count = 0;
  template <int BYTES, class G> __device__ __forceinline__ static uint8_t *forward(uint8_t *a, uint8_t *, uint32_t, G, const uint8_t *) { return a; }
  template <int BYTES, class G> __device__ __forceinline__ static uint8_t *inverse(uint8_t *a, uint8_t *, uint32_t, G, const uint8_t *) { return a; }
};
template <class P, class... Rest> struct Passes<P, Rest...> {
  static constexpr int count = 1 + int(sizeof...(Rest));
  template <int BYTES, class G> __device__ __forceinline__ static uint8_t *forward(uint8_t *a, uint8_t *b, uint32_t bytes, G g, const uint8_t *params) {
    typedef typename P::T T;
    if constexpr (has_gather<typename P::Op::Policy, unsigned_of<T>, at_once<T, G>>::value) {
      gather_each<typename P::Op::Policy, T>(a, b, bytes, g, Forwards<typename P::Each>{params});
      g.sync();
    } else {
      chunk_forward<typename P::Op, BYTES>(a, b, bytes, g, params);
      g.sync();
      if constexpr (!P::Each::empty) {
        each_in_place<T>(b, bytes, g, Forwards<typename P::Each>{params});
        g.sync();
      }
    }
    return Passes<Rest...>::template forward<BYTES>(b, a, bytes, g, params);
  }
  template <int BYTES, class G> __device__ __forceinline__ static uint8_t *inverse(uint8_t *a, uint8_t *b, uint32_t bytes, G g, const uint8_t *params) {
    uint8_t *in = Passes<Rest...>::template inverse<BYTES>(a, b, bytes, g, params), *out = in == a ? b : a;
    typedef typename P::T T;
    if constexpr (has_inverse_after<typename P::Op::Policy, BYTES, G>::value) {
      P::Op::Policy::template inverse_after<BYTES>(in, out, bytes, g, Inverses<typename P::Each, T>{params});
    } else {
      if constexpr (!P::Each::empty) {
        each_in_place<T>(in, bytes, g, Inverses<typename P::Each, T>{params});
        g.sync();
      }
      chunk_inverse<typename P::Op, BYTES>(in, out, bytes, g, params);
    }
    g.sync();
    return out;
  }
};

}  // namespace chunks
}  // namespace briquette
