// How a harness calls policies: on slices of a lane's array, with or without parameters, element by element or array at a time.
// Role: shared by the skeletons of every target.
// Requires: group.cuh.
// Source: briquette's policy contract (docs/contracts.md).
#pragma once
#include <briquette_warp/cuda/group.cuh>

namespace briquette {

/// An op of a chain: the policy, its parameter struct (void: none), its span in elements (0: ELEMENTWISE), its code types.
template <class Policy_, class Params_, int Span_, class In_, class Out_> struct Op {
  typedef Policy_ Policy;
  typedef Params_ Params;
  typedef In_ In;
  typedef Out_ Out;
  static constexpr int span = Span_;
};
template <class P> constexpr bool no_params = false;
template <> constexpr bool no_params<void> = true;

template <class T, class U, int E> __device__ __forceinline__ T (&as(U (&c)[E]))[E] {
  static_assert(sizeof(T) == sizeof(U), "code types of one chain have one width");
  return *reinterpret_cast<T(*)[E]>(&c[0]);
}

/// Set what lies beyond the stream's end to zero, as before every op.
template <class T, int E> __device__ __forceinline__ void zero_from(T (&c)[E], uint32_t count) {
  if (count < uint32_t(E)) {
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) if (uint32_t(m) >= count) c[m] = T(0);
  }
}

template <class O, class T, class G, int E> __device__ __forceinline__ void op_forward(T (&c)[E], G g, const uint8_t *params) {
  auto &in = as<typename O::In>(c);
  if constexpr (no_params<typename O::Params>) O::Policy::forward(in, g);
  else O::Policy::forward(in, g, *reinterpret_cast<const typename O::Params *>(params));
}
template <class O, class T, class G, int E> __device__ __forceinline__ void op_inverse(T (&c)[E], G g, const uint8_t *params) {
  auto &out = as<typename O::Out>(c);
  if constexpr (no_params<typename O::Params>) O::Policy::inverse(out, g);
  else O::Policy::inverse(out, g, *reinterpret_cast<const typename O::Params *>(params));
}

/// Apply a code-to-code op to every span of the lane's array.
template <class O, class T, class G, int E> __device__ __forceinline__ void each_forward(T (&c)[E], G g, const uint8_t *params) {
  if constexpr (O::span == 0 || O::span >= E) op_forward<O>(c, g, params);
  else for (int k = 0; k < E / O::span; k++) op_forward<O>(slice<O::span>(c, k), g, params);
}
template <class O, class T, class G, int E> __device__ __forceinline__ void each_inverse(T (&c)[E], G g, const uint8_t *params) {
  if constexpr (O::span == 0 || O::span >= E) op_inverse<O>(c, g, params);
  else for (int k = 0; k < E / O::span; k++) op_inverse<O>(slice<O::span>(c, k), g, params);
}

/// A head that quantizes a whole array at once says so by having `quantize_all`; the same for `dequantize_all`.
template <class H, class X, class C, class P, int E> struct has_quantize_all {
  template <class Q> __device__ static auto test(int) -> decltype(Q::quantize_all(*(const X(*)[E])0, *(C(*)[E])0, *(uint8_t(*)[E])0, *(const P *)0), char());
  template <class Q> __device__ static long test(...);
  static constexpr bool value = sizeof(test<H>(0)) == 1;
};
template <class H, class X, class C, class P, int E> struct has_dequantize_all {
  template <class Q> __device__ static auto test(int) -> decltype(Q::dequantize_all(*(const C(*)[E])0, *(X(*)[E])0, *(const P *)0), char());
  template <class Q> __device__ static long test(...);
  static constexpr bool value = sizeof(test<H>(0)) == 1;
};

/// Quantize a lane's array; true when nothing is kept aside, else `kept` marks what is.
template <class O, class X, class C, int E> __device__ __forceinline__ bool head_quantize(const X (&x)[E], C (&code)[E], uint8_t (&kept)[E], const uint8_t *params) {
  typedef typename O::Params P;
  const P &p = *reinterpret_cast<const P *>(params);
  if constexpr (has_quantize_all<typename O::Policy, X, C, P, E>::value) return O::Policy::quantize_all(x, code, kept, p);
  else {
    int bad = 0;
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) { kept[m] = O::Policy::quantize(x[m], code[m], p) ? 0 : 1; bad |= kept[m]; }
    return !bad;
  }
}
template <class O, class X, class C, int E> __device__ __forceinline__ void head_dequantize(const C (&code)[E], X (&x)[E], const uint8_t *params) {
  typedef typename O::Params P;
  const P &p = *reinterpret_cast<const P *>(params);
  if constexpr (has_dequantize_all<typename O::Policy, X, C, P, E>::value) O::Policy::dequantize_all(code, x, p);
  else {
    BRIQUETTE_UNROLL
    for (int m = 0; m < E; m++) x[m] = O::Policy::dequantize(code[m], X(0), p);
  }
}

