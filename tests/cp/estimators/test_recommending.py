"""Recommendations, similar rows and explanations against slow twins: all cells predicted, sorted, added up."""

from __future__ import annotations

import copy
import dataclasses
import io
import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.data import NAMES, fitted
from helpers.models import paper

import tensorcep as tc
from tensorcep.cli.main import main
from tensorcep.methods import CEP, Gibbs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
MODES = ["user", "item", "month"]


def ratings():
    tensor = tc.simulate_cp((9, 8, 4), 1, 150, noise_precision=10, random_state=0).tensor
    columns = {mode: [f"{mode[0]}{i}" for i in rows] for mode, rows in zip(MODES, tensor.coords.T, strict=True)}
    return pd.DataFrame({**columns, "y": tensor.values})


METHODS = {
    "one": CEP(n_ensemble=1),
    "mixture": CEP(n_ensemble=2),
    "draws": Gibbs(n_chains=2, burn_in=20, weights="equal"),
    "point": "wopt",
}


@pytest.fixture(scope="module", params=METHODS)
def model(request):
    how = {"interactions": {"main": 1, "pair": 1, "cp": 2}, "prior": "learned", "random_state": 0, "max_iter": 60}
    if request.param == "point":
        how |= {"prior": "fixed"}
    return tc.CPRegressor(2, method=METHODS[request.param], init="random", **how).fit(ratings(), value="y")


def all_cells(model):
    return pd.DataFrame(itertools.product(*(found.index for found in model.labels_)), columns=MODES)


def test_recommend_is_the_sorted_prediction_of_all_cells(model):
    top = model.recommend("item", given={"month": "m3"}, n=3, exclude=None)
    cells = all_cells(model).query("month == 'm3'")
    cells["mean"] = model.predict_latent(cells)[0]
    best = cells.sort_values("mean", ascending=False, kind="stable").groupby("user").head(3)
    best = best.sort_values(["user", "mean"], ascending=[True, False])
    assert list(top.columns[:5]) == [*MODES, "rank", "mean"]
    assert top[MODES].to_numpy().tolist() == best[MODES].to_numpy().tolist()
    np.testing.assert_allclose(top["mean"], best["mean"])
    assert top["rank"].tolist() == [1, 2, 3] * 9
    if model.has_uncertainty():
        np.testing.assert_allclose(top["sd"], np.sqrt(model.predict_latent(top)[1]), rtol=1e-6)


def test_recommend_leaves_out_what_was_seen(model):
    seen = ratings()
    top = model.recommend("item", n=20, given={"month": "m3"})
    pairs = set(zip(top["user"], top["item"], strict=True))
    assert pairs.isdisjoint(zip(seen["user"], seen["item"], strict=True))
    assert len(pairs) == 72 - len(seen.groupby(["user", "item"]))
    cell = model.recommend("item", n=20, given={"month": "m3", "user": "u2"})
    assert set(cell["item"]) == {f"i{i}" for i in range(8)} - set(seen.query("user == 'u2' and month == 'm3'")["item"])
    some = model.recommend(
        "item", n=20, given={"user": ["u2", "u5"], "month": "m0"}, exclude=pd.DataFrame({"item": ["i1"]})
    )
    assert len(some) == 14
    assert set(some["user"]) == {"u2", "u5"}
    every = model.recommend("month", n=9)
    assert len(every) == 9 * 8 * 4 - len(seen.groupby(MODES))


def test_recommend_by_the_ends_of_the_interval(model):
    if not model.has_uncertainty():
        with pytest.raises(ValueError, match="by='lower' needs a posterior"):
            model.recommend("item", by="lower")
        return
    cells = all_cells(model)
    mean, variance = model.predict_latent(cells)
    for by, sign in (("lower", -1.0), ("upper", 1.0)):
        top = model.recommend("item", n=1, exclude=None, by=by, coverage=0.8)
        best = cells.assign(s=mean + sign * 1.2815515655 * np.sqrt(variance)).sort_values("s", ascending=False)
        best = best.groupby(["user", "month"]).head(1).set_index(["user", "month"])["item"]
        assert top.set_index(["user", "month"])["item"].to_dict() == best.to_dict()
        assert (top["lower"] <= top["upper"]).all()
    least = model.recommend("item", n=1, exclude=None, by="sd").set_index(["user", "month"])["item"]
    known = cells.assign(s=variance).sort_values("s", ascending=False).groupby(["user", "month"]).head(1)
    assert least.to_dict() == known.set_index(["user", "month"])["item"].to_dict()
    one, again = (model.recommend("item", n=2, by="thompson", random_state=1) for _ in range(2))
    pd.testing.assert_frame_equal(one, again)


