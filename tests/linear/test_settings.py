"""Settings of the methods for linear models: records that print, clone, pickle, are searched over and are stored."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from helpers.cases import each
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import tensorcep as tc
from tensorcep.core.settings import Settings
from tensorcep.linear.settings import EP, GLM_METHODS, IS, LP, VB, ConditionalEP, FactorizedEP

RECORDS = [
    EP(schedule="parallel"),
    FactorizedEP(damping=0.5),
    ConditionalEP(order=2, warm_up=3),
    LP(message_precision=1e-6),
    VB(),
    IS(n_draws=50),
]
EVERY_RECORD = each("record", RECORDS)


def points(rng, n=80):
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=n) > 0.0, "yes", "no")


def test_settings_print_what_differs_from_the_defaults():
    assert [repr(record) for record in RECORDS] == [
        "EP(schedule='parallel')",
        "FactorizedEP(damping=0.5)",
        "ConditionalEP(order=2, warm_up=3)",
        "LP(message_precision=1e-06)",
        "VB()",
        "IS(n_draws=50)",
    ]


def test_settings_have_the_names_of_methods():
    assert list(GLM_METHODS) == ["ep", "ep-factorized", "cep1", "cep2", "lp", "vb", "is"]
    assert GLM_METHODS["cep2"] == ConditionalEP(order=2) != ConditionalEP()


@EVERY_RECORD
def test_settings_survive_clone_pickle_and_a_file(record, rng, tmp_path):
    assert pickle.loads(pickle.dumps(record)) == record
    model = tc.BayesianLogisticRegression(record)
    assert clone(model).method == record
    assert clone(model).method is not record
    model.fit(*points(rng)).save(tmp_path / "model.npz")
    assert tc.load(tmp_path / "model.npz").method == record


def test_a_record_without_changes_fits_as_its_name(rng):
    X, y = points(rng)
    for name, record in GLM_METHODS.items():
        one, other = (tc.BayesianProbitRegression(method).fit(X, y) for method in (name, record))
        np.testing.assert_array_equal(one.coef_, other.coef_)


def test_settings_are_searched_over(rng):
    X, y = points(rng)
    grid = {"method": ["lp", ConditionalEP(order=2)], "prior_scale": [0.5, 1.0]}
    assert GridSearchCV(tc.BayesianProbitRegression(), grid, cv=2).fit(X, y).best_params_["method"] in grid["method"]
    model = tc.BayesianProbitRegression(ConditionalEP())
    search = GridSearchCV(model, {"method__damping": [0.2, "adaptive"]}, cv=2).fit(X, y)
    assert search.best_estimator_.method.damping in (0.2, "adaptive")


def test_settings_of_a_name_can_be_set():
    model = tc.BayesianProbitRegression("cep2").set_params(method__damping=0.3)
    assert model.method == ConditionalEP(order=2, damping=0.3)
    assert GLM_METHODS["cep2"] == ConditionalEP(order=2)


@each(
    ("make", "message"),
    [
        (lambda: ConditionalEP(damping=1.0), "damping must be 'adaptive', or a number in \\[0, 1\\); got 1.0"),
        (lambda: LP(stop="soon"), "stop must be one of 'residual', 'published'; got 'soon'"),
        (lambda: ConditionalEP(order=3), "order must be an integer from 1 to 2; got 3"),
        (lambda: IS(n_draws=1), "n_draws must be an integer >= 2; got 1"),
        (lambda: EP(schedule="random"), "schedule must be one of"),
        (lambda: EP().set_params(damping=0.1), "EP has no setting 'damping'; it has schedule"),
    ],
)
def test_settings_refuse_bad_values(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_settings_refused_together_change_nothing():
    record = ConditionalEP(damping=0.5)
    with pytest.raises(ValueError, match="order"):
        record.set_params(damping=0.1, order=7)
    assert record == ConditionalEP(damping=0.5)
    model = tc.BayesianProbitRegression("cep1")
    with pytest.raises(ValueError, match="order"):
        model.set_params(method__damping=0.1, method__order=7)
    assert model.method == "cep1"


def test_the_old_parameter_says_how_it_is_written_now():
    wanted = r"no parameter 'method_options'.*method=ConditionalEP\(order=2, damping=0.5, warm_up=3\)"
    with pytest.raises(TypeError, match=wanted):
        tc.BayesianProbitRegression("cep2", method_options={"damping": 0.5, "first_order": 3})


def test_settings_of_the_base_have_no_names():
    assert Settings().get_params() == {}
