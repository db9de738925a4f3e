"""More components than a fit begins with, where entries that are left out ask for them."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.data import CLASSES

from tensorcep import CPRegressor, simulate_cp
from tensorcep.cp.fit.select import wider_fit
from tensorcep.cp.fit.validation import best_by_score
from tensorcep.cp.plan.auto import choose

SHAPE = (30, 25, 20)


def wider(n=6000, shape=SHAPE, name="regressor", **params):
    model = CLASSES[name](**params)
    return wider_fit(model._spec(), choose(model._spec(), n, shape, False), n, shape)


def test_a_fit_that_may_be_wider_has_twice_the_components_and_is_the_same_otherwise():
    model = CPRegressor(method="vmp", max_iter=70)
    chosen = choose(model._spec(), 6000, SHAPE, False)
    more = wider_fit(model._spec(), chosen, 6000, SHAPE)
    assert more == chosen._replace(rank=40, parts={"main": 1, "pair": 0, "cp": 40})
    assert wider().rank == wider(name="classifier").rank == wider(name="counts").rank == 40


def test_a_fit_of_as_many_components_as_a_mode_has_rows_may_be_wider():
    """Rank 24 of a tensor whose modes have at most 13 rows: il2 has RMSE 0.030 with it, 0.034 with 12 components."""
    model = CPRegressor()
    chosen = choose(model._spec(), 3840, (13, 4, 12, 8), False)
    assert chosen.rank == 12
    more = wider_fit(model._spec(), chosen, 3840, (13, 4, 12, 8))
    assert more.rank == more.parts["cp"] == 24
    assert wider_fit(model._spec(), more, 3840, (13, 4, 12, 8)).rank == 48
    assert wider_fit(model._spec(), more, 1000, (13, 4, 12, 8)) is None  # 27 entries for a row
    assert (
        wider_fit(model._spec(), more, 3840, (200, 3, 4)) is None
    )  # no tensor of this shape has more than 12 components


@each(
    ("n", "shape", "params"),
    [
        (6000, SHAPE, {"rank": 20}),  # as the user says
        (6000, SHAPE, {"method": "cep"}),  # harmed by more columns than there are components
        (2999, SHAPE, {}),  # 39 entries for a row
        (6000, (60, 70), {}),  # a matrix with more than a mode's rows
        (500, (12, 10, 8), {}),  # 16 entries for a row, 10 components to begin with
        (25_001, SHAPE, {}),  # takes long
    ],
)
def test_no_fit_is_wider(n, shape, params):
    assert wider(n, shape, **params) is None


def test_a_gain_by_chance_is_none(rng):
    before = rng.standard_normal(400)
    assert best_by_score(np.stack([before, before + rng.standard_normal(400) + 0.05])) == 0
    assert best_by_score(np.stack([before, before + rng.standard_normal(400) + 0.3])) == 1


@pytest.mark.parametrize(
    ("shape", "components", "rank"),
    [
        (SHAPE, 5, 20),
        pytest.param(SHAPE, 26, 40, marks=pytest.mark.slow),
        pytest.param((90, 9, 10), 4, 10, marks=pytest.mark.slow),
        ((90, 9, 10), 16, 20),
    ],
)
def test_components_are_as_many_as_the_data_ask_for(shape, components, rank):
    s = simulate_cp(shape, components, 7000, noise_precision=4.0, random_state=0)
    X, y = s.tensor.coords, s.tensor.values
    model = CPRegressor(method="vmp", random_state=0).fit(X[:6000], y[:6000])
    assert model.rank_ == rank
    assert np.sqrt(np.mean((model.predict(X[6000:]) - y[6000:]) ** 2)) < 0.7  # 2.4 with 20 of 26 components; noise 0.5