def test_explanation_adds_up_to_the_prediction(model):
    parts = model.explain(user="u3", item="i4", month="m1")
    mean, variance = model.predict_latent(pd.DataFrame({"user": ["u3"], "item": ["i4"], "month": ["m1"]}))
    np.testing.assert_allclose(parts["mean"][:-1].sum(), mean[0], rtol=1e-6)
    assert parts["part"].tolist() == [
        "level", *MODES, "user x item", "user x month", "item x month", "component 6", "component 7", "sum",
    ]  # fmt: skip
    np.testing.assert_allclose(parts["mean"].iloc[-1], mean[0])
    if model.has_uncertainty():
        np.testing.assert_allclose(parts["sd"].iloc[-1], np.sqrt(variance[0]), rtol=1e-6)
        assert (parts["sd"] > 0.0).all()
    pd.testing.assert_frame_equal(parts, model.explain({"user": "u3", "item": "i4", "month": "m1"}))


def test_main_effects_of_an_explanation_are_centred():
    model = paper(tc.CPRegressor, 2, interactions="main+cp", max_iter=30, random_state=0).fit(ratings(), value="y")
    cells = [model.explain(user=f"u{i}", item="i0", month="m0").set_index("part")["mean"] for i in range(9)]
    assert abs(np.mean([cell["user"] for cell in cells])) < 1e-10
    assert len({round(cell["level"], 10) for cell in cells}) == 1


def test_similar_rows_have_similar_predictions(model):
    found = model.similar("item", "i2", n=7)
    cells = all_cells(model)
    table = cells.assign(f=model.predict_latent(cells)[0]).pivot_table(
        index="item", columns=["user", "month"], values="f"
    )
    assert len(found) == 7
    assert "i2" not in set(found["item"])
    if model.method_ == "wopt":
        own = table - table.mean(axis=0)
        cosine = own @ own.loc["i2"] / np.sqrt((own**2).sum(axis=1) * (own.loc["i2"] ** 2).sum())
        np.testing.assert_allclose(found["cosine"], cosine[found["item"]], atol=1e-6)
    if model.has_uncertainty():
        assert ((found["lower"] <= found["upper"]) & (found["sd"] >= 0)).all()


@each("name", NAMES)
def test_recommend_serves_every_likelihood_by_index(name):
    model = fitted(name)
    top = model.recommend(1, given={2: 3}, n=2)
    assert list(top.columns) == ["mode_0", "mode_1", "mode_2", "rank", "mean", "sd", "lower", "upper"]
    X = top[["mode_0", "mode_1", "mode_2"]].to_numpy()
    expected = model.predict_proba(X)[:, 1] if name == "classifier" else model.predict(X)
    np.testing.assert_allclose(top["mean"], expected, rtol=2e-3)
    assert ((top["lower"] < top["mean"]) & (top["mean"] < top["upper"])).all()


