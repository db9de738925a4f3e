"""Fits on scratch, within a bound of memory, of files, and from a share of the entries."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each

import tensorcep as tc
from tensorcep.cp.fit import outcome
from tensorcep.cp.model import memmap
from tensorcep.cp.settings import Gibbs, PGGibbs

AVERAGED = tc.CEP(messages="averaged", n_starts=2, anneal=2)
SHAPE, NAMES = (60, 40, 8), ["user", "item", "hour"]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@cache
def data() -> tuple[np.ndarray, np.ndarray]:
    """Cells (3000, 3), none of them twice, and half stars."""
    rng = np.random.default_rng(2)
    coords = np.stack(np.unravel_index(rng.permutation(np.prod(SHAPE))[:3000], SHAPE), axis=1)
    factors = [rng.normal(0.4, 1.0, (n, 2)) for n in SHAPE]
    f = np.prod([own[at] for own, at in zip(factors, coords.T, strict=True)], axis=0).sum(axis=1)
    return coords, np.round(2.0 * (3.0 + f + 0.3 * rng.standard_normal(3000))) / 2.0


def frame() -> pd.DataFrame:
    coords, y = data()
    columns: dict[str, Any] = {"user": [f"u{i}" for i in coords[:, 0]], "item": [f"i{i}" for i in coords[:, 1]]}
    return pd.DataFrame({**columns, "hour": coords[:, 2], "y": y})


def model(method: Any = "vmp", **params: Any) -> tc.CPRegressor:
    return tc.CPRegressor(2, **{"method": method, "max_iter": 12, "random_state": 1, **params})


def trace(found: tc.CPRegressor) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in found.trace_.items() if name != "seconds"}


@pytest.mark.parametrize("method", ["auto", "vmp", Gibbs(weights="equal", noise="sampled", n_chains=1)])
def test_fit_on_scratch_has_the_bits_of_memory(method: Any, tmp_path: Path) -> None:
    coords, y = data()
    memory, scratch = (model(method).fit(coords, y, scratch=place) for place in (None, tmp_path))
    np.testing.assert_array_equal(memory.predict(coords, return_std=True), scratch.predict(coords, return_std=True))
    np.testing.assert_equal(trace(memory), trace(scratch))
    assert memory.diagnostics_ == scratch.diagnostics_
    assert memory.get_params()["method"] == scratch.get_params()["method"]
    assert os.listdir(tmp_path) == []


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many pieces of few entries as many entries would have."""
    monkeypatch.setattr(memmap, "PIECE", 64)


