"""Callbacks of scikit-learn 1.9 beside our own."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.data import entries, new

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
callback = pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9 has no callbacks")


class Recording:
    """Counts what it is told of; stops a fit after some sweeps."""

    def __init__(self, stop_after=10**9):
        self.events, self.stop_after, self.fitted = [], stop_after, None

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        self.events.append(f"end {context.task_name}")
        self.fitted = fitted_estimator or self.fitted
        return self.events.count("end sweep") >= self.stop_after


@each("method", ["cep", "gibbs"])
def test_callbacks_of_scikit_learn_hear_of_the_fit_and_of_every_sweep(method):
    told, own = Recording(), []
    model = new("regressor", max_iter=12, callbacks=lambda n, *_: own.append(n)).set_params(method=method)
    plain = new("regressor", max_iter=12).set_params(method=method).fit(*entries("regressor"))
    model.set_callbacks(told).fit(*entries("regressor"))
    assert told.events[:2] == ["setup", "begin fit"]
    assert told.events[-2:] == ["end fit", "teardown"]
    assert told.events.count("begin sweep") == told.events.count("end sweep") == len(own)
    np.testing.assert_array_equal(model.predict(entries("regressor")[0]), plain.predict(entries("regressor")[0]))
    np.testing.assert_array_equal(told.fitted.predict(entries("regressor")[0]), model.predict(entries("regressor")[0]))
    assert not [name for name in vars(model) if name.startswith("_callback") or name.endswith("teardown")]


def test_a_callback_stops_the_fit_and_an_error_tears_it_down():
    told = Recording(stop_after=3)
    model = new("regressor", max_iter=12, tol=0.0).set_callbacks(told).fit(*entries("regressor"))
    assert model.n_iter_ == 3
    X, y = entries("regressor")
    with pytest.raises(ValueError, match="y must"):
        model.fit(X, y[:5])
    assert told.events[-1] == "teardown"
    assert model.n_iter_ == 3


def test_the_progress_bar_of_scikit_learn_works():
    pytest.importorskip("rich")
    model = new("regressor", max_iter=3).set_callbacks(callback.ProgressBar())
    assert model.fit(*entries("regressor")).n_iter_ == 3