@each(
    ("call", "message"),
    [
        (lambda m: m.recommend("film"), "mode must be one of 'user', 'item', 'month'; got 'film'"),
        (lambda m: m.recommend("item", given={"item": "i1"}), "must not name the mode that is ranked, 'item'"),
        (lambda m: m.recommend("item", given={"user": 7}), "mode 0 of the model has labels of the kind text"),
        (lambda m: m.explain(user="u99", item="i1", month="m1"), "label 'u99' is not among the 9 labels"),
        (lambda m: m.recommend("item", by="best"), "by must be one of"),
        (lambda m: m.recommend("item", exclude=pd.DataFrame({"user": ["u1"]})), "exclude must have a column 'item'"),
        (lambda m: m.explain(user="u1", item="i2"), "there is none of 'month'"),
        (lambda m: m.similar("item", "i99"), "label 'i99' is not among"),
        (
            lambda m: m.similar("item", ["i1", "i2"]),
            "row must be one row of mode 'item'; got .*; call similar for each",
        ),
        (lambda m: m.recommend("item", exclude=["i1"]), "exclude must be cells: a table with a column 'item'"),
    ],
)
def test_recommending_refuses_in_one_sentence(call, message):
    model = paper(tc.CPRegressor, 1, max_iter=5, random_state=0).fit(ratings(), value="y")
    with pytest.raises(ValueError, match=message):
        call(model)


def test_seen_cells_are_saved_and_streams_have_none(tmp_path):
    model = paper(tc.CPRegressor, 1, max_iter=5, random_state=0).fit(ratings(), value="y")
    model.save(tmp_path / "m.npz")
    pd.testing.assert_frame_equal(tc.load(tmp_path / "m.npz").recommend("item"), model.recommend("item"))
    df = ratings()
    model.partial_fit(df[MODES], df["y"])
    with pytest.raises(ValueError, match="exclude='seen' needs the cells of the fit"):
        model.recommend("item")


@each("name", ["count", "classifier"])
def test_sampled_zeros_are_not_seen(name, tmp_path):
    rng = np.random.default_rng(0)
    bought = pd.DataFrame({"user": rng.integers(9, size=40), "item": rng.integers(8, size=40)}).drop_duplicates()
    ones = tc.SparseTensor.from_pandas(bought.astype(str).assign(y=1.0), ["user", "item"])
    data = ones.with_zeros(25, random_state=0)
    kind = {"count": tc.CPCountRegressor, "classifier": tc.CPClassifier}[name]
    model = kind(1, method="vmp" if name == "count" else "pg-vb", max_iter=3, random_state=0).fit(data)
    free = 9 * 8 - ones.nnz
    top = model.recommend("item", n=8)
    assert len(top) == free
    assert {*zip(top["user"], top["item"], strict=True)}.isdisjoint(zip(*bought.astype(str).to_numpy().T, strict=True))
    assert len(model.recommend("item", n=8, exclude=data)) == free - 25
    model.save(tmp_path / "m.npz")
    tc.write_tensor(data, tmp_path / "d.npz")
    again = tc.load(tmp_path / "m.npz")
    pd.testing.assert_frame_equal(again.recommend("item", n=8), top)
    for fold in (tc.read_tensor(tmp_path / "d.npz"), data[np.arange(data.nnz, dtype=np.uint32)]):
        assert len(kind(1, method=model.method, max_iter=3, random_state=0).fit(fold).recommend("item", n=8)) == free
    other = again.forget_rows("user", "3", data=data).recommend("item", n=8)
    assert len(other) == 8 * 8 - (bought["user"] != 3).sum()
    new = ones.labels[1].index[:3].to_frame(index=False).assign(user="new", y=[1.0, 0.0, 0.0])[["user", "item", "y"]]
    more = tc.SparseTensor.from_pandas(new, ["user", "item"], labels=[None, ones.labels[1]])
    more = dataclasses.replace(more, sampled=more.values == 0.0)
    grown = model.with_rows(model.transform(more, mode="user"))
    assert set(ones.labels[1].index) - set(grown.recommend("item", {"user": "new"}, n=8)["item"]) == {new["item"][0]}


def test_rows_that_are_not_known_have_the_prior_or_are_refused(model):
    with pytest.warns(
        UserWarning, match=r"1 of 3 rows in given= .* \(the first is 'new' of mode 'user'\); their prior"
    ):
        top = model.recommend("item", {"user": ["u1", "new"], "month": ["m2"]}, n=8)
    assert len(top[top["user"] == "new"]) == 8
    with pytest.warns(UserWarning, match="8 of 8 entries touch rows"):
        expected = model.predict_latent(top[top["user"] == "new"][MODES])[0]
    np.testing.assert_allclose(top["mean"][top["user"] == "new"], expected)
    assert (np.diff(expected) <= 0.0).all()
    known = model.recommend("item", {"user": ["u1"], "month": ["m2"]}, n=8)
    pd.testing.assert_frame_equal(known, top[top["user"] == "u1"].reset_index(drop=True))
    careful = copy.copy(model)
    careful.unknown = "error"
    with pytest.raises(ValueError, match="of mode 'user'\\); fit with such rows, or set unknown=\"prior\""):
        careful.recommend("item", {"user": "new"})


