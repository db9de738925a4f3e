"""Models of matrices on the command line: fit --model, info, predict, transform, components."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each

import tensorcep as tc
from tensorcep.cli.main import main

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ratings and tags of users in files, with some cells missing; the ratings of new users; their factors."""
    folder, rng = tmp_path_factory.mktemp("matrices"), np.random.default_rng(0)
    u, v, w = rng.normal(size=(50, 2)), rng.normal(size=(9, 2)), rng.normal(size=(6, 2))
    ratings = pd.DataFrame(u @ v.T + 0.1 * rng.normal(size=(50, 9)), [f"u{i}" for i in range(50)], list("abcdefghi"))
    tags = pd.DataFrame((u @ w.T > 0).astype(int), ratings.index, [f"t{j}" for j in range(6)])
    long = ratings.rename_axis("user").reset_index().melt("user", var_name="item", value_name="rating")
    long = long.sample(frac=0.9, random_state=0)
    old = long["user"].str[1:].astype(int) < 40
    long[old].to_csv(folder / "ratings.csv", index=False)
    long[~old].to_csv(folder / "new.csv", index=False)
    tagged = tags.rename_axis("user").reset_index().melt("user", var_name="tag", value_name="is")
    tagged[tagged["user"].isin(ratings.index[5:40])].to_csv(folder / "tags.csv", index=False)
    long[old][["user", "item"]].head(20).to_csv(folder / "cells.csv", index=False)
    return folder


