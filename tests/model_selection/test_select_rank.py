"""Rank by the data: scores against plain loops, the rule, what stops and what is refused, one warning for many."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.models import paper
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

from tensorcep import (
    CPClassifier,
    CPCountRegressor,
    CPRegressor,
    Features,
    Labels,
    SparseTensor,
    select_rank,
    simulate_cp,
)
from tensorcep.model_selection.select_rank import losses

SHAPE = (14, 12, 10)


def tensor(likelihood: str = "gaussian", n: int = 900, **params: Any) -> SparseTensor:
    if likelihood == "gaussian":
        params = {"noise_precision": 16.0, **params}
    sd = 0.5 if likelihood == "poisson" else 1.0  # with 1 a single count is larger than all others together
    return simulate_cp(SHAPE, 2, n, likelihood=likelihood, latent_sd=sd, random_state=3, **params).tensor


def quick(**params: Any) -> CPRegressor:
    return paper(CPRegressor, **{"method": "vmp", "max_iter": 500, "random_state": 0, **params})


def test_select_rank_scores_are_those_of_a_plain_loop_and_find_the_rank():
    data, cv = tensor(), KFold(3, shuffle=True, random_state=5)
    found = select_rank(quick(), data, ranks=[3, 1, 2], cv=cv)
    X, y = data.coords, data.values
    expected = [
        [
            quick(rank=rank, shape=SHAPE).fit(X[kept], y[kept]).log_score(X[held], y[held]).mean()
            for kept, held in cv.split(X)
        ]
        for rank in (1, 2, 3)
    ]
    np.testing.assert_array_equal(found.scores, expected)
    np.testing.assert_array_equal(found.frame[["fold_0", "fold_1", "fold_2"]], expected)
    assert list(found.frame.index) == list(found.ranks) == [1, 2, 3]
    assert found.rank == 2
    whole = quick(rank=2).fit(data)
    np.testing.assert_array_equal(found.estimator.factors_[0], whole.factors_[0])


def test_select_rank_is_the_same_from_arrays_and_on_two_threads():
    data = tensor()
    one = select_rank(quick(), data, ranks=[1, 2], cv=2, random_state=4)
    two = select_rank(quick(shape=SHAPE), data.coords, data.values, ranks=[1, 2], cv=2, n_jobs=2, random_state=4)
    np.testing.assert_array_equal(one.scores, two.scores)


def test_losses_are_paired_so_that_hard_folds_do_not_count():
    # the folds differ by 1, rank 0 is worse by 0.1 in every fold: an unpaired error would let it pass
    scores = np.array([[-1.0, -2.0, -3.0], [-0.9, -1.9, -2.9]])
    loss, error = losses(scores)
    np.testing.assert_allclose(loss, [0.1, 0.0], atol=1e-12)
    np.testing.assert_allclose(error, [0.0, 0.0], atol=1e-12)
    loss, error = losses(np.array([[-1.0, -1.3], [-1.1, -1.0]]))
    np.testing.assert_allclose((loss[0], error[0]), (0.1, 0.2))


def test_select_rank_one_standard_error_is_never_above_the_best():
    data = tensor(noise_precision=1.0)
    rules = ("one_standard_error", "best")
    simple, best = (select_rank(quick(), data, ranks=range(1, 5), cv=3, rule=r, random_state=0) for r in rules)
    assert simple.best_rank == best.best_rank == best.rank >= simple.rank
    loss, error = simple.frame["loss"], simple.frame["loss_error"]
    assert simple.rank == loss.index[loss <= error][0]


def test_select_rank_patience_stops_the_climb():
    found = select_rank(quick(), tensor(), ranks=range(1, 9), cv=2, patience=2, random_state=0)
    assert len(found.ranks) == int(np.flatnonzero(found.ranks == found.best_rank)[0]) + 3 < 8


@each(
    ("likelihood", "estimator"),
    [
        ("probit", paper(CPClassifier, max_iter=60, tol=0.05, random_state=0)),
        ("probit", paper(CPClassifier, method="laplace", max_iter=60, tol=0.05, random_state=0)),
        ("poisson", paper(CPCountRegressor, likelihood="poisson", max_iter=60, tol=0.05, random_state=0)),
        ("gaussian", paper(CPRegressor, method="gibbs", max_iter=20, random_state=0)),
        ("gaussian", paper(CPRegressor, method="wopt", random_state=0, max_iter=300)),
        ("gaussian", paper(CPRegressor, interactions="all", max_iter=300, random_state=0)),
    ],
)
def test_select_rank_serves_every_estimator_and_method(likelihood: str, estimator: Any):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = select_rank(estimator, tensor(likelihood), ranks=[1, 2], cv=2, random_state=0)
    assert np.isfinite(found.scores).all()
    assert found.estimator.rank == found.rank


def test_select_rank_tells_unseen_rows_and_slow_fits_in_a_line_each():
    data = tensor()
    lonely = SparseTensor.from_coo(np.array([[14, 0, 0]]), [0.5], shape=(15, 12, 10))
    coords = np.concatenate([data.coords, lonely.coords])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        select_rank(quick(max_iter=20, tol=0.0), coords, np.append(data.values, 0.5), ranks=[1, 2], cv=3)
    texts = [str(item.message) for item in caught]
    assert sum("6 of 6 fits stopped before they converged" in text for text in texts) == 1
    assert sum("1 of 3 folds hold out entries of rows without training entries" in text for text in texts) == 1
    assert len(texts) == 3  # and the last fit's own


def test_select_rank_scores_sampled_zeros_as_they_were_sampled():
    data, settings = tensor("probit"), {"method": "vmp", "max_iter": 500, "tol": 0.02, "random_state": 0}
    ones = data.select(data.values == 1.0)
    sampled = ones.concatenate(ones.sample_zeros(ones.nnz, random_state=0))
    auto, plain = (
        select_rank(paper(CPClassifier, zero_rate=rate, **settings), sampled, ranks=[1, 2], cv=2, random_state=0)
        for rate in ("auto", 1.0)
    )
    np.testing.assert_array_equal(auto.scores, plain.scores)
    assert auto.estimator.zero_rate_ == sampled.zero_rate < 1.0


def test_select_rank_keeps_labels():
    data = tensor()
    labels = [Labels([f"{k}-{i}" for i in range(n)]) for k, n in enumerate(SHAPE)]
    named = SparseTensor.from_coo(data.coords, data.values, SHAPE, labels=labels)
    assert select_rank(quick(), named, ranks=[2], cv=2, random_state=0).estimator.labels_ == tuple(labels)


@each(
    ("changes", "error", "message"),
    [
        ({"estimator": 3}, TypeError, "estimator must be CPRegressor"),
        ({"estimator": quick(interactions={"cp": 2})}, ValueError, "a dict fixes the ranks"),
        ({"estimator": quick(init=[np.ones((3, 1))])}, ValueError, "arrays fix the rank"),
        ({"ranks": []}, ValueError, "at least one rank, each once"),
        ({"ranks": [2, 2]}, ValueError, "at least one rank, each once"),
        ({"ranks": [0]}, ValueError, "a rank in ranks must be an integer >= 1; got 0"),
        ({"rule": "most"}, ValueError, "rule must be one of"),
        ({"cv": 1}, ValueError, "cv must be an integer from 2 to 900; got 1"),
        ({"cv": [(np.arange(9), np.arange(9, 12))]}, ValueError, "cv must give two folds or more"),
        ({"patience": 0}, ValueError, "patience must be an integer >= 1"),
        ({"n_jobs": 0}, ValueError, "n_jobs must be an integer >= 1"),
    ],
)
def test_select_rank_refuses(changes: dict[str, Any], error: type[Exception], message: str):
    arguments = {"estimator": quick(), "X": tensor(), "ranks": [1], "cv": 2, **changes}
    with pytest.raises(error, match=message):
        select_rank(**arguments)


def test_lower_bound_is_the_last_of_the_trace_where_there_is_one(tmp_path: Any):
    data = tensor()
    model = quick(rank=2).fit(data)
    assert model.lower_bound_ == model.trace_["lower_bound"][-1]
    assert not hasattr(quick(rank=2, method="cep").fit(data), "lower_bound_")
    assert not hasattr(quick(), "lower_bound_")
    worse = quick(rank=1).fit(data)
    assert worse.lower_bound_ < model.lower_bound_


def test_lower_bound_under_a_learned_prior_peaks_at_the_rank():
    data = tensor()
    bounds = [quick(rank=rank, prior="learned").fit(data).lower_bound_ for rank in (1, 2, 3, 4)]
    assert np.argmax(bounds) == 1


def test_select_rank_of_a_table_of_words_with_features_is_that_of_its_numbers(rng):
    table = pd.DataFrame({"user": [f"u{k % 12}" for k in range(120)], "item": [f"i{k // 12}" for k in range(120)]})
    y = (np.arange(120) % 12 + 2.0 * rng.normal(size=120)) > 6.0
    known = Features(pd.DataFrame({"age": np.arange(12.0)}, index=[f"u{k}" for k in range(12)]))
    model = CPClassifier(link="probit", method="vmp", tol=0.02, prior={"user": known}, random_state=0)
    tensor = SparseTensor.from_pandas(table.assign(y=y.astype(float)), ["user", "item"], "y")
    words = select_rank(model, table, np.where(y, "yes", "no"), ranks=[1, 2], cv=2, random_state=0)
    numbers = select_rank(model, tensor, ranks=[1, 2], cv=2, random_state=0)
    np.testing.assert_array_equal(words.scores, numbers.scores)
    assert words.estimator.classes_.tolist() == ["no", "yes"]
