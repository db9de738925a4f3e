"""Work arrays: parts lie one after the other in the order of their record."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from tensorcep.kernels.lanes import layout, work_array
from tensorcep.kernels.slots import LANES


class Parts(NamedTuple):
    S: int
    one: int
    none: int
    m: int
    size: int


def test_layout_puts_one_part_after_the_other():
    assert layout(Parts, S=6, none=0, m=3) == Parts(S=0, one=6, none=7, m=7, size=10)


def test_layout_refuses_a_size_of_no_part():
    with pytest.raises(TypeError, match=r"Parts has the parts .* got sizes of \{'G'\}"):
        layout(Parts, G=3)
    with pytest.raises(TypeError, match="got sizes of"):
        layout(Parts, size=3)


def test_work_array_is_zero_but_for_the_one():
    w, at = work_array(layout(Parts, S=6, m=3))
    assert w.shape == (at.size, LANES) == (11, LANES)
    np.testing.assert_array_equal(np.flatnonzero(w.any(axis=1)), [at.one])
    np.testing.assert_array_equal(w[at.one], 1.0)
