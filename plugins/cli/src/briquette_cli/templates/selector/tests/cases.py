"""What the tests of the whole preset expect, and the data they use."""

import numpy as np

#: what runs as one kernel, in both directions
GROUPS = [("linear-quantizer", "my-pack", "plain-rate")]
#: elements of a tile
SPAN = 256
#: a chain for integers, lossless, and some types that it takes
CODES, CODE_TYPES = ("my-pack", "plain-rate"), ("uint32", "int64")


def field(n: int) -> np.ndarray:
    """Return `n` float32 values, smooth around a level that comes and goes. FILL IN: data that need every mode."""
    at = np.arange(n)
    return (np.sin(at / 40) + np.where(at // 700 % 2, 50.0, 0.0)).astype(np.float32)
