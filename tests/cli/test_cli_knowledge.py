"""Features, series and graphs in the shell: the library's models, rows as the file of entries has them, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tensorcep as tc
from tensorcep.cli.fit import knowledge_of
from tensorcep.cli.main import build_parser, main
from tensorcep.cp.estimators import base

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
SMALL = ["--rank", 1, "--method", "vmp", "--max-iter", 15, "-q"]
HOW = {"rank": 1, "method": "vmp", "max_iter": 15, "random_state": 0}
DAYS = pd.date_range("2024-01-01", periods=12).strftime("%Y-%m-%d")


def cli(*args):
    return main([str(arg) for arg in args])


def given(*args, command="fit"):
    """The parameter prior that these options make of a file of entries."""
    return knowledge_of(build_parser().parse_args([command, *map(str, args), "-o", "m.npz"]))


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with entries of items, shops and days, features of the items, and a graph of the shops."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    items = pd.DataFrame({"item": 100 + np.arange(12), "size": rng.normal(size=12).round(3), "kind": [*"abc"] * 4})
    items.to_csv("items.csv", index=False)
    pd.DataFrame({"a": ["s0", "s1", "s2"], "b": ["s1", "s2", "s3"], "w": [1.0, 2.0, 1.0]}).to_csv(
        "roads.csv", index=False
    )
    X = np.argwhere(np.ones((10, 3, 10)))[rng.permutation(300)[:220]]
    cells = pd.DataFrame({"item": 100 + X[:, 0], "shop": [f"s{j}" for j in X[:, 1]], "day": DAYS[X[:, 2]]})
    y = items["size"].to_numpy()[X[:, 0]] + 0.3 * X[:, 1] + np.sin(X[:, 2]) + rng.normal(0.0, 0.2, len(X))
    frame = cells.assign(y=y.round(4))
    frame.to_csv("sales.csv", index=False)
    return frame, items


def test_cli_fit_with_knowledge_of_rows_is_the_library(data, capsys):
    frame, items = data
    what = ["--features", "item=items.csv", "--series", "day=ou", "--graph", "shop=roads.csv"]
    assert cli("fit", "sales.csv", "-o", "m.npz", *SMALL, *what) == 0
    roads = tc.Graph([("s0", "s1"), ("s1", "s2", 2.0), ("s2", "s3")])
    prior = {"item": tc.Features(items.set_index("item")), "day": tc.Series("ou"), "shop": roads}
    own = tc.CPRegressor(**HOW, prior=prior).fit(frame[["item", "shop", "day"]], frame["y"])
    model = tc.load("m.npz")
    assert model.shape_ == own.shape_ == (12, 4, 10)
    items[["size", "kind", "item"]].to_csv("other.csv", index=False)  # the column called like the mode, not the first
    assert cli("fit", "sales.csv", "-o", "o.npz", *SMALL, *what[:1], "item=other.csv", *what[2:], "-q") == 0
    assert tc.load("o.npz").shape_ == model.shape_
    new = pd.DataFrame({"item": [100, 111, 103], "shop": ["s0", "s1", "s3"], "day": [DAYS[3], DAYS[4], DAYS[11]]})
    np.testing.assert_allclose(model.predict(new), own.predict(new), rtol=1e-9)
    new.to_csv("new.csv", index=False)
    capsys.readouterr()
    assert cli("predict", "m.npz", "new.csv", "-o", "p.csv") == 0
    np.testing.assert_allclose(pd.read_csv("p.csv")["mean"], own.predict(new), rtol=1e-6)


def test_cli_forecasts_of_later_dates_grow_wider(data):
    assert cli("fit", "sales.csv", "-o", "m.npz", *SMALL, "--series", "day=rw") == 0
    later = pd.date_range("2024-01-10", periods=8).strftime("%Y-%m-%d")
    pd.DataFrame({"item": 100, "shop": "s1", "day": later}).to_csv("later.csv", index=False)
    assert cli("predict", "m.npz", "later.csv", "-o", "p.csv") == 0
    assert (np.diff(pd.read_csv("p.csv")["sd"][1:]) > 0.0).all()


def test_cli_select_rank_and_compare_take_knowledge(data, capsys):
    how = ["--max-iter", 5, "--features", "item=items.csv"]
    assert cli("compare", "sales.csv", "sales.csv", "--methods", "vmp", "--rank", 1, *how) == 0
    assert cli("select-rank", "sales.csv", "--method", "vmp", "--ranks", "1,2", "--cv", 2, *how) == 0
    assert "chosen rank" in capsys.readouterr().out


def test_cli_files_of_indices_count_as_the_entries_do(data):
    frame, _ = data
    rows = np.argwhere(np.ones((4, 3)))
    np.savetxt("plain.tns", np.c_[rows + 1, np.arange(12.0)], fmt=["%d", "%d", "%g"])
    pd.DataFrame({"row": [1, 2, 3, 5], "x": [0.5, 1.5, 2.5, 4.0]}).to_csv("rows.csv", index=False)
    found = given("plain.tns", "--features", "0=rows.csv")
    assert found[0].X.index.tolist() == [0, 1, 2, 4]
    assert given("plain.tns", "--features", "0=rows.csv", "--index-base", 0)[0].X.index.tolist() == [1, 2, 3, 5]
    pd.DataFrame({"a": [1], "b": [3]}).to_csv("edges.csv", index=False)
    edges = given("plain.tns", "--graph", "1=edges.csv")
    assert edges[1].edges.to_numpy().tolist() == [[0, 2]]
    tc.write_tensor(tc.SparseTensor.from_pandas(frame, ["item", "shop", "day"], "y"), "named.npz")
    assert given("named.npz", "--features", "item=items.csv")["item"].X.index.tolist() == list(range(100, 112))
    assert cli("fit", "plain.tns", "-o", "m.npz", *SMALL, "--features", "0=rows.csv") == 0
    assert tc.load("m.npz").shape_ == (5, 3)


def test_cli_series_says_what_its_words_say():
    for text, series in {
        "day": tc.Series(),
        "day=rw": tc.Series("rw"),
        "2=ou,period=7": tc.Series("ou", period=7.0),
        "day=period=7D,local=shop": tc.Series(period="7D", local="shop"),
        "hour=cyclic,period=24,local=0": tc.Series(cyclic=True, period=24.0, local=0),
    }.items():
        ((mode, found),) = given("sales.csv", "--series", text).items()
        assert mode == (2 if text[0] == "2" else text.partition("=")[0])
        assert repr(found) == repr(series)


NONE = [
    (["--features", "items.csv"], "--features takes MODE=FILE, such as item=items.csv; got 'items.csv'"),
    (["--features", "item=none.csv"], "there is no file 'none.csv'"),
    (["--features", "item=sales.tns"], "there is no file 'sales.tns'"),
    (["--features", "item=odd.xyz"], "unknown extension"),
    (["--features", "item=gaps.csv"], "column 'size' of Features of mode 'item' has 1 missing values"),
    (["--features", "nobody=items.csv"], "nobody"),
    (["--features", "shop=items.csv"], "must be indexed by its labels, such as 's0'"),
    (["--features", "item=items.csv", "--series", "item"], "say one thing of a mode; got two of 'item'"),
    (["--features", "item=items.csv", "--prior", "ard"], "--prior ard does not go with --features"),
    (["--features", "item=items.csv", "--model", "pca"], "--features is for --model cp; got pca"),
    (["--series", "day=weekly"], "--series knows the words auto, ou or rw; cyclic; period=LENGTH; local=MODE; got"),
    (["--series", "day=ou,rw"], "--series takes one kind; got another, 'rw', in 'day=ou,rw'"),
    (["--series", "day=period=x"], "period of the Series of mode 'day' must be a Timedelta, or text such as '7D'"),
    (["--series", "shop"], "mode 'shop' needs labels that are numbers or dates such as 2024-01-31; got 's0'"),
    (["--graph", "shop=sales.csv"], "--graph needs two columns of rows, and perhaps one of weights;"),
]  # fmt: skip


def test_cli_refuses_knowledge_that_is_none(data, capsys):
    _, items = data
    items.astype(object).mask(items == items["size"][3], "n/a").to_csv("gaps.csv", index=False)
    Path("odd.xyz").touch()
    for args, told in NONE:
        assert cli("fit", "sales.csv", "-o", "m.npz", *SMALL, *args) == 1, args
        err = capsys.readouterr().err
        assert told in err
        assert err.count("\n") == 1, args


NOT_OF_STREAMS = [
    (["--series", "day", "--forget", "0.1"], "--forget does not go with --series"),
    (["--series", "day", "--revisit", "10"], "--revisit goes with a prior that stays"),
    (["--features", "item=items.csv", "--revisit", "10"], "--revisit goes with a prior that stays"),
    (["--graph", "shop=roads.csv"], "a stream learns no graph"),
    (["--series", "day=local=day"], "must name another mode"),
]


def test_cli_stream_refuses_what_it_cannot_learn(data, capsys):
    for args, told in NOT_OF_STREAMS:
        assert cli("stream", "sales.csv", "-o", "m.npz", "--rank", 1, *args) == 1, args
        assert told in capsys.readouterr().err
        assert not Path("m.npz").exists(), args


@pytest.mark.parametrize(
    "what", [["--features", "item=items.csv"], ["--series", "day"], ["--series", "day=local=shop"]]
)
def test_cli_stream_with_knowledge_resumes_to_the_same_bytes(what, data, monkeypatch, capsys):
    data[0].sort_values("day", kind="stable").to_csv("sales.csv", index=False)
    how = ["--rank", 1, "--batch-size", 60, "--checkpoint-every", 1, "--max-iter", 30, *what]
    command = ["stream", "sales.csv", "-o", "m.npz", "-q", *how]
    assert cli(*command) == 0
    whole = Path("m.npz").read_bytes()
    learned = base.learn_arrival

    def interrupted(spec, fit, *args):
        if fit is not None and fit.n_batches == 2:
            raise KeyboardInterrupt
        return learned(spec, fit, *args)

    with monkeypatch.context() as patch:
        patch.setattr(base, "learn_arrival", interrupted)
        assert cli(*[part if part != "m.npz" else "n.npz" for part in command]) == 130
    resumed = [*(part if part != "m.npz" else "n.npz" for part in command), "--resume"]
    before = Path("n.npz").read_bytes()
    assert cli(*resumed[:-3], "--resume") == 1
    assert "was made with knowledge=" in capsys.readouterr().err
    assert Path("n.npz").read_bytes() == before
    assert cli(*resumed) == 0
    assert Path("n.npz").read_bytes() == whole
    model = tc.load("n.npz")
    assert model.labels_[0 if "item" in what[1] else 2].index[-1] == ("111" if "item" in what[1] else DAYS[9])
    if "item" not in what[1]:
        later = pd.DataFrame({"item": "100", "shop": "s1", "day": DAYS[10:]})
        assert model.predict(later, return_std=True)[1].min() > 0.0
