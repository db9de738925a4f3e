"""Settings of the methods of factor models: they print, clone, pickle and are searched; old names are refused."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from helpers.cases import each
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from tensorcep import (
    BayesianCCA,
    BayesianFactorAnalysis,
    BayesianPCA,
    CollectiveMatrixFactorization,
    GroupFactorAnalysis,
    load,
)
from tensorcep.factor_models.settings import VB, FactorisedVB, Gibbs

MODELS = (BayesianPCA, BayesianFactorAnalysis, BayesianCCA, GroupFactorAnalysis, CollectiveMatrixFactorization)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_settings_print_what_differs_from_the_default():
    assert repr(Gibbs(thin=2)) == "Gibbs(thin=2)"
    assert repr(VB()) == "VB()"
    assert Gibbs() == Gibbs(burn_in=200) != Gibbs(burn_in=1)
    assert "method=Gibbs(thin=2)" in repr(BayesianPCA(method=Gibbs(thin=2)))


@each("cls", MODELS)
def test_settings_are_cloned_and_pickled_with_the_model(cls):
    first = ([("a", "b", "gaussian")],) if cls is CollectiveMatrixFactorization else ()
    model = cls(*first, method=Gibbs(burn_in=7))
    copied = clone(model).set_params(method__burn_in=3)
    assert (model.method, copied.method) == (Gibbs(burn_in=7), Gibbs(burn_in=3))
    assert pickle.loads(pickle.dumps(model)).get_params() == model.get_params()
    assert cls(*first, method="gibbs").set_params(method=Gibbs(), method__thin=2).method == Gibbs(thin=2)


def test_settings_are_searched(rng):
    x = rng.standard_normal((30, 5))
    grid = [{"method": ["vb", FactorisedVB()]}, {"method": [FactorisedVB()], "method__step": [0.3, "best"]}]
    search = GridSearchCV(BayesianPCA(2, max_iter=20, random_state=0), grid, cv=2).fit(x)
    assert len(search.cv_results_["params"]) == 4


@each("cls", MODELS)
def test_settings_in_old_names_are_refused(cls):
    with pytest.raises(TypeError, match=rf"{cls.__name__} has no parameter 'method_options'.*Gibbs\(burn_in=5\)"):
        cls(method="gibbs", method_options={"burn_in": 5})
    with pytest.raises(TypeError, match=r"from tensorcep.factor_models.settings: method=FactorisedVB\(step=0.3\)"):
        cls(method_options={"step": 0.3})


def test_settings_refuse_what_is_not_allowed():
    with pytest.raises(ValueError, match="thin must be an integer >= 1; got 0"):
        Gibbs(thin=0)
    with pytest.raises(ValueError, match="step must be 'best', or a number in"):
        FactorisedVB(step=0.0)
    model = BayesianPCA(method="gibbs")
    with pytest.raises(TypeError, match=r"method__thin needs a method with settings, such as method=Gibbs\(thin=...\)"):
        model.set_params(method__thin=2)
    with pytest.raises(ValueError, match="Gibbs has no setting 'stride'; it has burn_in, thin"):
        BayesianPCA(method=Gibbs()).set_params(method__stride=2)


def test_settings_come_back_from_a_file(rng, tmp_path):
    model = BayesianPCA(2, method=Gibbs(burn_in=2, thin=1), max_iter=5, random_state=0).fit(rng.standard_normal((9, 4)))
    model.save(tmp_path / "m.npz")
    back = load(tmp_path / "m.npz")
    assert back.get_params() == model.get_params()
    np.testing.assert_array_equal(back.reconstruct(), model.reconstruct())
