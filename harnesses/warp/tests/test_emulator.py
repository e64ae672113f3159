"""The lane emulator: what CUDA's warp functions, barriers and atomics give, and that threads which part end with a message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulator_kit import Emulated, host_target

LANE = np.arange(32, dtype=np.uint32)


@pytest.fixture(params=["fibers", "ucontext"])
def target(request: pytest.FixtureRequest) -> Any:
    """The host target, with each way of changing stacks."""
    host = host_target()
    if request.param == "fibers":
        return host
    return type(host)(extra_flags=("-DBRIQUETTE_EMULATOR_UCONTEXT=1",))


def test_shuffles(target: Any) -> None:
    kernel = Emulated(
        """const unsigned t = threadIdx.x, x = 100 + t;
        words[t] = __shfl_sync(0xffffffffu, x, int(t * 7));
        words[32 + t] = __shfl_sync(0xffffffffu, x, int(t) + 3, 8);
        words[64 + t] = __shfl_up_sync(0xffffffffu, x, 3, 16);
        words[96 + t] = __shfl_down_sync(0xffffffffu, x, 5);
        words[128 + t] = __shfl_xor_sync(0xffffffffu, x, 9);
        const unsigned long long wide = __shfl_sync(0xffffffffu, (unsigned long long)(x) << 33, 31);
        words[160 + t] = unsigned(wide >> 33);
        words[192 + t] = __float_as_uint(__shfl_xor_sync(0xffffffffu, float(t) + 0.5f, 1));""",
        target,
    )
    words, message = kernel.run(224)
    assert message == ""
    got = words.reshape(7, 32).astype(np.int64)
    assert got[0].tolist() == (100 + LANE * 7 % 32).tolist()
    assert got[1].tolist() == (100 + LANE // 8 * 8 + (LANE + 3) % 8).tolist()
    assert got[2].tolist() == [100 + t - 3 if t % 16 >= 3 else 100 + t for t in range(32)]
    assert got[3].tolist() == [100 + t + 5 if t + 5 < 32 else 100 + t for t in range(32)]
    assert got[4].tolist() == (100 + (LANE ^ 9)).tolist()
    assert got[5].tolist() == [131] * 32
    assert words[192:].view(np.float32).tolist() == ((LANE ^ 1) + 0.5).tolist()


def test_votes_reductions_and_matches(target: Any) -> None:
    kernel = Emulated(
        """const unsigned t = threadIdx.x;
        words[t] = __ballot_sync(0xffffffffu, t % 3 == 0);
        words[32 + t] = unsigned(__any_sync(0xffffffffu, t == 31)) | unsigned(__all_sync(0xffffffffu, t < 31)) << 1;
        words[64 + t] = __reduce_add_sync(0xffffffffu, t);
        words[96 + t] = unsigned(__reduce_min_sync(0xffffffffu, int(t) - 7)) ^ __reduce_max_sync(0xffffffffu, t * 5u);
        words[128 + t] = __reduce_or_sync(0xffffffffu, 1u << t) ^ __reduce_and_sync(0xffffffffu, t | 64u);
        words[128 + t] ^= __reduce_xor_sync(0xffffffffu, t << 8);
        words[160 + t] = __match_any_sync(0xffffffffu, t % 4);
        int same = 0;
        words[192 + t] = __match_all_sync(0xffffffffu, 3, &same) & unsigned(-same);
        const unsigned half = t < 16 ? 0x0000ffffu : 0xffff0000u;
        words[224 + t] = __reduce_add_sync(half, t);""",
        target,
    )
    words, message = kernel.run(256)
    assert message == ""
    got = words.reshape(8, 32)
    for row, expected in enumerate(
        [
            sum(1 << t for t in range(0, 32, 3)),
            1,
            496,
            (2**32 - 7) ^ 155,
            0xFFFFFFFF ^ 64,
        ]
    ):
        assert set(got[row].tolist()) == {expected}, row
    assert got[5].tolist() == [0x11111111 << t % 4 for t in range(32)]
    assert set(got[6].tolist()) == {0xFFFFFFFF}
    assert got[7].tolist() == [120] * 16 + [376] * 16


def test_bits_and_conversions(target: Any) -> None:
    kernel = Emulated(
        """unsigned i = 0;
        words[i++] = unsigned(__popc(0xf0f0u)) + unsigned(__popcll(0xffull << 40));
        words[i++] = unsigned(__ffs(0)) + unsigned(__ffs(0x50)) * 100u;
        words[i++] = unsigned(__clz(0)) + unsigned(__clz(1)) * 100u + unsigned(__clzll(1)) * 10000u;
        words[i++] = __brev(0x80000003u);
        words[i++] = __byte_perm(0x33221100u, 0x77665544u, 0x7610u);
        words[i++] = __byte_perm(0x00008000u, 0u, 0x0009u);
        words[i++] = __funnelshift_l(0x80000001u, 0x00000010u, 4);
        words[i++] = __funnelshift_r(0x80000001u, 0x00000010u, 36);
        words[i++] = __funnelshift_rc(1u, 2u, 32);
        words[i++] = unsigned(__float2int_rn(2.5f)) + unsigned(__float2int_rz(-1.5f)) * 10u;
        words[i++] = unsigned(__float2int_rn(3e9f));
        words[i++] = unsigned(__float2int_rn(-3e9f));
        words[i++] = unsigned(__float2int_rn(__int_as_float(0x7fc00000)));
        words[i++] = __float2uint_rn(-4.0f) + __float2uint_rd(7.9f);
        words[i++] = __umulhi(0x80000000u, 6u);
        words[i++] = __float_as_uint(__fadd_ru(1.0f, 1e-9f));
        words[i++] = __float_as_uint(__double2float_rd(0.1));
        words[i++] = unsigned(max(-3, 2)) + min(7u, 9u);""",
        target,
    )
    words, message = kernel.run(18, threads=1)
    assert message == ""
    down = np.nextafter(np.float32(0.1), np.float32(0)) if float(np.float32(0.1)) > 0.1 else np.float32(0.1)
    expected = [
        16,
        500,
        32 + 3100 + 630000,
        0xC0000001,
        0x77661100,
        0x000000FF,
        0x108,
        0x08000000,
        2,
        2 - 10,
        2**31 - 1,
        -(2**31),
    ]
    expected += [0, 7, 3, np.nextafter(np.float32(1), np.float32(2)).view(np.uint32), down.view(np.uint32), 9]
    assert words.tolist() == [int(e) % 2**32 for e in expected]


def test_blocks_barriers_shared_memory_and_atomics(target: Any) -> None:
    """A block of 200 threads: a warp that is not full, garbage in shared memory, sums through barriers, atomics over blocks."""
    kernel = Emulated(
        """unsigned *mine = static_cast<unsigned *>(briquette::emulator::shared_memory());
        __shared__ unsigned total;
        const unsigned t = threadIdx.x;
        if (t == 0) total = mine[199] == 0xcdcdcdcdu ? 0 : 1000000;
        __syncthreads();
        mine[t] = t;
        __syncthreads();
        atomicAdd(&total, mine[(t + 77) % blockDim.x]);
        const int count = __syncthreads_count(t % 2), all = __syncthreads_and(t < 200), any = __syncthreads_or(t == 500);
        if (t == 0) {
          words[blockIdx.x] = total;
          atomicAdd(words + 7, unsigned(count) + unsigned(all) * 1000u + unsigned(any) * 5000u);
          atomicMax(words + 8, blockIdx.x);
          atomicOr(words + 9, 1u << blockIdx.x);
          words[10] = gridDim.x * 1000 + blockDim.x;
        }
        if (t == 199) words[11] = __reduce_max_sync(0xffffffffu, t);
        else if (t >= 192) __reduce_max_sync(0xffffffffu, t);""",
        target,
    )
    words, message = kernel.run(12, threads=200, grid=3, shared=800)
    assert message == ""
    assert words.tolist() == [19900] * 3 + [0] * 4 + [3300, 2, 7, 3200, 199]


def test_threads_may_return_early(target: Any) -> None:
    """Those that have returned count at no barrier and in no collective of others."""
    kernel = Emulated(
        """const unsigned t = threadIdx.x;
        if (t >= 40) return;
        __syncthreads();
        words[t] = t < 32 ? 1 : __ballot_sync(0xffffffffu, 1);""",
        target,
    )
    words, message = kernel.run(64, threads=64)
    assert message == ""
    assert words.tolist() == [1] * 32 + [255] * 8 + [0] * 24


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "if (threadIdx.x & 1) __ballot_sync(0xffffffffu, 1); else __any_sync(0xffffffffu, 1);",
            "thread 0 waits in __any_sync of mask ffffffff for thread 1, which waits in __ballot_sync of mask ffffffff",
        ),
        (
            "if (threadIdx.x % 32 < 16) __syncwarp(); else __syncwarp(0xffff0000u); __shfl_sync(0xffffffffu, 1, 0);",
            "thread 0 waits in __syncwarp of mask ffffffff for thread 16, which waits in __shfl_sync of mask ffffffff",
        ),
        ("__ballot_sync(0x0000ffffu, 1);", "thread 16 calls __ballot_sync with the mask 0000ffff, in which it is not"),
        (
            "if (threadIdx.x < 16) __shfl_sync(0x0000ffffu, 1, 20); else __syncwarp(0xffff0000u);",
            "thread 0 reads lane 20 in __shfl_sync of mask 0000ffff, which is not in the mask",
        ),
        (
            "if (threadIdx.x == 5) return; __shfl_xor_sync(0xffffffffu, 1, 1);",
            "thread 4 reads lane 5 in __shfl_xor_sync of mask ffffffff, which has returned",
        ),
        (
            "if (threadIdx.x < 40) __syncthreads(); else __reduce_add_sync(0xffffffffu, 1u);",
            "thread 40 waits in __reduce_add_sync of mask ffffffff for thread 32, which is at __syncthreads",
        ),
        (
            "if (threadIdx.x & 1) __syncthreads(); else __syncthreads_or(1);",
            "thread 1 is at __syncthreads while others are at __syncthreads_or",
        ),
        ("__shfl_sync(0xffffffffu, 1, 0, 12);", "thread 0 calls __shfl_sync with a width of 12: it is a power of two up to 32"),
        ("if (threadIdx.x == 9) __trap();", "thread 9 calls __trap"),
    ],
)
def test_threads_that_part_end_with_a_message(body: str, message: str, target: Any) -> None:
    kernel = Emulated(body, target)
    assert kernel.run(threads=64)[1] == f"block 0: {message}"
    again = Emulated("words[threadIdx.x] = __ballot_sync(0xffffffffu, 1);", target)
    words, after = again.run()  # the emulator is as good as new
    assert (set(words.tolist()), after) == ({0xFFFFFFFF}, "")


def test_a_block_too_large_is_refused(target: Any) -> None:
    assert Emulated("", target).run(threads=1056)[1] == "a block of 1056 threads: the emulator runs 1 to 1024"
