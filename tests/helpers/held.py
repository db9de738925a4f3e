"""Entries that chains left out, as tests make them up."""

from __future__ import annotations

import numpy as np

from tensorcep.cp.calibration.holdout import HeldOut


def held_of(y, mean, log_density):
    """Entries left out with these running means (C, n) and log densities (C, n), before they are weighed."""
    n, zeros = len(y), np.zeros_like(mean)
    rows, unknown = np.arange(n)[:, None], np.full(n, np.nan)
    return HeldOut(
        np.arange(n),
        rows,
        y,
        mean,
        zeros,
        np.ones(len(mean)),
        zeros + 1.0,
        1.0,
        log_density,
        None,
        y[:0],
        *[unknown] * 3,
    )
