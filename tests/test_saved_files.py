"""Files that earlier versions wrote: read by this one, they predict what the version that wrote them predicted.

A folder under `saved` holds what one version wrote, packed in one archive, the inputs of its predictions, and what it
answered.
"""

from __future__ import annotations

import itertools
import json
import tarfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from tensorcep import CPCountRegressor, CPRegressor, load, read_tensor
from tensorcep.cli import main
from tensorcep.core.store import open_model
from tensorcep.cp.fitted.predict import rows_at
from tensorcep.cp.model.latent import latent_of_points
from tensorcep.cp.settings.registry import params_of_file
from tensorcep.entries.io import read_batches
from tensorcep.factor_models import predict as factor_predict
from tensorcep.factor_models.settings import params_of_file as factor_params_of_file
from tensorcep.linear.settings import EP, IS

SAVED = Path(__file__).parent / "saved"
VERSIONS = tuple(sorted(path.name for path in SAVED.iterdir() if path.is_dir()))
# What the values of entries are called in the inputs.
VALUES = {"CPRegressor": "real", "CPClassifier": "binary", "CPCountRegressor": "counts"}
# A batch that is learned after loading passes through sweeps, in which rounding adds up; a prediction does not.
CLOSE, AFTER_SWEEPS = 1e-10, 1e-8
# Probabilities of labels in factor models were sums over twenty nodes in 0.1; now they are exact.
TWENTY_NODES, BY_NODES = 5e-3, ("inverse", "missing", "training", "reconstruct", "view")
# What noise has a part in, in factor models: 0.1 took 1 / E[precision] for its variance.
WITH_NOISE = ("missing", "training", "view", "inverse", "reconstruct")
# EP of linear models swept one row at a time in 0.1, and stops at a change of 1e-4 of a standard deviation.
BY_ROWS = 1e-5
# Batches of labels and counts are damped only where they need it: they end elsewhere within the tolerance of a batch.
BOLDLY = 1e-2
# Intervals of values at a limit were those of a pool of evenly spaced quantiles in 0.1; now they are the mixture's.
OF_POOL = 2e-2


