// Layouts: loads that gather a chain's elements from where they stand in the array, and stores that scatter them.
// Role: shared by the skeletons of every target, for chains with a LAYOUT op.
// Requires: calls.cuh; a policy with `Origin`, `origin` and `place`.
// Source: briquette's policy contract (docs/contracts.md, "Layouts").
#pragma once
#include <briquette_warp/cuda/calls.cuh>

namespace briquette {

/// The chain's LAYOUT op, called: what is common to a span of laid-out elements, and where one of them stands.
template <class C> struct Laid {
  typedef typename C::Layout O;
  typedef typename O::Policy::Origin Origin;
  static constexpr uint32_t span = uint32_t(O::span);

  __device__ __forceinline__ static Origin origin(uint64_t number, const uint8_t *params) {
    if constexpr (no_params<typename O::Params>) return O::Policy::origin(number);
    else return O::Policy::origin(number, *reinterpret_cast<const typename O::Params *>(params + C::layout_params));
  }
  /// False where the element is padding; `at` is the one that it repeats then.
  __device__ __forceinline__ static bool place(const Origin &origin, uint32_t within, uint64_t &at, const uint8_t *params) {
    if constexpr (no_params<typename O::Params>) return O::Policy::place(origin, within, at);
    else return O::Policy::place(origin, within, at, *reinterpret_cast<const typename O::Params *>(params + C::layout_params));
  }
};

}  // namespace briquette
