"""The chunk-cooperative harness: policies on whole byte-chunks, composed into one pass, intermediates in shared memory.

Its execution model follows the LC framework (Burtscher et al.) and PFPL (Fallin, Azami, Burtscher et al., IPDPS 2025): a block
owns a chunk, every operation takes it from one buffer to the other, and what does not shrink is stored as it is. On the host
the group is one lane and the compiler vectorizes its loops.
"""

from .harness import ChunkHarness

__all__ = ["ChunkHarness"]
