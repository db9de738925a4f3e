"""Settings of the methods as records: text, equality, copies, scikit-learn's searches, files, and the old spelling."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import numpy as np
import pytest
from helpers.cases import each
from helpers.data import SHAPE, entries
from helpers.source_graph import ROOT
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold

import tensorcep as tc
from tensorcep.core.settings import lacking
from tensorcep.cp.methods import METHODS
from tensorcep.cp.settings import SETTINGS
from tensorcep.likelihoods import get_likelihood

CHANGED = [
    tc.CEP(order=2, damping=0.5, messages="averaged", dtype="float32", n_starts=4, message_noise=(0.5, 0.5)),
    tc.Laplace(curvature="marginal"),
    tc.VMP(anneal=3),
    tc.PGVB(dispersion_mode=1, dispersion_prior=(2.0, 1.0)),
    tc.Gibbs(n_chains=2, burn_in=np.int64(5)),
    tc.PGGibbs(thin=2),
    tc.WOPT(ridge=0.0),
]
EVERY = each("settings", CHANGED)


def test_every_method_has_settings_and_every_setting_is_documented():
    assert list(SETTINGS) == list(METHODS)
    for name, engine in SETTINGS.items():
        assert METHODS[name].options is engine
        assert all(f"{field}" in engine.__doc__ for field in engine().get_params())
        assert getattr(tc, engine.__name__) is engine is getattr(tc.methods, engine.__name__)


def test_needs_of_settings_are_values_that_give_a_capability():
    for engine in SETTINGS.values():
        for capability, needed in engine.needs.items():
            assert METHODS[engine.name].capabilities.has(capability, get_likelihood("gaussian"))
            assert lacking(engine(**needed), capability) == {}


def test_settings_print_what_differs_from_the_defaults():
    assert repr(tc.CEP()) == "CEP()"
    assert repr(tc.CEP(order=2, n_ensemble="auto")) == "CEP(order=2)"
    assert repr(tc.CPRegressor(method=tc.WOPT(ridge=0.5))) == "CPRegressor(method=WOPT(ridge=0.5))"
    assert "CEP(order=2)" in tc.CPRegressor(method=tc.CEP(order=2))._repr_html_()


@EVERY
def test_settings_are_equal_by_value_and_survive_copies(settings):
    others = [clone(settings), pickle.loads(pickle.dumps(settings)), type(settings)(**settings.get_params())]
    assert all(other == settings and other is not settings for other in others)
    assert settings != type(settings)()
    model = clone(tc.CPRegressor(method=settings))
    assert model.method == settings
    assert model.method is not settings


def test_settings_of_a_clone_are_its_own():
    model = tc.CPRegressor(method=tc.CEP(order=2))
    other = clone(model).set_params(method__damping=0.5)
    assert (model.method, other.method) == (tc.CEP(order=2), tc.CEP(order=2, damping=0.5))
    assert model.get_params()["method__order"] == 2
    assert model.set_params(method=tc.VMP(), method__anneal=2).method == tc.VMP(anneal=2)


def test_settings_that_do_not_exist_are_named():
    with pytest.raises(ValueError, match=r"Laplace has no setting 'curve'; it has schedule, curvature, .*"):
        tc.Laplace().set_params(curve="marginal")
    with pytest.raises(TypeError, match="unexpected keyword argument 'curve'"):
        tc.Laplace(curve="marginal")
    message = r"method__damping needs a method with settings, such as method=CEP\(damping=...\); got method='cep'\."
    with pytest.raises(TypeError, match=message):
        tc.CPRegressor(method="cep").set_params(method__damping=0.5)
    with pytest.raises(ValueError, match=r"got the class; write CEP\(\)"):
        tc.CPRegressor(method=tc.CEP).fit(*entries("regressor"))


@pytest.mark.filterwarnings("ignore:nothing but the mean was found")  # by fits of one sweep
@pytest.mark.slow
def test_grid_search_goes_over_records_and_into_them():
    X, y = entries("regressor")
    how = {"cv": KFold(2), "error_score": "raise"}
    model = tc.CPRegressor(2, shape=SHAPE, tol=1e9, max_iter=3, random_state=0)
    search = GridSearchCV(model, {"method": ["vmp", tc.CEP(moments="posterior")]}, **how).fit(X, y)
    assert search.best_params_["method"] in ("vmp", tc.CEP(moments="posterior"))
    model.set_params(method=tc.CEP(anneal=0))
    search = GridSearchCV(model, {"method__damping": [0.0, 0.9]}, **how).fit(X, y)
    assert search.best_estimator_.method == tc.CEP(anneal=0, damping=search.best_params_["method__damping"])
    assert len(set(search.cv_results_["mean_test_score"])) == 2


@each(
    ("given", "sentence"),
    [
        ({"damping": 0.5}, "no parameter 'damping'; it is a setting of the method now: method=CEP(damping=0.5)."),
        (
            {"n_init": 2, "method": "vmp"},
            "no parameter 'n_init'; it is a setting of the method now: method=VMP(n_starts=2).",
        ),
        (
            {"anneal": 0, "order": 2},
            "no parameters 'anneal', 'order'; they are settings of the method now: method=CEP(anneal=0, order=2).",
        ),
        ({"method_options": {"n_chains": 2}}, "it is a setting of the method now: method=Gibbs(n_chains=2)."),
    ],
)
def test_old_parameters_are_answered_with_the_new_spelling(given, sentence):
    for cls in (tc.CPRegressor, tc.CPClassifier, tc.CPCountRegressor):
        for call in (cls, cls().set_params):
            with pytest.raises(TypeError) as caught:
                call(**given)
            assert str(caught.value).endswith(sentence)
            assert str(caught.value).startswith(f"{cls.__name__} has no parameter")


def test_other_unknown_parameters_are_refused_by_python():
    with pytest.raises(TypeError, match="unexpected keyword argument 'dampin'"):
        tc.CPRegressor(dampin=0.5)
    names = list(inspect.signature(tc.CPRegressor).parameters)
    assert names[:3] == ["rank", "method", "prior"]
    assert names == list(inspect.signature(tc.CPRegressor.__init__).parameters)[1:]
    assert len(names) <= 23


def test_a_model_is_saved_with_its_settings(tmp_path):
    X, y = entries("regressor")
    settings = tc.CEP(damping=0.5, n_ensemble=1, message_noise=(0.5, 0.5), n_starts=np.int64(2))
    model = tc.CPRegressor(2, method=settings, tol=1e9, max_iter=3).fit(X, y)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert again.method == model.method
    assert again.get_params(deep=False).keys() == model.get_params(deep=False).keys()


def test_settings_load_no_compiled_code():
    code = "import sys, tensorcep.methods, tensorcep as tc; tc.CEP(order=2); print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "False"
