"""Features of rows: their matrices, the exact posterior of the linear map, and the joint test of its draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from scipy import sparse
from scipy.stats import multivariate_normal, multivariate_t

from tensorcep.entries.labels import Labels
from tensorcep.priors import regression
from tensorcep.priors.base import ModePrior
from tensorcep.priors.by_mode import PriorByMode
from tensorcep.priors.features import Features, Mode, design, designed, warn_of_rows_without
from tensorcep.priors.normal_wishart import MEAN_ROWS, draw_root

FEW_OR_MANY = pytest.mark.parametrize("most_direct", [2000, 0])
STRONG, STRENGTH = 10.0, (4.0, 4.0)


def prior_of(X, D, seen=None, centre=0.3, width=0.7, strong=1.0, strength=regression.STRENGTH):
    """The prior of the only mode, of D columns, given which rows have entries."""
    X = np.asarray(X) if not sparse.issparse(X) else X
    nothing, whole = np.zeros((0, D)), np.ones((1, D))
    plain = PriorByMode(nothing, nothing, centre * whole, width * whole, whole > 0.0, strong)
    of = design(X, np.ones(X.shape[0], dtype=bool), ("x",) * X.shape[1])
    found = replace(plain, designs=[of], feature_strength=strength)
    return found.for_rows([np.ones(X.shape[0], dtype=bool) if seen is None else seen])


def flat(D):
    return ModePrior(np.zeros((1, D)), np.eye(D)[None])


def test_design_centres_without_filling_in(rng):
    X = (rng.random((30, 5)) < 0.3) * rng.random((30, 5))
    described = np.arange(30) < 25
    X[~described] = 0.0
    dense, thin = (design(part, described, tuple("abcde")) for part in (X, sparse.csr_array(X)))
    centred = np.where(described[:, None], X - X[:25].mean(axis=0), 0.0)
    coef, values, some = rng.standard_normal((5, 3)), rng.standard_normal((30, 3)), rng.random(30) < 0.6
    assert dense.size == pytest.approx((centred**2).sum() / 25)
    for found in (dense, thin, *(d.some(some) for d in (dense, thin))):
        rows = slice(None) if len(found.described) == 30 else some
        np.testing.assert_allclose(found.times(coef), centred[rows] @ coef, atol=1e-12)
        np.testing.assert_allclose(found.transposed(values[rows]), centred[rows].T @ values[rows], atol=1e-12)
        np.testing.assert_allclose(found.gram(), centred[rows].T @ centred[rows], atol=1e-12)
        assert found.size == pytest.approx(dense.size)


def test_bound_of_known_rows_is_their_evidence(rng):
    """With D = 1 the rows have a Student-t law, all parameters integrated out but the strength."""
    n, F = 12, 4
    X, seen = rng.standard_normal((n, F)), np.arange(n) < 9
    prior = prior_of(X, 1, seen)
    u = 0.5 + X[seen] @ rng.standard_normal((F, 1)) + 0.3 * rng.standard_normal((9, 1))
    posterior = prior.learn([u], [np.zeros((1, 1))])
    modes = prior.expectation(flat(1), posterior)
    mean = modes.mean[0] + prior.shift(0, modes)[seen]
    rows = multivariate_normal.logpdf(u[:, 0], mean[:, 0], np.eye(9) / modes.precision[0])
    centred, strength = (X - X.mean(axis=0))[seen], modes.slopes[0].strength
    cov = np.eye(9) + 1.0 / MEAN_ROWS + centred @ centred.T / strength
    a, b = prior.have[0].prior
    exact = multivariate_t.logpdf(u[:, 0], np.full(9, 0.3), 0.49 * cov, df=1.0)
    assert rows + prior.bound(posterior) == pytest.approx(exact + a * np.log(strength) - b * strength, abs=1e-9)


def test_unseen_rows_are_as_unsure_as_the_map(rng):
    X, seen = rng.standard_normal((12, 4)), np.arange(12) < 9
    prior = prior_of(X, 2, seen)
    u = X[seen] @ rng.standard_normal((4, 2)) + rng.standard_normal((9, 2))
    modes = prior.expectation(flat(2), prior.learn([u], [np.zeros((2, 2))]))
    Z = np.c_[np.ones(12), X - X.mean(axis=0)]
    V = np.diag([MEAN_ROWS, *[modes.slopes[0].strength] * 4]) + Z[seen].T @ Z[seen]
    exact = np.einsum("nf,fg,ng->n", Z[~seen], np.linalg.inv(V), Z[~seen])
    np.testing.assert_allclose(prior.unsure(0, modes, ~seen), exact)


def exact_moments(X, u, a, b):
    """Mean and variance of the coefficients given rows (n, 1), over a grid of strengths; centre 0.3, width 0.7."""
    X, D = X - X.mean(axis=0), u[:, 0] - 0.3
    n, means, variances, logs = len(u), [], [], np.linspace(-8.0, 8.0, 100)
    weight, Z = np.empty(len(logs)), np.c_[np.ones(n), X]
    for i, at in enumerate(logs):
        V = np.linalg.inv(np.diag([MEAN_ROWS, *[np.exp(at)] * X.shape[1]]) + Z.T @ Z)
        mean = V @ Z.T @ D
        cov = np.eye(n) + 1.0 / MEAN_ROWS + X @ X.T / np.exp(at)
        weight[i] = multivariate_t.logpdf(D, np.zeros(n), 0.49 * cov, df=1.0) + a * at - b * np.exp(at)
        rest = 0.49 + D @ D - mean @ np.linalg.solve(V, mean)
        means.append(mean[1:])
        variances.append(np.diag(V)[1:] * rest / (n + 1.0 - 2.0))
    weight = np.exp(weight - weight.max())
    weight /= weight.sum()
    mean = weight @ np.array(means)
    return mean, weight @ (np.array(variances) + np.array(means) ** 2) - mean**2


@FEW_OR_MANY
def test_draws_have_the_exact_moments(rng, monkeypatch, most_direct):
    monkeypatch.setattr(regression, "MOST_DIRECT", most_direct)
    X = rng.standard_normal((15, 3))
    u = 0.5 + X @ np.array([[1.0], [-0.5], [0.0]]) + 0.4 * rng.standard_normal((15, 1))
    prior, now, found = prior_of(sparse.csr_array(X) if most_direct == 0 else X, 1), flat(1), []
    assert (prior.have[0].values is None) == (most_direct == 0)
    for _ in range(1000):
        now = prior.draw(now, [u], rng)
        found.append(now.slopes[0].coef[:, 0])
    found = np.array(found[50:])
    mean, variance = exact_moments(X, u, *prior.have[0].prior)
    batches = found[: len(found) // 20 * 20].reshape(20, -1, 3).mean(axis=1)
    assert (np.abs(batches.mean(axis=0) - mean) < 6.0 * batches.std(axis=0, ddof=1) / np.sqrt(20)).all()
    np.testing.assert_allclose(found.var(axis=0), variance, rtol=0.35)


X_JOINT = np.random.default_rng(3).standard_normal((4, 2))


def statistics(modes, u):
    coef, strength = modes.slopes[0]
    parts = [np.tanh(u), np.tanh(modes.mean), np.tanh(coef), np.log(strength), np.tanh(coef).T @ np.tanh(X_JOINT).T @ u]
    return np.array([f(np.asarray(part)) for part in parts for f in (np.mean, lambda p: np.mean(p**2))])


def joint_z(n=1000):
    """Differences of the means of statistics in standard errors: parameters and rows from the prior, and by turns."""
    D, rng = 2, np.random.default_rng(5)
    prior = prior_of(X_JOINT, D, strong=STRONG, strength=STRENGTH)
    have, a, b = prior.have[0], *prior.have[0].prior

    def rows(modes):
        root = np.linalg.cholesky(np.linalg.inv(modes.precision[0]))
        return modes.mean[0] + prior.shift(0, modes) + rng.standard_normal((4, D)) @ root.T

    def first():
        root = draw_root(STRONG * D, STRONG * 0.49 * np.eye(D), rng)
        strength = rng.gamma(a) / b
        noise = np.linalg.solve(root.T, rng.standard_normal((3, D)).T).T
        coef = regression.Slopes(noise[1:] / np.sqrt(strength), strength)
        return ModePrior(0.3 + noise[:1] / np.sqrt(STRONG * MEAN_ROWS), (root @ root.T)[None], (coef,))

    assert have.rows == 4 + STRONG * MEAN_ROWS
    direct = [statistics(modes, rows(modes)) for modes in (first() for _ in range(2 * n))]
    modes, found = first(), []
    for _ in range(n):
        u = rows(modes)
        modes = prior.draw(modes, [u], rng)
        found.append(statistics(modes, u))
    batches = np.array(found)[: n - n % 25].reshape(25, -1, len(found[0])).mean(axis=1)
    variance = np.var(direct, axis=0) / len(direct) + batches.var(axis=0, ddof=1) / 25
    return (np.mean(direct, axis=0) - batches.mean(axis=0)) / np.sqrt(variance)


@FEW_OR_MANY
def test_draws_pass_the_joint_test(monkeypatch, most_direct):
    monkeypatch.setattr(regression, "MOST_DIRECT", most_direct)
    assert np.abs(joint_z()).max() < 4.5


@FEW_OR_MANY
def test_joint_test_sees_a_planted_bug(monkeypatch, most_direct):
    """Rows that say less of their features than they do."""
    monkeypatch.setattr(regression, "MOST_DIRECT", most_direct)
    right = regression.sums

    def wrong(have, apart, scatter, df):
        return right(have, apart, scatter, df)._replace(cross=0.6 * right(have, apart, scatter, df).cross)

    monkeypatch.setattr("tensorcep.priors.regression.sums", wrong)
    assert np.abs(joint_z(600)).max() > 6.0


ITEMS = pd.DataFrame(
    {
        "year": [1990, 2000, 2010],
        "hit": [True, False, True],
        "genre": ["drama", "comedy", "drama"],
        "size": pd.Categorical(["s", "l", "s"], categories=["s", "m", "l"]),
    },
    index=["a", "new", "b"],
)


def test_frame_becomes_columns_by_label():
    found, mode = designed(Features(ITEMS), Mode("item", Labels(["b", "a", "c"]), 3))
    assert found.names == ("year", "hit", "genre=comedy", "genre=drama", "size=s", "size=l")
    assert list(mode.labels) == ["b", "a", "c", "new"]
    assert mode.size == 4
    np.testing.assert_array_equal(found.described, [True, True, False, True])
    year = np.array([1.0, -1.0, 0.0, 0.0]) * np.sqrt(1.5)
    np.testing.assert_allclose(found.matrix[:, 0], year, atol=1e-12)
    np.testing.assert_allclose(found.matrix[:, 3], [1 / 3, 1 / 3, 0.0, -2 / 3], atol=1e-12)


def test_array_becomes_columns_by_row_number():
    X = np.array([[0.0, 10.0], [1.0, 30.0], [1.0, 20.0]])
    dense, mode = designed(Features(X), Mode(0, None, 2))
    thin, _ = designed(Features(sparse.coo_array(X)), Mode(0, None, 3))
    assert (mode.size, dense.names) == (3, ("x0", "x1"))
    np.testing.assert_allclose(dense.matrix[:, 0], X[:, 0] - 2 / 3)
    np.testing.assert_allclose(dense.matrix[:, 1], np.array([-1.0, 1.0, 0.0]) * np.sqrt(1.5), atol=1e-12)
    np.testing.assert_allclose(thin.times(np.eye(2)), X - X.mean(axis=0))


def test_frame_of_many_categories_is_sparse(monkeypatch):
    monkeypatch.setattr("tensorcep.priors.features.MOST_DENSE", 10)
    thin, _ = designed(Features(ITEMS), Mode("item", Labels(list("abc")), 3))
    monkeypatch.undo()
    dense, _ = designed(Features(ITEMS), Mode("item", Labels(list("abc")), 3))
    assert sparse.issparse(thin.matrix)
    np.testing.assert_allclose(thin.times(np.eye(6)), dense.matrix, atol=1e-12)


LABELLED = Mode("item", Labels(["a", "b"]), 2)
NUMBERED = Mode("item", None, 2)
REFUSED = [
    (ITEMS.assign(year=[1990, np.nan, 2000]), LABELLED, "column 'year' .* 1 missing values, the first at 'new'"),
    (ITEMS.assign(genre=["x", None, "y"]), LABELLED, "column 'genre' .* missing"),
    (ITEMS.assign(year=[1.0, np.inf, 2.0]), LABELLED, "column 'year' .* must be finite"),
    (ITEMS.assign(day=pd.date_range("2020", periods=3)), LABELLED, "column 'day' .* got datetime64"),
    (ITEMS.set_axis(["a", "a", "b"]), LABELLED, "distinct labels; got 'a' more than once"),
    (ITEMS.set_axis(["x", "y", "z"]), LABELLED, "indexed by its labels, such as 'a'; got none of them"),
    (ITEMS, NUMBERED, "row numbers from 0"),
    (ITEMS[[]], LABELLED, "lines and columns"),
    (pd.concat([ITEMS, ITEMS[["hit"]]], axis=1), LABELLED, "a name of its own"),
    (np.zeros((1, 3)), NUMBERED, "at least 2 lines, one per row; got 1"),
    (
        pd.DataFrame([[1.0, 2.0], [1.0, np.nan]], ["a", "b"], ["x", "x"]),
        LABELLED,
        "column 'x' of .* has 1 missing values, the first at 'b'",
    ),
    (np.zeros((3, 3)), LABELLED, "must have 2 lines, one per row; got 3"),
    (np.zeros(3), NUMBERED, "a matrix of numbers"),
    (np.array([["a"], ["b"]]), NUMBERED, "a matrix of numbers"),
    (np.array([[np.nan], [1.0]]), NUMBERED, "must be finite"),
    (sparse.csr_array(np.array([[np.inf], [1.0]])), NUMBERED, "must be finite"),
    ([1, 2], NUMBERED, "got list"),
    (np.ma.masked_equal(np.eye(2), 0.0), NUMBERED, "no masked numbers"),
    (
        ITEMS.set_axis(pd.MultiIndex.from_product([["s"], ITEMS.index])),
        LABELLED,
        r"labels such as \[\('s', '.'\)\]; set_index",
    ),
]


@each(("X", "mode", "sentence"), REFUSED)
def test_features_that_do_not_fit_are_refused(X, mode, sentence):
    with pytest.raises(ValueError, match=f"Features of mode 'item'.*{sentence}|{sentence}"):
        designed(Features(X), mode)


def test_features_of_labels_of_several_levels_and_of_cells_listed_twice():
    index = pd.MultiIndex.from_tuples([("s", "b"), ("s", "a")])
    found, mode = designed(
        Features(pd.DataFrame({"x": [1.0, 0.0]}, index)), Mode("item", Labels([("s", "a"), ("s", "b")]), 2)
    )
    assert mode.size == 2
    np.testing.assert_array_equal(found.matrix, [[-0.5], [0.5]])
    twice = sparse.csr_array((np.array([1.0, 1.0, 3.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    once, again = (designed(Features(X), NUMBERED)[0] for X in (sparse.csr_array(twice.toarray()), twice))
    assert once.size == again.size
    np.testing.assert_array_equal(once.gram(), again.gram())


def test_rows_without_features_are_told_with_counts():
    mode, seen = Mode("item", Labels(list("abcdA")), 5), np.array([True, True, True, True, False])
    with pytest.warns(
        UserWarning, match="1 of 4 rows with entries of mode 'item' have no features, such as 'a', .*; 1 rows"
    ):
        warn_of_rows_without(mode, np.array([False, True, True, True, True]), seen)
    with pytest.warns(
        UserWarning, match="3 of 4 rows with entries of mode 'item' have no features, such as 'b', and the"
    ):
        warn_of_rows_without(mode, np.array([True, False, False, False, False]), seen)
    warn_of_rows_without(mode, np.ones(5, dtype=bool), seen)  # nothing to tell of one that has no entries yet