def with_sites(kind: str, method: Any) -> tuple[Any, np.ndarray]:
    """A model whose entries have auxiliary variables, or messages, and values for it."""
    how: dict[str, Any] = {"method": method, "max_iter": 6, "random_state": 1}
    y = data()[1]
    if kind == "values":
        return tc.CPRegressor(2, **how), y
    if kind in ("levels", "logistic levels"):
        link = "probit" if kind == "levels" else "logit"
        return tc.CPOrdinalClassifier(2, link=link, **how), np.clip(np.round(y), 1.0, 4.0)
    if kind in ("counts", "poisson", "negbinomial"):
        counts = np.floor(np.exp(y / (4.0 if kind == "poisson" else 2.0)))  # of wilder ones Poisson's law is too sure
        return tc.CPCountRegressor(2, likelihood="auto" if kind == "counts" else kind, **how), counts
    if kind == "limit":
        return tc.CPRegressor(2, lower_limit=2.5, **how), np.maximum(y, 2.5)
    return tc.CPClassifier(2, link=kind, **how), (y > 3.0).astype(int)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("logit", "pg-vb"),
        ("logit", PGGibbs(n_chains=2)),
        pytest.param("auto", "auto", marks=pytest.mark.slow),
        pytest.param("probit", Gibbs(n_chains=2), marks=pytest.mark.slow),
        pytest.param("auto", "vmp", marks=pytest.mark.slow),
        pytest.param("limit", "auto", marks=pytest.mark.slow),
        pytest.param("limit", "vmp", marks=pytest.mark.slow),
        pytest.param("values", AVERAGED, marks=pytest.mark.slow),
        ("logit", AVERAGED),
        pytest.param("counts", "auto", marks=pytest.mark.slow),
        ("negbinomial", "pg-vb"),
        ("levels", "vmp"),
        pytest.param("levels", Gibbs(n_chains=2), marks=pytest.mark.slow),
        pytest.param("levels", AVERAGED, marks=pytest.mark.slow),
        pytest.param("logistic levels", AVERAGED, marks=pytest.mark.slow),
        pytest.param("probit", tc.CEP(messages="averaged", order=2, warm_up=2), marks=pytest.mark.slow),
        pytest.param("poisson", AVERAGED, marks=pytest.mark.slow),
        pytest.param("negbinomial", AVERAGED, marks=pytest.mark.slow),
        pytest.param("negbinomial", "vmp", marks=pytest.mark.slow),
        pytest.param("negbinomial", tc.PGVB(dispersion_mode=2), marks=pytest.mark.slow),
        pytest.param("poisson", "vmp", marks=pytest.mark.slow),
    ],
)
def test_fit_with_auxiliary_variables_on_scratch_has_the_bits_of_memory(kind: str, method: Any, tmp_path: Path) -> None:
    coords, found = data()[0], []
    for place in (None, tmp_path):
        fitted, y = with_sites(kind, method)
        found.append(fitted.fit(coords, y, scratch=place))
    memory, scratch = found
    for one, other in zip(memory.factors_, scratch.factors_, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(memory.predict_latent(coords), scratch.predict_latent(coords))
    np.testing.assert_equal(trace(memory), trace(scratch))
    assert memory.diagnostics_ == scratch.diagnostics_
    assert os.listdir(tmp_path) == []


def test_fit_on_scratch_is_saved_and_loaded(tmp_path: Path) -> None:
    fitted = model().fit(frame(), value="y", scratch=tmp_path)
    fitted.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    cells = frame()[NAMES][:50]
    np.testing.assert_array_equal(fitted.predict(cells), again.predict(cells))
    with pytest.raises(ValueError, match="fits on scratch and files of earlier versions do not keep"):
        again.recommend("item", {"user": "u3", "hour": 2}, exclude="seen")


def written(folder: Path, kind: str, reverse: bool = False) -> str:
    """The entries in three files, in another order where `reverse`."""
    table = frame()
    for n, part in enumerate(np.array_split(np.arange(len(table))[:: -1 if reverse else 1], 3)):
        path = folder / f"{n}.{kind}"
        if kind == "parquet":
            table.iloc[part].to_parquet(path, index=False)
        else:
            table.iloc[part].to_csv(path, index=False)
    return str(folder / f"*.{kind}")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_fit_of_files_is_that_of_their_table_in_any_order(kind: str, tmp_path: Path) -> None:
    expected, cells, folders = model().fit(frame(), value="y"), frame()[NAMES], [tmp_path / "a", tmp_path / "b"]
    for reverse, folder in enumerate(folders):
        folder.mkdir()
        pattern = written(folder, kind, bool(reverse))
        for source, place in ((pattern, None), ([pattern] if reverse else str(folder), str(tmp_path))):
            found = model().fit(source, value="y", scratch=place)
            np.testing.assert_array_equal(found.predict(cells), expected.predict(cells))
            assert [list(own) for own in found.labels_] == [list(own) for own in expected.labels_]


def test_levels_in_files_are_those_of_their_table(tmp_path: Path) -> None:
    found: list[Any] = []
    table = frame().assign(y=lambda part: np.clip(np.round(part["y"]), 1.0, 4.0))
    table.to_parquet(tmp_path / "all.parquet", index=False)
    for source, place in ((table, None), (tmp_path / "all.parquet", tmp_path)):
        levels = tc.CPOrdinalClassifier(2, method="vmp", max_iter=6, random_state=1)
        found.append(levels.fit(source, value="y", scratch=place))
    assert found[0].classes_.tolist() == found[1].classes_.tolist() == [1.0, 2.0, 3.0, 4.0]
    cells = table[NAMES][:50]
    np.testing.assert_array_equal(found[0].predict_proba(cells), found[1].predict_proba(cells))


def test_fit_of_tns_files_counts_rows(tmp_path: Path) -> None:
    coords, y = data()
    tc.write_tensor(tc.SparseTensor(coords, y, SHAPE), tmp_path / "a.tns")
    expected = model(shape=(60, 40, 9)).fit(coords, y)
    found = model(shape=(60, 40, 9)).fit(tmp_path / "a.tns", scratch=tmp_path)
    np.testing.assert_array_equal(found.predict(coords), expected.predict(coords))
    with pytest.raises(ValueError, match="shape must hold the rows of the files"):
        model(shape=(9, 40, 9)).fit(tmp_path / "a.tns", scratch=tmp_path)


def test_fit_of_files_refuses_what_they_lack(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        model().fit(str(tmp_path / "*.csv"))
    frame().assign(y=np.nan).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match="line 2"):
        model().fit(tmp_path / "a.csv", scratch=tmp_path)
    frame().assign(user=None).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="line 1 of '.*' has a missing label; drop it or fill it in"):
        model().fit(tmp_path / "b.parquet", value="y", scratch=tmp_path)
    with pytest.raises(ValueError, match="value=None, to count lines, needs all of them in memory"):
        model().fit(tmp_path / "b.parquet", value=None, scratch=tmp_path)
    frame()[["user", "item", "y"]].to_parquet(tmp_path / "c.parquet")
    with pytest.raises(ValueError, match="the files must have the same columns"):
        model().fit([tmp_path / "c.parquet", tmp_path / "b.parquet"], value="y", scratch=tmp_path)