@cache
def arrays(version: str, name: str) -> dict[str, np.ndarray]:
    """The arrays of the inputs or of the expectations."""
    with np.load(SAVED / version / name, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


@cache
def contents(version: str) -> dict[str, bytes]:
    """The saved files, byte by byte as they were written."""
    with tarfile.open(SAVED / version / "files.tar.xz") as archive:
        return {item.name: archive.extractfile(item).read() for item in archive.getmembers()}  # type: ignore[union-attr]


def unpacked(version: str, name: str, folder: Path) -> Path:
    """A saved file, in a folder of the test."""
    (folder / name).write_bytes(contents(version)[name])
    return folder / name


@cache
def files(version: str) -> tuple[str, ...]:
    """The saved files that there are expectations for."""
    return tuple(sorted({key.split("/")[0] for key in arrays(version, "expected.npz")}))


CASES = [(version, name) for version in VERSIONS for name in files(version)]
MODELS = [case for case in CASES if case[1].startswith("model-")]
TENSORS = [case for case in CASES if case[1].startswith("tensor-")]
CHECKPOINTS = [(version, name) for version, name in MODELS if f"{name}/resumed" in arrays(version, "expected.npz")]


# What is asked of a model: functions of it and of the inputs. Those of CP models come first.


def labelled(model: Any, coords: np.ndarray) -> pd.DataFrame:
    """Entries by the labels of a model all of whose modes have some."""
    columns = {found.name: found.index.take(coords[:, k]) for k, found in enumerate(model.labels_)}
    return pd.DataFrame(columns)


def at(model: Any, coords: np.ndarray) -> Any:
    """What a model takes for these rows: the rows, or their labels, None for rows that it does not have."""
    if all(found is None for found in model.labels_):
        return coords
    columns: dict[int, Any] = {}
    for k, (found, rows) in enumerate(zip(model.labels_, coords.T, strict=True)):
        known = rows if found is None else [found[i] if i < len(found) else None for i in rows.tolist()]
        columns[k] = pd.Series(known, dtype=None if found is None else object)
    return pd.DataFrame(columns)


def learn_more(model: Any, inputs: dict[str, np.ndarray], time: float | None = None) -> Any:
    """Predictions after one more batch, some of whose rows are new."""
    y = inputs[f"batch_{VALUES[type(model).__name__]}"]
    X: Any = inputs["batch_coords"]
    if all(found is not None for found in model.labels_):
        X = pd.DataFrame({found.name: inputs[f"batch_names_{k}"] for k, found in enumerate(model.labels_)})
        for found in model.labels_:  # 0.1 took numbers for new rows where labels are text
            if isinstance(found[0], str) and not isinstance(X[found.name][0], str):
                X[found.name] = "new " + X[found.name].astype(str)
    elif model.shape is not None:
        keep = (np.array(model.shape) > X).all(axis=1)
        X, y = X[keep], y[keep]
    model.partial_fit(X, y, time=time)
    return np.concatenate(model.predict_latent(at(model, inputs["coords"])))


def points(model: Any, inputs: dict[str, np.ndarray], name: str = "points") -> Any:
    """Feature vectors, of the kind that the model was fitted to."""
    X = inputs[name]
    if hasattr(model, "feature_names_in_"):
        return pd.DataFrame(X, columns=model.feature_names_in_)
    return X


def learn_more_points(model: Any, inputs: dict[str, np.ndarray]) -> Any:
    y = model.classes_[inputs["batch_codes"]]
    model.partial_fit(points(model, inputs, "batch_points"), y)
    return np.concatenate(model.predict_latent(points(model, inputs)))


def rows(model: Any, inputs: dict[str, np.ndarray]) -> Any:
    """New rows of the matrix, with missing cells."""
    X = inputs[f"rows_{getattr(model, 'likelihood', 'gaussian')}"]
    if hasattr(model, "feature_names_in_"):
        return pd.DataFrame(X, columns=model.feature_names_in_)
    return X


def views(model: Any, inputs: dict[str, np.ndarray]) -> list[Any]:
    """New rows of the views, the last view left out."""
    kinds = model.likelihood if isinstance(model.likelihood, (list, tuple)) else [model.likelihood] * 2
    return [inputs[f"rows_{kind}"] for kind in kinds[:-1]] + [None]


def flat(items: Any) -> np.ndarray:
    return np.concatenate([np.ravel(item) for item in items])


def made(model: Any) -> str:
    """The class and the parameters, tuples as lists, and the link of a classifier."""
    params = {"class": type(model).__name__, **model.get_params(deep=False)}
    return json.dumps({**params, "link_": getattr(model, "link_", None)}, sort_keys=True, default=str)


def relevance_of_0_1(model: Any) -> np.ndarray:
    """What 0.1 called so: draws were averaged as they were, and a main effect counted with its mean."""
    mean, first = model._result.belief.moments()[0], np.cumsum((0, *model.shape_))
    seen = [a + np.flatnonzero(model.posterior_.seen[a:b]) for a, b in itertools.pairwise(first)]
    product = np.prod([np.mean(mean[rows] ** 2, axis=0) for rows in seen], axis=0)
    return np.asarray(product / product.sum())


def split_r_hat(model: Any, coords: np.ndarray) -> np.ndarray:
    """What 0.1 called R-hat of the entries of a sampler's model, without ranks."""
    draws = latent_of_points(model._result.belief.mean, rows_at(model._fitted, coords)).reshape(
        model._result.belief.n_chains, -1, len(coords)
    )
    half = draws.shape[1] // 2
    if half < 2:
        return np.full(len(coords), np.nan)
    parts = np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])
    within, between = parts.var(axis=1, ddof=1).mean(axis=0), parts.mean(axis=1).var(axis=0, ddof=1)
    return np.asarray(np.sqrt((half - 1.0) / half + between / within))


def facts(model: Any) -> np.ndarray:
    """Fitted attributes of a CP model that are numbers."""
    found = [model.n_iter_, model.converged_, model.n_samples_seen_, model.n_batches_, *model.shape_]
    found += [model.n_revisited_, model.n_revisits_skipped_, *relevance_of_0_1(model)]
    for name in ("noise_precision_", "lower_limit_", "zero_rate_"):
        value = getattr(model, name, None)
        found.append(np.nan if value is None else value)
    return np.array(found, dtype=float)


