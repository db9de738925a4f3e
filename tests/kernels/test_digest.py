"""The digest of words: other bits, or another order of them, give another."""

from __future__ import annotations

import numpy as np
from helpers.cases import each

from tensorcep.kernels.sorting import digest


def of(values: np.ndarray) -> int:
    return int(digest(np.ascontiguousarray(values).reshape(-1).view(np.uint64)))


@each("shape", [(0, 2), (1, 2), (3, 5), (64, 8), (100, 3)])
def test_digest_is_that_of_the_bits_in_their_order(rng: np.random.Generator, shape: tuple[int, int]) -> None:
    values = rng.normal(size=shape)
    same = of(values)
    assert of(values.copy()) == same
    if not values.size:
        return
    changed = [-values, values[:, ::-1], np.nextafter(values, 1.0), np.vstack([values, values])]
    flipped = values.copy()
    flipped[:, 0] *= -1.0  # signs alone are the highest bits, which cancel in a sum
    columns = np.roll(values, 1, axis=0) if len(values) > 1 else -values
    found = [of(one) for one in (*changed, flipped, columns)]
    assert same not in found


def test_digest_sees_every_bit(rng: np.random.Generator) -> None:
    words = rng.integers(0, 2**63, size=19).astype(np.uint64)
    same, seen = int(digest(words)), set()
    for n in range(len(words)):
        for bit in range(64):
            other = words.copy()
            other[n] ^= np.uint64(1) << np.uint64(bit)
            seen.add(int(digest(other)))
    assert same not in seen
    assert len(seen) == 19 * 64