def test_fit_within_memory_stays_there_where_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coords, y = data()
    assert model().fit(coords, y, memory="1GB", scratch=tmp_path)._result.cells is not None
    assert model().fit(coords, y, memory="1GB")._result.cells is not None
    with pytest.raises(ValueError, match=r"takes about 0.30\d GB in memory, of which memory= allows 0.05 GB; allow"):
        model().fit(coords, y, memory="50 MB")
    with pytest.raises(ValueError, match=r"by 'vmp' takes about .* GB of memory, of which memory= allows 0.05 GB"):
        model().fit(coords, y, memory="50 MB", scratch=tmp_path)
    monkeypatch.setattr(outcome, "_bytes_in_memory", lambda *_: 2e9)  # as many more entries would take
    assert model().fit(coords, y, memory="1GB", scratch=tmp_path)._result.cells is None


def test_fit_on_a_disk_that_is_full_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    fresh = model()
    with pytest.raises(OSError, match="are needed; give another folder, or make room"):
        fresh.fit(*data(), scratch=tmp_path)
    assert "posterior_" not in vars(fresh)


def test_fit_that_is_interrupted_leaves_no_file_and_no_model(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def stop(*_: Any) -> None:
        seen.append(os.listdir(tmp_path))
        raise KeyboardInterrupt

    broken = model(callbacks=stop)
    with pytest.raises(KeyboardInterrupt):
        broken.fit(*data(), scratch=tmp_path)
    assert seen == [[]]
    assert os.listdir(tmp_path) == []
    assert "posterior_" not in vars(broken)


@each(
    ("refused", "options", "match"),
    [
        (model("cep"), {}, "cannot take .* from scratch; use messages='averaged'"),
        (model(noise="entry"), {}, "got noise that differs"),
        (model("cep", lower_limit=0.0), {}, "'cep' .*cannot take 'tobit' entries from scratch"),
        (tc.CPClassifier(2, method="gibbs", link="logit"), {}, "'gibbs' cannot take 'logit' entries from scratch"),
        (tc.CPCountRegressor(2, likelihood="binomial"), {"n_trials": np.ones(3000)}, "does not go with n_trials="),
        (tc.CPCountRegressor(2), {"exposure": np.ones(3000)}, "scratch= does not go with exposure="),
        (tc.CPCountRegressor(2, zero_inflation=True), {}, "got structural zeros"),
        (tc.CPCountRegressor(2, likelihood="binomial"), {}, "got the likelihood 'binomial'"),
        (
            tc.CPOrdinalClassifier(2, method="laplace"),
            {},
            "'laplace' cannot take 'ordinal_probit' entries from",
        ),
        (model(), {"sample_weight": np.ones(3000)}, "scratch= does not go with sample_weight="),
        (model(), {"fixed_modes": "user"}, "scratch= does not go with fixed_modes="),
    ],
)
def test_fit_on_scratch_refuses_what_it_cannot(refused: Any, options: Any, match: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=match):
        refused.fit(*data(), scratch=tmp_path, **options)