@pytest.mark.parametrize("model", ["pca", "fa", "gfa", "cmf"])
def test_cli_fits_reads_and_places(model: str, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, also = str(work / f"{model}.npz"), ["--also", f"{work / 'tags.csv'}=logit"] if model in ("gfa", "cmf") else []
    fit = ["fit", str(work / "ratings.csv"), "-o", path, "--model", model, "--rank", "2", *also]
    assert main(fit) == 0
    said = capsys.readouterr().out
    assert "components  2" in said
    assert "explained" in said
    assert main(["info", path]) == 0
    assert "2 components" in capsys.readouterr().out
    assert main(["predict", path, str(work / "cells.csv"), "-o", str(work / "p.csv")]) == 0
    table, long = pd.read_csv(work / "p.csv"), pd.read_csv(work / "ratings.csv")
    assert list(table.columns) == ["user", "item", "mean", "sd", "lower", "upper"]
    both = table.merge(long, on=["user", "item"])
    assert np.corrcoef(both["mean"], both["rating"])[0, 1] > 0.95
    assert main(["transform", path, str(work / "new.csv"), "-o", str(work / "t.csv")]) == 0
    placed = pd.read_csv(work / "t.csv")
    assert len(placed) == 20
    assert placed["row"].nunique() == 10
    assert main(["components", path, "--mode", "0", "-o", str(work / "c.csv")]) == 0
    assert set(pd.read_csv(work / "c.csv")["feature"]) == set("abcdefghi")
    loaded = tc.load(path)
    if model == "cmf":
        assert loaded.matrix_names_ == ["user x item", "user x tag"]
        assert main(["predict", path, str(work / "tags.csv"), "--matrix", "user x tag"]) == 0
        assert "probability" in capsys.readouterr().out.splitlines()[0]
    elif model == "gfa":
        assert loaded.matrix_names_ == ["ratings", "tags"]


def test_cli_fits_limits_and_every_likelihood_of_matrices(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = str(work / "limited.npz"), str(work / "p.csv")
    ratings = pd.read_csv(work / "ratings.csv")
    ratings.assign(rating=ratings["rating"].clip(lower=0.0)).to_csv(work / "raised.csv", index=False)
    words = ["--also", f"{work / 'tags.csv'}=probit", "--lower-limit", "0", "--rank", "2", "--max-iter", "60"]
    assert main(["fit", str(work / "raised.csv"), "-o", path, "--model", "gfa", *words]) == 0
    assert main(["predict", path, str(work / "cells.csv"), "-o", out]) == 0
    table = pd.read_csv(out)
    assert (table["lower"] >= 0.0).all()
    assert "gaussian with a lower limit, probit" in str(tc.load(path).summary())
    capsys.readouterr()
    for more in (["pca", "--likelihood", "probit"], ["pca", "--likelihood", "poisson"]):
        fit = ["fit", str(work / "tags.csv"), "-o", path, "--rank", "1", "--max-iter", "20", "-q", "--model", *more]
        assert main(fit) == 0
        assert main(["predict", path, str(work / "tags.csv"), "-o", out]) == 0
        assert ("probability" in pd.read_csv(out)) == ("probit" in more)
    assert main(["fit", str(work / "tags.csv"), "-o", path, "--model", "pca", "--lower-limit", "0"]) == 1
    assert "--lower-limit is for --model cp, gfa and cmf; got pca" in capsys.readouterr().err


def test_cli_places_new_rows_of_a_tensor(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(work / "cp.npz")
    assert main(["fit", str(work / "ratings.csv"), "-o", path, "--rank", "2", "--method", "vmp", "-q"]) == 0
    assert main(["transform", path, str(work / "new.csv"), "--mode", "user", "-o", str(work / "t.csv")]) == 0
    assert pd.read_csv(work / "t.csv")["row"].nunique() == 10
    assert main(["transform", path, str(work / "new.csv")]) == 1
    assert "--mode must name the mode of the new rows" in capsys.readouterr().err


def test_cli_refuses_what_matrices_do_not_have(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ratings, out = str(work / "ratings.csv"), str(work / "x.npz")
    wrong = {
        "--also is for --model gfa and cmf; got pca": ["--model", "pca", "--also", str(work / "tags.csv")],
        "--also is for --model gfa and cmf; leave": ["--also", str(work / "tags.csv")],
        "--interactions is for --model cp": ["--model", "pca", "--interactions", "cp"],
        "logit, probit, negbinomial, poisson; got ordinal": ["--model", "pca", "--likelihood", "ordinal"],
        "--model fa is for real values": ["--model", "fa", "--likelihood", "negbinomial"],
    }
    for message, given in wrong.items():
        assert main(["fit", ratings, "-o", out, *given]) == 1
        assert message in capsys.readouterr().err


@each(
    ("model", "name", "index", "options"),
    [
        ("pca", "w.csv", "", []),
        ("fa", "n.csv", None, []),
        ("gfa", "d.tsv", "id", ["--decimal", ","]),
        ("pca", "p.parquet", "id", []),
        ("fa", "three.csv", "id", ["--wide"]),
    ],
)
def test_cli_fits_a_wide_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, name: str, index: str | None, options: list[str]
) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(40, 1)) @ rng.normal(size=(1, 5)) + 0.1 * rng.normal(size=(40, 5))
    matrix[rng.random(matrix.shape) < 0.1] = np.nan
    frame = pd.DataFrame(matrix, [f"r{i}" for i in range(40)], list("abcde")).rename_axis(index or None)
    frame = frame.iloc[:, :2] if name == "three.csv" else frame
    path, out = str(tmp_path / name), str(tmp_path / "m.npz")
    if name == "p.parquet":
        frame.to_parquet(path)
    else:
        sep, decimal = ("\t", ",") if name == "d.tsv" else (",", ".")
        frame.to_csv(path, sep=sep, decimal=decimal, index=index is not None)
    assert main(["fit", path, "-o", out, "--model", model, "--rank", "1", "--max-iter", "30", *options]) == 0
    said, fitted = capsys.readouterr().out, tc.load(out)
    assert f"40 x {frame.shape[1]}, {int(frame.notna().sum().sum())} entries" in said
    own = type(fitted)(n_components=1, max_iter=30, random_state=0).fit([frame] if model == "gfa" else frame)
    np.testing.assert_allclose(fitted.variance_explained(), own.variance_explained(), rtol=1e-6)
    assert main(["transform", out, path, *options]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 41
    assert capsys.readouterr().err == ""


def test_cli_says_which_column_of_a_wide_table_is_no_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id,age,sex,score\nr1,1,m,2\nr2,,f,3\n")
    assert main(["fit", str(path), "-o", str(tmp_path / "m.npz"), "--model", "pca"]) == 1
    assert f"column 'sex' of '{path}' has 'm', which is not a number; leave that column out" in capsys.readouterr().err
    path.write_text("id;age;score;size\nr1;1;2,5;1\nr2;;3,5;1\n")
    assert main(["fit", str(path), "-o", str(tmp_path / "m.npz"), "--model", "pca"]) == 1
    assert 'leave that column out, or pass --decimal "," if that is its decimal' in capsys.readouterr().err
