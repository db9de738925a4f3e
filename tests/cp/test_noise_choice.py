"""noise="auto": what entries left out tell of how the noise differs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each

from tensorcep import CPRegressor, Series
from tensorcep.methods import VMP

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")

SHAPE = (25, 24)


def simulated(kind, n=550):
    """A table of a component with noise that differs in a way."""
    rng = np.random.default_rng(1)
    X = np.argwhere(np.ones(SHAPE))[rng.permutation(np.prod(SHAPE))[:n]]
    rows = [rng.normal(0.0, 1.5, size) for size in SHAPE]
    sd = {"one": 0.5, "site": 0.5 * np.exp(rng.normal(0.0, 1.0, SHAPE[0]))[X[:, 0]], "entry": 0.5}[kind]
    noise = rng.standard_normal(n)
    if kind == "entry":
        noise = np.where(rng.random(n) < 0.08, 8.0 * noise, noise)
    return (
        pd.DataFrame(X, columns=["site", "day"]).astype(str).assign(y=rows[0][X[:, 0]] * rows[1][X[:, 1]] + sd * noise)
    )


def new(noise="auto", **params):
    how = {"method": VMP(), "interactions": "cp", "random_state": 0, "n_jobs": 1, "max_iter": 30, **params}
    return CPRegressor(1, noise=noise, **how)


@each("kind", ["one", "site", "entry"])
def test_noise_is_found_as_it_differs(kind):
    table = simulated(kind)
    model = new().fit(table, value="y")
    assert model.noise_ == kind
    np.testing.assert_array_equal(model.predict(table), new(kind).fit(table, value="y").predict(table))


def test_the_choice_draws_nothing_from_the_generator_and_is_that_of_any_order():
    table = simulated("site")
    one = new(random_state=np.random.default_rng(3)).fit(table, value="y")
    other = new("site", random_state=np.random.default_rng(3)).fit(table, value="y")
    np.testing.assert_array_equal(one.predict(table), other.predict(table))
    order = np.random.default_rng(0).permutation(len(table))
    assert new(n_jobs=2).fit(table.iloc[order], value="y").noise_ == "site"


def test_where_it_cannot_differ_it_is_one():
    table = simulated("site")
    assert new(method="cep", max_iter=3).fit(table, value="y").noise_ == "one"
    assert new().fit(table.iloc[:40], value="y").noise_ == "one"
    days = table.assign(day=table["day"].astype(int))
    assert new(prior={"day": Series()}, max_iter=3).fit(days, value="y").noise_ == "one"
    with pytest.raises(ValueError, match="partial_fit learns one noise"):
        new().partial_fit(table[["site", "day"]], table["y"])
