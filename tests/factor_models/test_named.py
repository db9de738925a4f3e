"""Rows and columns by their names: cells to predict, new rows of a collective factorisation, files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import tensorcep as tc
from tensorcep.factor_models.settings import Gibbs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def frames(rng, n=60):
    """Users by items and users by tags, of shared factors."""
    u, v, w = rng.normal(size=(n, 2)), rng.normal(size=(12, 2)), rng.normal(size=(7, 2))
    users = [f"u{i}" for i in range(n)]
    ratings = pd.DataFrame(u @ v.T + 0.2 * rng.normal(size=(n, 12)), users, [f"i{j}" for j in range(12)])
    tags = pd.DataFrame(u @ w.T + 0.2 * rng.normal(size=(n, 7)), users, [f"t{j}" for j in range(7)])
    return ratings, tags


RELATIONS = [("users", "items", "gaussian"), ("users", "tags", "gaussian")]


def test_cells_are_predicted_by_name_from_a_file(rng, tmp_path):
    ratings, tags = frames(rng)
    model = tc.CollectiveMatrixFactorization(RELATIONS, 3, random_state=0).fit([ratings, tags])
    cells = pd.DataFrame({"users": ["u3", "u0", "u3"], "tags": ["t6", "t2", "t0"]})
    mean, std = model.predict_cells(cells, "users x tags", return_std=True)
    whole = model.reconstruct(1)
    np.testing.assert_allclose(mean, whole[[3, 0, 3], [6, 2, 0]], rtol=1e-10)
    assert (std > 0).all()
    model.save(tmp_path / "m.npz")
    again = tc.load(tmp_path / "m.npz")
    np.testing.assert_array_equal(again.predict_cells(cells, 1), mean)
    assert again.components("users x tags")["feature"].unique().tolist() == list(tags.columns)
    np.testing.assert_allclose(
        again.predict_cells([[3, 6]], 1), mean[:1], rtol=1e-14
    )  # one cell: another order of sums
    with pytest.raises(ValueError, match="nobody"):
        again.predict_cells(pd.DataFrame({"users": ["nobody"], "tags": ["t0"]}), 1)


@pytest.mark.parametrize("kind", ["bernoulli", "negbinomial"])
def test_cells_of_a_matrix_are_those_of_the_whole(kind, rng):
    X = rng.poisson(2.0, size=(40, 9)).astype(float)
    X = np.minimum(X, 1.0) if kind == "bernoulli" else X
    params = {"dispersion": "row"} if kind == "negbinomial" else {}
    for method in ("vb", Gibbs(burn_in=5)):
        model = tc.BayesianPCA(2, kind, method=method, random_state=0, max_iter=20, **params).fit(X)
        at = np.stack([rng.integers(40, size=30), rng.integers(9, size=30)], axis=1)
        np.testing.assert_allclose(model.predict_cells(at), model.reconstruct()[tuple(at.T)], rtol=1e-9)


def test_rows_have_a_tidy_table_too(rng):
    ratings, tags = frames(rng)
    model = tc.CollectiveMatrixFactorization(RELATIONS, 2, random_state=0)
    model.fit({"users x tags": tags, "users x items": ratings})
    table = model.scores_frame("users")
    assert list(table.columns) == ["row", "component", "mean", "sd", "lower", "upper"]
    assert table["row"].unique().tolist() == list(ratings.index)
    np.testing.assert_array_equal(table["mean"], model.factors_["users"].T.ravel())
    assert (table["lower"] < table["upper"]).all()
    pca = tc.BayesianPCA(2, random_state=0).fit(ratings)
    assert pca.scores_frame()["row"].tolist() == list(ratings.index) * 2
    views = tc.BayesianCCA(2, random_state=0, max_iter=20).fit({"a": ratings, "b": tags})
    assert views.scores_frame()["row"].tolist() == list(ratings.index) * 2
    assert set(views.components("b")["feature"]) == set(tags.columns)
    with pytest.raises(ValueError, match="X must hold a matrix for each of"):
        model.fit({"users x items": ratings})


def test_new_rows_are_placed_among_the_others(rng):
    ratings, tags = frames(rng)
    old, new = slice(0, 50), slice(50, 60)
    model = tc.CollectiveMatrixFactorization(RELATIONS, 2, random_state=0, tol=1e-6).fit([ratings[old], tags[old]])
    some = model.transform([ratings[new], None])
    both, cov = model.transform({"users x items": ratings[new], 1: tags[new]}, "users", return_cov=True)
    assert some.shape == both.shape == (10, 2)
    assert cov.shape == (10, 2, 2)
    again = model.transform([ratings[old], tags[old]])
    np.testing.assert_allclose(again, model.factors_["users"], atol=0.05)
    guessed = np.asarray(tags[new]) - np.asarray(tags[old].mean(axis=0))
    loadings = model.factors_["tags"] * np.asarray(tags[old].std(axis=0))[:, None]
    assert np.corrcoef((some @ loadings.T).ravel(), guessed.ravel())[0, 1] > 0.9


def test_rows_that_cannot_be_placed_are_refused(rng):
    ratings, tags = frames(rng)
    model = tc.CollectiveMatrixFactorization(RELATIONS, 2, random_state=0).fit([ratings, tags])
    wrong = {
        "X must hold at least one matrix": lambda: model.transform([None, None]),
        "only rows can be placed: give the relation as": lambda: model.transform([ratings, None], "items"),
        "its rows are 'users'; leave it out": lambda: model.transform([ratings, None], "tags"),
        "matrix 0 must have 12 columns": lambda: model.transform([np.ones((3, 5)), None]),
        "columns of matrix 0 must have the labels": lambda: model.transform([ratings[ratings.columns[::-1]], None]),
        "the same new rows": lambda: model.transform([ratings[:3], tags[:4]]),
    }
    for message, call in wrong.items():
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(ValueError, match="labels of 'users' in matrix 1 must be those of an earlier matrix"):
        model.fit([ratings, tags[::-1]])


def reversed_columns(frame):
    return frame[frame.columns[::-1]]


@pytest.mark.parametrize("cls", [tc.GroupFactorAnalysis, tc.BayesianCCA])
def test_views_with_other_columns_are_refused(cls, rng, tmp_path):
    a, b = frames(rng)
    b = b.assign(**{f"t{j}": b["t0"] + 0.1 * rng.normal(size=len(b)) for j in range(7, 12)})  # as wide as a
    model = cls(2, random_state=0, max_iter=20).fit({"a": a, "b": b})
    model.save(tmp_path / "m.npz")
    renamed = a.rename(columns={"i3": "WRONG"})
    for known in (model, tc.load(tmp_path / "m.npz")):
        expected = known.transform([a[:5], b[:5]])
        np.testing.assert_array_equal(known.transform({"b": b[:5], "a": a[:5]}), expected)
        np.testing.assert_array_equal(known.transform([a[:5].to_numpy(), b[:5].to_numpy()]), expected)
        wrong = {
            "the columns of view 0 must have the labels, in the order, of those of the fit": [
                lambda m: m.transform([reversed_columns(a), b]),
                lambda m: m.transform({"a": reversed_columns(a), "b": b}),
                lambda m: m.transform([renamed, None]),
                lambda m: m.transform([b, a]),
                lambda m: m.transform([a.set_axis(["i0"] * 12, axis=1), None]),
                lambda m: m.predict_view([reversed_columns(a), None], 1),
            ],
            "the columns of view 1 must have": [lambda m: m.predict_view([None, reversed_columns(b)], 0)],
            "the rows of view 1 must have the labels of those of view 0": [lambda m: m.transform([a, b[::-1]])],
            "the name of a view must be one of 'a', 'b'; got 'c'": [lambda m: m.transform({"a": a, "c": b})],
        }
        for message, calls in wrong.items():
            for call in calls:
                with pytest.raises(ValueError, match=message):
                    call(known)


@pytest.mark.parametrize("years", [False, True])
def test_columns_that_are_numbers_are_named_too(years, rng):
    X = pd.DataFrame(rng.normal(size=(30, 2)) @ rng.normal(size=(2, 4)) + 0.1 * rng.normal(size=(30, 4)))
    fitted = X.set_axis([2001, 2002, 2003, 2004], axis=1) if years else X
    same, other = X.to_numpy(), fitted[fitted.columns[::-1]]
    pca = tc.BayesianPCA(1, random_state=0).fit(fitted)
    views = tc.GroupFactorAnalysis(1, random_state=0, max_iter=20).fit([fitted, fitted])
    np.testing.assert_array_equal(pca.transform(same), pca.transform(fitted))
    np.testing.assert_array_equal(views.transform([same, None]), views.transform([fitted, None]))
    for method in (pca.transform, pca.score, pca.predict_missing, pca.partial_fit):
        with pytest.raises(
            ValueError, match="the columns of X must have the labels, in the order, of those of the fit"
        ):
            method(other)
    with pytest.raises(ValueError, match="the columns of view 0 must have the labels"):
        views.transform([other, None])


def test_new_rows_of_one_entity_are_the_same_in_every_matrix(rng):
    ratings, tags = frames(rng)
    model = tc.CollectiveMatrixFactorization(RELATIONS, 2, random_state=0).fit([ratings, tags])
    with pytest.raises(ValueError, match="the rows of matrix 1 must have the labels of those of matrix 0"):
        model.transform([ratings[:4], tags[3::-1]])


def test_columns_of_cells_are_found_by_name(rng):
    users, items = rng.normal(size=(9, 1)), rng.normal(size=(9, 1))
    ratings = users @ items.T + 0.1 * rng.normal(size=(9, 9))
    cells = pd.DataFrame({"user": [1, 2, 7], "item": [4, 0, 3], "stars": [1.0, 2.0, 3.0]})
    named = pd.DataFrame(ratings, pd.Index([*range(10, 19)], name="u"), pd.Index([*range(20, 29)], name="i"))
    for X, asked in ((ratings, cells), (named, cells.assign(user=cells["user"] + 10, item=cells["item"] + 20))):
        model = tc.CollectiveMatrixFactorization([("user", "item", "gaussian")], 1, random_state=0).fit([X])
        expected = model.predict_cells(cells[["user", "item"]].to_numpy())
        for table in (asked, asked[["item", "user"]], asked[["item", "stars", "user"]]):
            np.testing.assert_array_equal(model.predict_cells(table), expected)
        nameless = asked[["user", "item"]].set_axis([0, 1], axis=1)
        np.testing.assert_array_equal(model.predict_cells(nameless), expected)
        with pytest.raises(ValueError, match="must have the columns 'user', 'item', .* got 'p', 'q'; rename"):
            model.predict_cells(asked[["user", "item"]].set_axis(["p", "q"], axis=1))
        with pytest.raises(ValueError, match="must have the columns 'user', 'item'"):
            model.predict_cells(asked[["item", "stars"]])
    swapped = asked[["item", "user"]].rename(columns={"user": "u", "item": "i"})
    np.testing.assert_array_equal(model.predict_cells(swapped), expected)
    pca = tc.BayesianPCA(1, random_state=0).fit(named)
    np.testing.assert_array_equal(pca.predict_cells(swapped), pca.predict_cells(swapped[["u", "i"]]))
    with pytest.raises(ValueError, match="must have the columns 'u', 'i'"):
        pca.predict_cells(asked)
