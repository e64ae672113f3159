"""What the tests of the whole preset expect, and the data they use."""

import numpy as np

#: what runs as one kernel, in both directions
GROUPS = [("linear-quantizer", "my-pack", "plain-rate")]
#: elements of the stage's span
SPAN = 128
#: a chain for integers, lossless, and some types that it takes
CODES, CODE_TYPES = ("my-pack", "plain-rate"), ("int16", "uint32", "int64")


def field(n: int) -> np.ndarray:
    """Return `n` float32 values, smooth with a rough part. FILL IN: data that suit the stage."""
    at = np.arange(n)
    return (np.sin(at / 40) + np.where(at % 1000 > 900, 0.3 * np.sin(at * 1.7), 0) - 0.3).astype(np.float32)
