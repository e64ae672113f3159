"""The warp-register harness: device policies composed into one pass with intermediates in registers.

Its execution model follows SZp and cuSZp (Huang et al., SC 2023): a lane group owns a region, quantizes, predicts and
codes it without leaving registers. On the host the group is one lane and the compiler vectorizes over its array.
"""

from .harness import WarpHarness

__all__ = ["WarpHarness"]
