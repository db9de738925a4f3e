"""Products of tall matrices with narrow ones against numpy."""

from __future__ import annotations

import numpy as np
from helpers.cases import each

from tensorcep.kernels.rank_update import times_narrow, transposed_times_narrow


@each("n", [0, 1, 7, 8, 131])
@each("F", [1, 8, 13])
@each("D", [1, 8, 11])
def test_products_are_those_of_numpy(rng, n, F, D):
    x, coef, values = rng.standard_normal((n, F)), rng.standard_normal((F, D)), rng.standard_normal((n, D))
    np.testing.assert_allclose(times_narrow(x, coef), x @ coef, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(transposed_times_narrow(x, values), x.T @ values, rtol=1e-12, atol=1e-12)
