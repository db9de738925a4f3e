"""Which columns the pilots of a fit have."""

from __future__ import annotations

import numpy as np
from helpers.cases import each

from tensorcep import CPCountRegressor
from tensorcep.cp.fit.select import plan_fit

SHAPE = (30, 20, 15)


@each(("n", "likelihood", "named"), [(999, "negbinomial", 3), (1000, "negbinomial", 4), (1000, "poisson", 3)])
def test_overdispersed_counts_have_a_pilot_of_all_but_pairs_too(rng, n, likelihood, named):
    coords, y = np.stack([rng.integers(0, size, n) for size in SHAPE], axis=1), rng.poisson(3.0, n).astype(float)
    model = CPCountRegressor(rank=3, likelihood=likelihood, random_state=0)
    plan = plan_fit(model._spec(), (coords, y, SHAPE, ()), None)
    assert [quick.name for quick in plan.policy.quick_fits] == ["all columns", "cp", "main", "main+cp"][:named]
    # modes in which a column is free
    free = [quick.problem.every_free.sum(axis=0).tolist() for quick in plan.policy.quick_fits]
    pairs, components = 2, 3
    assert [pairs in own for own in free] == [True, False, False, False][:named]
    assert [components in own for own in free] == [True, True, False, True][:named]
    assert [1 in own for own in free] == [True, False, True, True][:named]
