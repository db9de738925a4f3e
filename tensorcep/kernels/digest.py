"""A number that tells arrays of other bits from each other, at the speed of reading them."""

from __future__ import annotations

import numpy as np

from tensorcep.core.compile import inlined, kernel

PRIME = np.uint64(0x9E3779B97F4A7C15)
HALF, TURN, REST = np.uint64(32), np.uint64(29), np.uint64(35)


@inlined
def _with(state, word):
    """The state after one more word."""
    x = state ^ word
    x = (x ^ (x >> HALF)) * PRIME
    return (x << TURN) | (x >> REST)


@kernel
def digest(words):
    """64 bits that depend on every one of some words (N,) uint64 and on their places.

    Words are multiplied into eight numbers that are turned, so that every bit has an effect on most others: in a plain
    sum two changed signs would make up for each other.
    """
    state = np.arange(1, 9).astype(np.uint64)
    whole = len(words) // 8 * 8
    for n in range(0, whole, 8):
        for lane in range(8):
            state[lane] = _with(state[lane], words[n + lane])
    total = np.uint64(len(words))
    for n in range(whole, len(words)):
        total = _with(total, words[n])
    for lane in range(8):
        total = _with(total, state[lane])
    return total
