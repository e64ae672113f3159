// What ThreadSanitizer and AddressSanitizer are told of the emulator's fibers, and functions that they leave alone.
// Role: shared by the emulator.
// Requires: GCC or clang; without a sanitizer all of it is nothing.
// Source: the fiber interfaces of compiler-rt.
#pragma once
#include <stddef.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define BRIQUETTE_EMULATOR_TSAN 1
extern "C" {
void *__tsan_get_current_fiber();
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
}
#if defined(__clang__)
#define BRIQUETTE_EMULATOR_FN static __attribute__((noinline, disable_sanitizer_instrumentation))
#else
#define BRIQUETTE_EMULATOR_FN static __attribute__((noinline, no_sanitize("thread")))
#endif
#else
#define BRIQUETTE_EMULATOR_TSAN 0
#define BRIQUETTE_EMULATOR_FN static __attribute__((noinline, unused))
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define BRIQUETTE_EMULATOR_ASAN 1
extern "C" {
void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake, const void **bottom, size_t *size);
void __asan_unpoison_memory_region(void const volatile *address, size_t size);
}
#else
#define BRIQUETTE_EMULATOR_ASAN 0
#endif