def test_a_month_to_come_is_ranked_by_its_forecast():
    day = pd.date_range("2024-01-01", periods=12)
    cells = pd.MultiIndex.from_product([day, list("abc")], names=["day", "shop"]).to_frame(index=False)
    cells["y"] = np.repeat(np.sin(np.arange(12) / 3), 3) * np.tile([1.0, 2.0, 3.0], 12)
    model = paper(tc.CPRegressor, 1, method="vmp", max_iter=5, prior={"day": tc.Series()}).fit(cells, value="y")
    top = model.recommend("shop", {"day": pd.Timestamp("2024-01-15")}, exclude=None)
    np.testing.assert_allclose(top["mean"], model.predict(top[["day", "shop"]]))
    assert top["mean"].is_monotonic_decreasing


def test_shell_recommends_to_rows_that_are_not_known(tmp_path, capsys):
    model = paper(tc.CPRegressor, 1, max_iter=5, random_state=0).fit(ratings().assign(user=1), value="y")
    model.save(tmp_path / "m.npz")
    asked = ["recommend", str(tmp_path / "m.npz"), "--mode", "item", "-n", "1"]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main([*asked, "--given", "month=Paris", "--given", "user=1"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1].startswith("1,i")
    assert err.startswith("warning: 1 of 2 rows in --given have no training entries (the first is 'Paris' of mode 'mo")
    assert main([*asked, "--given", "user=x"]) == 1
    assert capsys.readouterr().err == (
        "error: --given user= must be a number, as the labels of the model are, such as 1; got 'x'.\n"
    )
    model.partial_fit(ratings().assign(user=1)[MODES], ratings()["y"])
    model.save(tmp_path / "m.npz")
    assert main(asked) == 1
    assert (
        "earlier versions do not keep; give --exclude FILE, or --all, which leaves out nothing."
        in capsys.readouterr().err
    )
    ratings()[["item", "month"]].query("month == 'm3'").to_csv(tmp_path / "e.csv", index=False)
    assert main([*asked[:-2], "-n", "9", "--given", "user=1", "--exclude", str(tmp_path / "e.csv")]) == 0
    top = pd.read_csv(io.StringIO(capsys.readouterr().out))
    left = set(ratings()["item"]) - set(ratings().query("month == 'm3'")["item"])
    assert set(top.query("month == 'm3'")["item"]) == left
    assert len(top.query("month == 'm1'")) == 8


def test_shell_recommends_and_writes_components(tmp_path, capsys):
    model = paper(tc.CPRegressor, 1, max_iter=5, random_state=0).fit(ratings(), value="y")
    model.save(tmp_path / "m.npz")
    file, out = str(tmp_path / "m.npz"), tmp_path / "out.csv"
    given = ["--given", "month=m3", "--given", "user=u2"]
    assert main(["recommend", file, "--mode", "item", *given, "-n", "3", "--by", "lower", "-o", str(out)]) == 0
    expected = model.recommend("item", {"month": "m3", "user": "u2"}, n=3, by="lower")
    pd.testing.assert_frame_equal(pd.read_csv(out), expected, rtol=1e-6, check_dtype=False)
    assert main(["components", file, "--mode", "item", "-o", str(out)]) == 0
    pd.testing.assert_frame_equal(pd.read_csv(out), model.components("item"), rtol=1e-6, check_dtype=False)
    assert main(["recommend", file, "--mode", "film"]) == 1
    assert main(["recommend", file, "--mode", "item", "--given", "month"]) == 1
    errors = capsys.readouterr().err
    assert "--mode must be one of user, item, month" in errors
    assert "--given takes MODE=LABEL; got 'month'" in errors