CALLS: dict[str, Callable[[Any, dict[str, np.ndarray]], Any]] = {
    "made": lambda m, d: made(m),
    "facts": lambda m, d: facts(m),
    "predict": lambda m, d: m.predict(at(m, d["coords"])),
    "std": lambda m, d: m.predict(at(m, d["coords"]), return_std=True)[1],
    "interval": lambda m, d: m.predict_interval(at(m, d["coords"]), 0.8),
    "proba": lambda m, d: m.predict_proba(at(m, d["coords"])),
    "decision": lambda m, d: m.decision_function(at(m, d["coords"])),
    "latent": lambda m, d: np.concatenate(m.predict_latent(at(m, d["coords"]))),
    "log_score": lambda m, d: m.log_score(at(m, d["coords"]), d[f"new_{VALUES[type(m).__name__]}"]),
    "unknown": lambda m, d: np.concatenate(m.predict_latent(at(m, d["unknown_coords"]))),
    "chains": lambda m, d: split_r_hat(m, at(m, d["coords"])),
    "bound": lambda m, d: np.array(m.lower_bound_),
    "labels": lambda m, d: np.array([str(label) for found in m.labels_ if found is not None for label in found]),
    "labelled": lambda m, d: m.predict(labelled(m, d["coords"])),
    "after": learn_more,
    "after_forget": lambda m, d: learn_more(m, d, time=7.5),
    "point_latent": lambda m, d: np.concatenate(m.predict_latent(points(m, d))),
    "point_proba": lambda m, d: m.predict_proba(points(m, d)),
    "point_sparse": lambda m, d: m.predict_proba(sparse.csr_array(d["points"])),
    "point_predict": lambda m, d: m.predict(points(m, d)),
    "coef": lambda m, d: flat([m.coef_, m.intercept_]),
    "evidence": lambda m, d: np.array(m.log_evidence_),
    "after_points": learn_more_points,
    "transform": lambda m, d: flat(m.transform(rows(m, d), return_cov=True)),
    "score_samples": lambda m, d: m.score_samples(rows(m, d)),
    "missing": lambda m, d: flat(m.predict_missing(rows(m, d), return_std=True)),
    "inverse": lambda m, d: m.inverse_transform(d["scores"]),
    "training": lambda m, d: flat([m.reconstruct(), *m.predict_latent()]),
    "summary": lambda m, d: flat([m.components_, m.explained_variance_, m.relevance_, m.mean_]),
    "reconstruct": lambda m, d: flat([m.reconstruct(k) for k in range(len(m.explained_variance_))]),
    "shares": lambda m, d: flat([m.explained_variance_, m.active_, *m.relevance_.values()]),
    "factors": lambda m, d: flat(m.factors_.values()),
    "view_transform": lambda m, d: flat(m.transform(views(m, d), return_cov=True)),
    "view": lambda m, d: m.predict_view(views(m, d), len(m.loadings_) - 1),
    "shared": lambda m, d: m.shared_,
}
LEARNING = ("after", "after_forget", "after_points")


def answer(call: str, model: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """What the model says; that a batch was not learned to the end, or rows are unknown, is as it should be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return np.asarray(CALLS[call](model, inputs))


def answer_of_0_1(call: str, model: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The same where 1 / E[precision] is the variance of noise in factor models; of values no less is said now."""
    found = answer(call, model, inputs)
    if call not in WITH_NOISE:
        return found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factor_predict, "MOST_DOUBT", 1.0)
        before = answer(call, model, inputs)
    if all(link.likelihood == "gaussian" for link in model._links):
        assert np.all(found >= before - CLOSE * (1.0 + np.abs(before))), call
    return before


def compare(found: np.ndarray, expected: np.ndarray, rtol: float, what: str) -> None:
    assert found.shape == expected.shape, what
    if expected.dtype.kind in "US":
        assert found.tolist() == expected.tolist(), what
    else:
        atol = 0.5 * rtol if rtol == BOLDLY else 1e-2 * rtol
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=what)


