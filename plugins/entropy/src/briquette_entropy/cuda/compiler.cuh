// Fixed-width types and device annotations, for NVRTC and for host compilers; the pack needs no other for its kernels.
// Role: none; included by this pack's kernels.
// Requires: C++17; NVRTC, or a host compiler with GNU attributes.
// Source: briquette's own.
#pragma once

#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
#else
#include <stdint.h>
#endif

#if defined(__CUDACC__)
#define BRIQUETTE_ENTROPY_HOST 0
#else
#define BRIQUETTE_ENTROPY_HOST 1
#define __device__
#undef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))
#endif