/// A coder that maps codes once, before cost and pack see them, says so by `prepare`, and undoes it by `finish` after decode.
template <class Q, class T, class G, int E> struct has_prepare {
  template <class R> __device__ static auto test(int) -> decltype(R::prepare(*(T(*)[E])0, G()), R::finish(*(T(*)[E])0, G()), char());
  template <class R> __device__ static long test(...);
  static constexpr bool value = sizeof(test<Q>(0)) == 1;
};
/// Whether a policy has a method of one of those names, whatever it takes: a name that is inherited twice cannot be looked up.
template <class Q> struct names_prepare {
  struct Prepare { int prepare; };
  struct Finish { int finish; };
  struct WithPrepare : Q, Prepare {};
  struct WithFinish : Q, Finish {};
  template <class R> __device__ static auto one(int) -> decltype(&R::prepare, char());
  template <class R> __device__ static long one(...);
  template <class R> __device__ static auto other(int) -> decltype(&R::finish, char());
  template <class R> __device__ static long other(...);
  static constexpr bool value = sizeof(one<WithPrepare>(0)) != 1 || sizeof(other<WithFinish>(0)) != 1;
};
template <class O, class T, int E, class G> __device__ __forceinline__ void tail_prepare(T (&c)[E], G g) {
  static_assert(has_prepare<typename O::Policy, T, G, E>::value || !names_prepare<typename O::Policy>::value,
                "a coder has both prepare(c, g) and finish(c, g), which take nothing else, or neither: see docs/contracts.md");
  if constexpr (has_prepare<typename O::Policy, T, G, E>::value) O::Policy::prepare(c, g);
}
template <class O, class T, int E, class G> __device__ __forceinline__ void tail_finish(T (&c)[E], G g) {
  if constexpr (has_prepare<typename O::Policy, T, G, E>::value) O::Policy::finish(c, g);
}
template <class O, class T, int E, class G> __device__ __forceinline__ uint32_t tail_cost(const T (&c)[E], G g, const uint8_t *params) {
  if constexpr (no_params<typename O::Params>) return O::Policy::cost(c, g);
  else return O::Policy::cost(c, g, *reinterpret_cast<const typename O::Params *>(params));
}
template <class O, class T> __device__ __forceinline__ uint32_t tail_size(uint32_t meta, const uint8_t *params) {
  if constexpr (no_params<typename O::Params>) return O::Policy::template size<T, O::span>(meta);
  else return O::Policy::template size<T, O::span>(meta, *reinterpret_cast<const typename O::Params *>(params));
}
template <class O, class T, int E, class G> __device__ __forceinline__ void tail_pack(const T (&c)[E], uint32_t meta, G g, uint32_t *out, const uint8_t *params) {
  if constexpr (no_params<typename O::Params>) O::Policy::pack(c, meta, g, out);
  else O::Policy::pack(c, meta, g, out, *reinterpret_cast<const typename O::Params *>(params));
}
template <class O, class T, int E> __device__ __forceinline__ void pack_together(const T (&c)[E], uint32_t meta, uint32_t size, uint32_t *out, const uint8_t *params) {
  if constexpr (no_params<typename O::Params>) O::Policy::pack_together(c, meta, size, out);
  else O::Policy::pack_together(c, meta, size, out, *reinterpret_cast<const typename O::Params *>(params));
}
template <class O, class T, int E, class G> __device__ __forceinline__ void tail_decode(uint32_t meta, const uint32_t *in, T (&c)[E], G g, const uint8_t *params) {
  if constexpr (no_params<typename O::Params>) O::Policy::decode(meta, in, c, g);
  else O::Policy::decode(meta, in, c, g, *reinterpret_cast<const typename O::Params *>(params));
}

/// A coder whose cost can be gathered code by code says so by a type `Sum`; see docs/contracts.md.
template <class Q, class T, bool> struct sum_of { typedef uint32_t type; };
template <class Q, class T> struct sum_of<Q, T, true> { typedef typename Q::template Sum<T> type; };
template <class Q, class T> struct has_sum {
  template <class R> __device__ static auto test(int) -> decltype(sizeof(typename R::template Sum<T>), char());
  template <class R> __device__ static long test(...);
  static constexpr bool value = sizeof(test<Q>(0)) == 1;
  typedef typename sum_of<Q, T, value>::type type;
};
template <class O, class T, class S> __device__ __forceinline__ void tail_add(S &sum, T code, const uint8_t *params) {
  if constexpr (no_params<typename O::Params>) O::Policy::template add<T>(sum, code);
  else O::Policy::template add<T>(sum, code, *reinterpret_cast<const typename O::Params *>(params));
}
template <class O, class T, class S, class G> __device__ __forceinline__ uint32_t tail_measure(const S &sum, G g, const uint8_t *params) {
  if constexpr (no_params<typename O::Params>) return O::Policy::template measure<T>(sum, g);
  else return O::Policy::template measure<T>(sum, g, *reinterpret_cast<const typename O::Params *>(params));
}

}  // namespace briquette
