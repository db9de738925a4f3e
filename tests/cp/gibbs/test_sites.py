"""What entries say in the order of the rows of a mode."""

from __future__ import annotations

import numpy as np
from helpers.cases import each
from helpers.problems import problem

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.packing import offsets
from tensorcep.cp.gibbs.row_draw import of_row_noise
from tensorcep.cp.model.memmap import by_row_of
from tensorcep.likelihoods.parameters.base import RowPrecision


@each("threads", [1, 2])
@each("mode", [0, 2])
def test_entries_are_weighed_by_the_precision_of_their_row(rng, mode, threads):
    p = problem(rng)[2]
    by_row, first = by_row_of(p, None, values=True), offsets(p.shape)
    noise, executor = RowPrecision(mode, rng.random(p.shape[mode]) + 0.1), ThreadExecutor(threads)
    for k in range(3):
        (base, weight, target), precision = of_row_noise(k, noise, by_row, first, executor)
        if k == mode:
            assert len(weight) == 0
            np.testing.assert_array_equal(precision, noise.precision)
            continue
        assert base == k * len(weight)
        values = by_row.value[base : base + len(weight)]
        np.testing.assert_array_equal(target, weight * values)
        place = by_row.others[base : base + len(weight), mode - (mode > k)] - first[mode]
        np.testing.assert_array_equal(weight, noise.precision[place])
    executor.close()
