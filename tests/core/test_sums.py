"""Sums a piece at a time: the bits of numpy's over the whole."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each

from tensorcep.core import arrays


@each("P", [1, 2, 3, 10, 36])
@each("share", [0.0, 0.7, 1.0])
def test_sum_of_some_lines_has_the_bits_of_that_of_a_copy(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, P: int, share: float
) -> None:
    monkeypatch.setattr(arrays, "LINES", 7)
    lines = rng.normal(size=(300, P)) * 10.0 ** rng.normal(size=(300, P))
    which = rng.random(300) < share
    np.testing.assert_array_equal(arrays.sum_of_lines(lines[5:], which[5:]), lines[5:][which[5:]].sum(axis=0))