def check_answers(version: str, name: str, path: Path, rtol: float) -> None:
    """Compare all that the model in a file answers; the batch that it learns in the end is the last question."""
    expected, inputs = arrays(version, "expected.npz"), arrays(version, "inputs.npz")
    calls = {key.split("/")[1] for key in expected if key.startswith(f"{name}/")} - {"resumed"}
    model = load(path)
    for call in sorted(calls, key=lambda call: (call in LEARNING, call)):
        found, then = answer_of_0_1(call, model, inputs), expected[f"{name}/{call}"]
        if call == "made":  # a later version may have more parameters
            now, before = json.loads(found.item()), json.loads(then.item())
            if "interactions" in before:  # 0.1 had a method's settings among the parameters of CP models
                before = params_of_file(before, model.method_)
                before["method"] = str(before["method"])
            elif "ard" in before:  # and of factor models
                before = factor_params_of_file(before)
                before["method"] = str(before["method"])
            assert {key: now.get(key) for key in before} == before
        else:
            if call == "chains":
                then = then[: len(found)]  # behind it lies the effective size, which 0.1 estimated in another way
            if call == "interval" and isinstance(model, CPCountRegressor):  # 0.1 pooled quantiles, between two counts
                then = np.where(found == np.floor(then), np.floor(then), then)
            if call == "interval" and getattr(model, "lower_limit_", None) is not None:
                np.testing.assert_allclose(found, then, atol=OF_POOL)
                continue
            compare(found, then, tolerance(model, call, rtol), f"{version}/{name}: {call}")


def tolerance(model: Any, call: str, rtol: float) -> float:
    """The relative difference that an answer may have."""
    if call in BY_NODES and any(link.likelihood == "bernoulli" for link in getattr(model, "_links", ())):
        return TWENTY_NODES
    if call == "after_points" and getattr(model, "method", None) in ("ep", "is", EP(), IS()):
        return BY_ROWS
    if call in LEARNING and getattr(model, "method_", None) == "cep" and not isinstance(model, CPRegressor):
        return BOLDLY
    return AFTER_SWEEPS if call in LEARNING else rtol


@pytest.mark.parametrize(("version", "name"), MODELS)
def test_saved_model_predicts_what_it_did_and_so_it_does_saved_again(version: str, name: str, tmp_path: Path) -> None:
    path = unpacked(version, name, tmp_path)
    check_answers(version, name, path, CLOSE)
    load(path).save(tmp_path / "again.npz")
    check_answers(version, name, tmp_path / "again.npz", CLOSE)


def test_saved_tensors_hold_the_same_entries(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    assert len(TENSORS) >= 13
    for version, name in TENSORS:
        expected = arrays(version, "expected.npz")
        tensor = read_tensor(unpacked(version, name, tmp_path))
        compare(tensor.coords, expected[f"{name}/coords"], 0.0, name)
        compare(tensor.values, expected[f"{name}/values"], 0.0, name)
        compare(np.array(tensor.shape), expected[f"{name}/shape"], 0.0, name)
        compare(np.array(tensor.zero_rate), expected[f"{name}/zero_rate"], 0.0, name)
        names = [str(label) for found in tensor.labels if found is not None for label in [found.name, *found]]
        compare(np.array(names), expected[f"{name}/labels"], 0.0, name)


@pytest.mark.parametrize(("version", "name"), CHECKPOINTS)
def test_saved_checkpoint_is_resumed_by_the_command(
    version: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command goes on from the checkpoint, and ends where a program ends that goes on with the model and the file.

    That is near where the run of 0.1 that was not interrupted ended: what batches tell of the noise counts by how well
    rows are known, which 0.1 did not heed.
    """
    expected, inputs = arrays(version, "expected.npz"), arrays(version, "inputs.npz")
    stem = name.removeprefix("model-").removesuffix(".npz")
    unpacked(version, name, tmp_path).rename(tmp_path / "model.npz")
    unpacked(version, "stream-data.csv", tmp_path).rename(tmp_path / "data.csv")
    for file in ("aside.csv", "trace.csv"):
        unpacked(version, f"{stem}-{file}", tmp_path).rename(tmp_path / file)
    options = json.loads(str(inputs[f"{stem}_options"]))
    begun, size = load(tmp_path / "model.npz"), int(options[options.index("--batch-size") + 1])
    position = open_model(tmp_path / "model.npz").header["progress"]["position"]
    aside: list[int] = []
    begun.stream(
        read_batches(tmp_path / "data.csv", size, start=position, bad_line=lambda _, number, *__: aside.append(number))
    )
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert main([*options, "--resume"]) == 0
    assert "resumed     after 30 entries, 2 batches" in capsys.readouterr().out
    model = load(tmp_path / "model.npz")
    found = answer("latent", model, inputs)
    np.testing.assert_allclose(found, answer("latent", begun, inputs), rtol=AFTER_SWEEPS, atol=1e-2 * AFTER_SWEEPS)
    assert model.n_samples_seen_ == begun.n_samples_seen_ > 30
    np.testing.assert_allclose(found, expected[f"{name}/resumed"], rtol=0.03, atol=5e-3)
