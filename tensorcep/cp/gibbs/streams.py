"""The random streams of the samplers, told apart by what they draw: the same draws whichever thread makes them."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

# Streams of compiled draws are numbered by sweep and chain together.
CHAINS = 1 << 16


class Stream(IntEnum):
    """What is drawn. Rows of mode k have the compiled stream k.

    The first eleven are streams of numpy, which are drawn from once for every sweep and chain; the others are compiled.
    """

    PRECISION = 2
    DISPERSION = 3
    PRIOR = 4
    UNKNOWN_ROWS = 5
    HELD_OUT = 6
    PILOT = 7
    THRESHOLDS = 8
    GAPS = 9
    EVENNESS = 10
    ZEROS = 11
    AUGMENTATION = 1 << 20
    TABLES = 1 << 21
    FACTORS = 1 << 22
    FOLDED = 1 << 23
    # in place of the number of the sweep: the rows that chains start from
    START = 1 << 48


def generator(seed: int, what: Stream, *which: int) -> np.random.Generator:
    """A stream of numpy for a sweep and a chain."""
    return np.random.default_rng([seed, int(what), *which])


def stream_key(seed: int, chain: int, sweep: int, what: int) -> tuple[int, int, int]:
    """Seed, sweep and part of the compiled streams of one step of one chain."""
    return seed, sweep * CHAINS + chain, int(what)
