"""Whether a gain is more than chance."""

from __future__ import annotations

import numpy as np

# The standard errors from which a gain is no chance.
SURE = 2.0


def beyond_chance(gain: np.ndarray) -> bool:
    """Whether the mean of independent gains (n,) lies `SURE` of its standard errors above 0."""
    return bool(gain.mean() > SURE * gain.std() / np.sqrt(len(gain)))
