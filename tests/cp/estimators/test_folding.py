"""Rows of unseen labels: the conditional posterior of the method, exactly; the model that knows them, the same bits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.models import paper
from scipy.special import log_ndtr

import tensorcep as tc
from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.packing import pack, unpack
from tensorcep.cp.fitted.new_rows import Natural, moments, prior_of_new
from tensorcep.methods import CEP, Gibbs, PGGibbs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
MODES = ["user", "item", "month"]
PARTS = {"main": 1, "pair": 1, "cp": 2}


def frame(seed=0, likelihood="gaussian", n=240):
    simulated = tc.simulate_cp((14, 9, 4), 1, n, likelihood=likelihood, random_state=seed)
    columns = {mode: [f"{mode[0]}{i}" for i in at] for mode, at in zip(MODES, simulated.tensor.coords.T, strict=True)}
    return pd.DataFrame({**columns, "y": simulated.tensor.values})


def split(df):
    new = df["user"].isin(["u3", "u12"])
    return df[~new], df[new]


def fit(df, cls=tc.CPRegressor, rank=2, **params):
    how = {"interactions": PARTS, "prior": "learned", "random_state": 0, "max_iter": 40, "init": "random"}
    return cls(rank, **{**how, **params}).fit(df, value="y")


def conditional(model, c, df, k=0):
    """Natural parameters of each new row by plain sums over its entries."""
    belief, R = model._result.belief, model.posterior_.rank
    mean = belief.mean[c]
    cov = np.zeros((len(mean), R, R)) if belief.cov is None else unpack(belief.cov[c], R)
    free = np.array([k in modes for modes in model.column_modes_])
    m0, S0 = prior_of_new(model._fitted, c, k)
    tau = belief.theta.values[c % len(belief.theta.values), 0]
    rows = {}
    first = np.concatenate([[0], np.cumsum(model.shape_)])
    for user, part in df.groupby("user"):
        Lam = np.linalg.inv(S0[np.ix_(free, free)])
        eta = Lam @ m0[free]
        for item, month, y in part[["item", "month", "y"]].itertuples(index=False):
            z, Z = np.ones(R), np.ones((R, R))
            for j, label in ((1, item), (2, month)):
                i = first[j] + model.labels_[j].rows([label])[0]
                z, Z = z * mean[i], Z * (cov[i] + np.outer(mean[i], mean[i]))
            Lam = Lam + tau * Z[np.ix_(free, free)]
            eta = eta + tau * ((y - model.level_) * z[free] - Z[np.ix_(free, ~free)].sum(axis=1))
        rows[user] = np.linalg.solve(Lam, eta), np.linalg.inv(Lam)
    return rows, free


@each("method", ["vmp", CEP(n_ensemble=1), CEP(n_ensemble=2)])
def test_new_rows_are_the_conditional_posterior(method):
    known, new = split(frame())
    model = fit(known, method=method)
    rows = model.transform(new, mode="user", value="y")
    assert list(rows.labels) == ["u3", "u12"]
    for c, part in enumerate(rows.parts):
        expected, free = conditional(model, c, new)
        Lam = unpack(part.Lam, model.posterior_.rank)
        for row, label in enumerate(rows.labels):
            cov = np.linalg.inv(Lam[row])
            np.testing.assert_allclose((cov @ part.eta[row])[free], expected[label][0], rtol=1e-6, atol=1e-8)
            np.testing.assert_allclose(cov[np.ix_(free, free)], expected[label][1], rtol=1e-6, atol=1e-8)
    best, free = conditional(model, 0, new)
    np.testing.assert_allclose(rows.mean[:, free], [best[label][0] for label in rows.labels], rtol=1e-6, atol=1e-8)


def test_new_rows_of_a_sampler_are_drawn_given_each_draw():
    known, new = split(frame(n=400))
    model = fit(known, method=Gibbs(n_chains=1, burn_in=20, weights="equal"), max_iter=140, interactions="cp")
    rows = model.transform(new, mode="user", value="y")
    gaps = []
    for c, values in enumerate(rows.parts):
        expected, _ = conditional(model, c, new)
        for row, label in enumerate(rows.labels):
            root = np.linalg.cholesky(expected[label][1])
            gaps.append(np.linalg.solve(root, values[row] - expected[label][0]))
    gaps = np.ravel(gaps)
    assert abs(gaps.mean()) < 6 / np.sqrt(len(gaps))
    assert abs(gaps.var() - 1.0) < 6 * np.sqrt(2 / len(gaps))


def test_model_with_new_rows_keeps_the_bits_of_the_others(tmp_path):
    known, new = split(frame())
    for method in ("vmp", CEP(n_ensemble=2), Gibbs(n_chains=2, burn_in=10, weights="equal"), "wopt"):
        model = fit(known, method=method, prior="fixed" if method == "wopt" else "learned")
        more = model.with_rows(model.transform(new, mode="user", value="y"))
        assert more.shape_ == (14, 9, 4)
        np.testing.assert_array_equal(more.predict(known), model.predict(known))
        apart = np.sqrt(np.mean((more.predict(new) - new["y"]) ** 2))
        before = np.sqrt(np.mean((model.predict(new) - new["y"]) ** 2))
        assert apart < before
        more.save(tmp_path / "more.npz")
        again = tc.load(tmp_path / "more.npz")
        np.testing.assert_array_equal(again.predict(new), more.predict(new))
        assert not set(zip(*more.recommend("item", {"user": "u3"})[MODES].to_numpy().T, strict=True)) & set(
            zip(*new[MODES].to_numpy().T, strict=True)
        )


def test_one_entry_of_a_label_is_the_gaussian_about_the_exact_mode():
    """With other rows that are all but certain the posterior is N(u) Phi(z u)."""
    df = frame(likelihood="probit").assign(y=lambda d: (d["y"] > 0).astype(int))
    model = paper(tc.CPClassifier, 1, random_state=0, max_iter=20, link="probit").fit(df, value="y")
    sure = model.posterior_._replace(Lam=model.posterior_.Lam * 1e9, eta=model.posterior_.eta * 1e9)
    model._set(model._result.with_posterior(sure))
    new = pd.DataFrame({"user": ["new"], "item": ["i1"], "month": ["m1"], "y": [1]})
    rows = model.transform(new, mode="user", value="y")
    z = model.factors_[1][1, 0] * model.factors_[2][1, 0]
    m0, S0 = prior_of_new(model._fitted, 0, 0)
    u = np.linspace(m0[0] - 12 * np.sqrt(S0[0, 0]), m0[0] + 12 * np.sqrt(S0[0, 0]), 20_001)
    log_p = -0.5 * (u - m0[0]) ** 2 / S0[0, 0] + log_ndtr(z * u)
    top, step = np.argmax(log_p), u[1] - u[0]
    np.testing.assert_allclose(rows.mean[0, 0], u[top], atol=step)
    curvature = (2 * log_p[top] - log_p[top - 1] - log_p[top + 1]) / step**2
    np.testing.assert_allclose(rows.cov[0, 0, 0], 1.0 / curvature, rtol=1e-3)


@pytest.mark.parametrize(
    ("cls", "method"),
    [
        (tc.CPClassifier, "pg-vb"),
        (tc.CPClassifier, "vmp"),
        (tc.CPClassifier, "laplace"),
        (tc.CPClassifier, PGGibbs(n_chains=1, burn_in=10, weights="equal")),
        (tc.CPCountRegressor, CEP(n_ensemble=1)),
        (tc.CPCountRegressor, "pg-vb"),
        (tc.CPCountRegressor, "vmp"),
    ],
    ids=lambda p: getattr(p, "name", getattr(p, "__name__", p)),
)
def test_new_rows_of_labels_and_counts_predict_their_entries(cls, method):
    df = frame(n=300)
    apart = df["user"].isin(["u3", "u12"])  # users unlike the others
    if cls is tc.CPClassifier:
        df["y"] = ((df["y"] > df["y"].median()) | apart).astype(int)
    else:
        df["y"] = np.round(np.exp(df["y"].clip(-2, 2))) + 30 * apart
    known, new = split(df)
    model = fit(known, cls, method=method, interactions="main+cp", rank=1)
    rows = model.transform(new, mode="user", value="y")
    more = model.with_rows(rows)
    assert np.isfinite(rows.mean).all()
    assert (np.linalg.eigvalsh(rows.cov) > -1e-9).all()
    assert more.log_score(new, new["y"]).mean() > model.log_score(new, new["y"]).mean()


def test_new_indices_and_refusals():
    X, y = tc.simulate_cp((6, 5), 1, 25, random_state=0).tensor.coords, np.ones(25)
    model = paper(tc.CPRegressor, 1, max_iter=5, random_state=0).fit(X, y + X[:, 0])
    rows = model.transform([[6, 0], [7, 1], [6, 2]], [1.0, 2.0, 1.0], mode=0)
    assert (len(rows), rows.labels) == (2, None)
    assert model.with_rows(rows).shape_ == (8, 5)
    assert rows.to_frame().shape == (2, 2)
    with pytest.raises(ValueError, match="must follow the known ones without a gap, from 6 on; got 7 to 7"):
        model.transform([[7, 0]], [1.0], mode=0)
    with pytest.raises(ValueError, match="y must not exceed .* in size, so that squares stay finite; got 1e[+]308"):
        model.transform([[6, 0]], [1e308], mode=0)
    known, new = split(frame())
    model = fit(known, method="vmp")
    with pytest.raises(ValueError, match="got 'u0' of mode 'user', which it was fitted to"):
        model.transform(known, mode="user", value="y")
    rows = model.transform(new, mode="user", value="y")
    with pytest.raises(ValueError, match="knows some of the new rows"):
        model.with_rows(rows).with_rows(rows)


def test_new_rows_have_the_same_bits_on_two_threads():
    known, new = split(frame())
    one, two = (fit(known, method="vmp", n_jobs=n).transform(new, mode="user", value="y") for n in (1, 2))
    np.testing.assert_array_equal(one.mean, two.mean)
    assert pack(one.cov).tobytes() == pack(two.cov).tobytes()


def test_a_single_column_beside_the_modes_holds_the_values():
    known, new = split(frame())
    model = fit(known, method="cep")
    by_name, by_itself = (model.transform(new, mode="user", **more) for more in ({"value": "y"}, {}))
    expected, found = (model.with_rows(rows).predict(new[MODES]) for rows in (by_name, by_itself))
    np.testing.assert_array_equal(found, expected)
    pd.testing.assert_frame_equal(model.anomaly_score(known), model.anomaly_score(known, value="y"))
    with pytest.raises(ValueError, match="the values are needed: give y, or say with value= which of the columns"):
        model.transform(new.assign(note="x"), mode="user")


def test_many_new_rows_of_a_sampler_at_once_are_placed():
    tensor = tc.simulate_cp((24, 9, 4), 1, 600, noise_precision=20.0, random_state=0).tensor
    new = tensor.coords[:, 0] >= 14
    how = {"interactions": {"main": 1, "pair": 2, "cp": 1}, "max_iter": 60, "random_state": 0, "init": "random"}
    model = tc.CPRegressor(1, method=Gibbs(n_chains=1, burn_in=20, weights="equal"), **how)
    model.fit(tensor.coords[~new], tensor.values[~new])
    grown = model.with_rows(model.transform(tensor.coords[new], tensor.values[new], mode=0))
    assert grown.score(tensor.coords[new], tensor.values[new]) > 0.4


def test_moments_of_rows_do_not_depend_on_how_arrays_lie_in_memory(rng):
    root = rng.normal(size=(8, 3, 3))
    Lam, eta = pack(root @ root.swapaxes(1, 2) + np.eye(3)), rng.normal(size=(8, 3))
    executor = ThreadExecutor(1)
    right = np.linalg.solve(unpack(Lam, 3), eta[..., None])[..., 0]
    for form in (np.ascontiguousarray, np.asfortranarray):
        np.testing.assert_allclose(moments(Natural(form(Lam), form(eta)), executor)[0], right, rtol=1e-10)


def test_rows_are_of_the_model_that_they_are_given_to(tmp_path):
    known, new = split(frame())
    model = fit(known, method="vmp", max_iter=5)
    rows = model.transform(new, mode="user", value="y")
    model.save(tmp_path / "m.npz")
    expected = model.with_rows(rows).predict(new[MODES])
    np.testing.assert_array_equal(tc.load(tmp_path / "m.npz").with_rows(rows).predict(new[MODES]), expected)
    others = [
        fit(known.assign(y=7.0 - 3.0 * known["y"]), method="vmp", max_iter=5),
        fit(known, method="vmp", max_iter=5, rank=1, interactions="cp"),
        fit(known, method="vmp", max_iter=5).fit(known[:-5], value="y"),
    ]
    for other in others:
        with pytest.raises(ValueError, match="of another model, or of this one before it was fitted again; transform"):
            other.with_rows(rows)
    first, second = (new[new["user"].isin(part)] for part in np.array_split(new["user"].unique(), 2))
    parts = [model.transform(part, mode="user", value="y") for part in (first, second)]
    both = model.with_rows(parts[0]).with_rows(parts[1])
    cells = new.assign(user=both.labels_[0].rows(new["user"]))
    seen = {tuple(cell) for cell in both._result.cells.tolist()}
    for user, *rest in cells[MODES].itertuples(index=False):
        at = [labels.rows([item])[0] for labels, item in zip(both.labels_[1:], rest, strict=True)]
        assert (user, *at) in seen
    np.testing.assert_allclose(both.predict(new[MODES]), expected, rtol=1e-12)


def test_rows_without_labels_are_added_once():
    X = tc.simulate_cp((6, 5), 1, 25, random_state=0).tensor.coords
    model = paper(tc.CPRegressor, 1, max_iter=5, random_state=0).fit(X, 1.0 + X[:, 0])
    rows = model.transform([[6, 0], [7, 1], [6, 2]], [1.0, 2.0, 1.0], mode=0)
    with pytest.raises(
        ValueError, match="must follow the 8 known ones; these follow 6; transform them with this model"
    ):
        model.with_rows(rows).with_rows(rows)
