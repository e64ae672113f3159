"""What the tests of the whole preset expect, and the data they use."""

import numpy as np

#: what runs as one kernel, in both directions
GROUPS = [("my-pack", "lorenzo-1d", "plain-rate")]
#: elements of the longest span
SPAN = 256


def field(n: int) -> np.ndarray:
    """Return `n` float32 values, smooth with a rough part. FILL IN: data that suit the stage."""
    at = np.arange(n)
    return (np.sin(at / 40) + np.where(at % 1000 > 900, 0.3 * np.sin(at * 1.7), 0) - 0.3).astype(np.float32)
