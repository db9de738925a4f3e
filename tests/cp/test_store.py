"""Saved models: the same bits back, nothing pickled, and a clear sentence about every file that is not right."""

from __future__ import annotations

import copy
import json
import os

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.data import NAMES, SHAPE, entries, fitted, new

import tensorcep as tc
from tensorcep.core.persist import models as persist
from tensorcep.cp.posterior import Dispersion, Draws, PointEstimate

EVERY = each("name", NAMES)


def whole(folder):
    """The file of a model, in this folder."""
    path = folder / "model.npz"
    fitted("regressor").save(path)
    return path


@pytest.fixture
def saved(tmp_path):
    return whole(tmp_path)


def edit(path, arrays=None, drop=(), **header):
    """Write the file again with other arrays, without some, or with other header fields (None removes one).

    Fields of the fitted record have their path as name. The file then has no checksum, as earlier ones have none.
    """
    with np.load(path, allow_pickle=False) as archive:
        content = {name: archive[name] for name in archive.files if name not in drop}
    fields = json.loads(content["header"].tobytes())
    fields.pop("checksum", None)
    for where, value in header.items():
        *parents, last = where.split(".")
        place = fields
        for name in parents:
            place = place[name]
        place[last] = value
        if value is None:
            del place[last]
    content["header"] = np.frombuffer(json.dumps(fields).encode(), dtype=np.uint8)
    np.savez(path, **{**content, **(arrays or {})})


def refused(path, *words):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the words are checked below
        tc.load(path)
    text = str(caught.value)
    assert "model.npz" in text
    assert "\n" not in text
    for word in words:
        assert word in text, text
    return text


@EVERY
def test_load_gives_the_same_predictions_bit_by_bit(name, tmp_path):
    model, (X, y) = fitted(name), entries(name)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
    np.testing.assert_array_equal(again.log_score(X, y), model.log_score(X, y))
    np.testing.assert_array_equal(again.sample_y(X[:9], 4, 0), model.sample_y(X[:9], 4, 0))
    for one, other in zip(again.factor_covs_, model.factor_covs_, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.warns(UserWarning, match="prior is used"):
        unknown = again.predict_latent([[99, 0, 0]])
    with pytest.warns(UserWarning, match="prior is used"):
        np.testing.assert_array_equal(unknown, model.predict_latent([[99, 0, 0]]))


@EVERY
def test_load_restores_attributes_and_parameters(name, tmp_path):
    model = new(name, shape=SHAPE, n_jobs=2).fit(*entries(name))
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert again.get_params() == model.get_params()
    for attribute in ("n_iter_", "converged_", "shape_", "labels_", "n_features_in_"):
        assert getattr(again, attribute) == getattr(model, attribute)
    assert set(again.trace_) == set(model.trace_)
    for key, values in model.trace_.items():
        np.testing.assert_array_equal(again.trace_[key], values)
    again.fit(*entries(name))
    np.testing.assert_array_equal(again.posterior_.eta, model.posterior_.eta)


def other_results(rng):
    """What methods return besides Gaussian posteriors with noise, for the shape of the test data."""
    n, seen = sum(SHAPE), np.ones(sum(SHAPE), dtype=bool)
    rows = rng.standard_normal((2, 5, n, 2))
    per_row = Dispersion(1, rng.gamma(2.0, size=SHAPE[1]), rng.gamma(2.0, size=SHAPE[1]))
    return {
        "draws": Draws(SHAPE, 2, rows, rng.gamma(2.0, size=(2, 5, 1)), None, seen),
        "draws by row": Draws(SHAPE, 2, rows, rng.gamma(2.0, size=(2, 5, SHAPE[2])), 2, seen),
        "draws without a parameter": Draws(SHAPE, 2, rows, None, None, seen),
        "draws with unknown rows": Draws(SHAPE, 2, rows, None, None, seen, rng.random((2, 5, len(SHAPE), 2))),
        "point": PointEstimate(SHAPE, 2, rows[0, 0], 2.5, seen),
        "dispersion": fitted("regressor").posterior_._replace(noise=None, dispersion=per_row),
    }


KINDS = ["draws", "draws by row", "draws without a parameter", "draws with unknown rows", "point", "dispersion"]


@each("kind", KINDS)
def test_load_restores_what_every_kind_of_method_returns(kind, tmp_path, rng):
    model = new("regressor", shape=SHAPE).fit(*entries("regressor"))
    model._set(model._result.with_posterior(other_results(rng)[kind]))
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    X, y = entries("regressor")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.log_score(X, y), model.log_score(X, y))
    with pytest.warns(UserWarning, match="prior is used"):
        np.testing.assert_array_equal(again.predict(X + 9), model.predict(X + 9))
    if kind == "point":
        with pytest.raises(ValueError, match="return_std=True needs a posterior, and this fit is a point"):
            again.predict(X, return_std=True)
        with pytest.raises(ValueError, match="sample_posterior needs a posterior"):
            again.sample_posterior()
    else:
        np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
        np.testing.assert_array_equal(again.sample_y(X[:9], 4, 0), model.sample_y(X[:9], 4, 0))
    if kind.startswith("draws") or kind == "point":
        edit(tmp_path / "model.npz", arrays={"posterior.rows": np.ones((2, 5, 3, 2))})
        refused(tmp_path / "model.npz", "do not fit its shape")


def test_load_of_an_unknown_kind_of_result(saved):
    edit(saved, **{"fitted.posterior.record": "oracle"})
    refused(saved, "unknown kind 'oracle'")


def test_load_restores_labels(tmp_path):
    X, y = entries("regressor")
    frame = pd.DataFrame(
        {
            "who": np.char.add("ü", X[:, 0].astype(str)),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(X[:, 1], "D"),
        }
    ).assign(dose=X[:, 2] / 2, y=y)
    model = new("regressor").fit(tc.SparseTensor.from_pandas(frame, ["who", "day", "dose"]))
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert again.labels_ == model.labels_
    assert [found.name for found in again.labels_] == ["who", "day", "dose"]
    wanted = frame[["who", "day", "dose"]]
    np.testing.assert_array_equal(again.predict(wanted), model.predict(wanted))


def test_saved_file_holds_no_pickle(saved):
    with np.load(saved, allow_pickle=False) as archive:
        assert all(not archive[name].dtype.hasobject for name in archive.files)
        header = json.loads(archive["header"].tobytes())
    assert header["kind"] == "tensorcep.model"
    assert header["version"] == persist.VERSION


def test_save_leaves_out_what_json_cannot_hold(tmp_path):
    model = new("regressor", callbacks=[lambda *_: None], random_state=np.random.default_rng(0))
    model.fit(*entries("regressor")).save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert again.callbacks is None
    assert again.random_state is None


def test_model_with_a_prior_record_can_be_fitted_again_after_loading(tmp_path):
    X, y = entries("regressor")
    model = new("regressor", prior=tc.Prior([0.3] * 3, [1.0] * 3)).fit(X, y)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert again.prior == "auto"  # a file keeps what was fitted, not the record
    assert again.fit(X, y).score(X, y) > 0.8


@each("keep", [0.1, 0.5, 0.9, 0.999])
def test_load_refuses_a_truncated_file(tmp_path, keep):
    saved = whole(tmp_path)
    data = saved.read_bytes()
    saved.write_bytes(data[: int(keep * len(data))])
    refused(saved, "truncated or damaged", "write it again")


def test_load_refuses_a_damaged_file(saved):
    data = bytearray(saved.read_bytes())
    data[data.index(b"posterior.Lam.npy") + 200] ^= 0xFF  # within the numbers, which have a checksum
    saved.write_bytes(bytes(data))
    refused(saved, "truncated or damaged")


def test_load_refuses_files_that_are_not_ours(tmp_path):
    path = tmp_path / "model.npz"
    path.write_text("id,value\n1,2\n")
    refused(path, "is not a tensorcep.model file")
    path.write_bytes(b"")
    refused(path, "is not a tensorcep.model file")
    np.savez(path, a=np.arange(3))
    refused(path, "has no tensorcep header")
    with path.open("wb") as handle:
        np.save(handle, np.arange(3))
    refused(path, "is not a tensorcep.model file")
    np.savez(path, header=np.array([{"kind": "tensorcep.model"}], dtype=object))
    refused(path, "model.npz")


def test_load_refuses_a_saved_tensor(tmp_path):
    X, y = entries("regressor")
    tc.write_tensor(tc.SparseTensor(X, y), tmp_path / "model.npz")
    refused(tmp_path / "model.npz", "is a tensorcep.tensor file, not a tensorcep.model file")


def test_load_refuses_a_newer_version(saved):
    edit(saved, version=persist.VERSION + 1)
    refused(saved, f"format version {persist.VERSION + 1}", "update tensorcep")


@each("kind", ["tensorcep.model", "tensorcep.factor_model"])
def test_load_refuses_format_version_1(tmp_path, kind):
    saved = whole(tmp_path)
    edit(saved, kind=kind, version=1)
    refused(saved, "holds a model of format version 1", "only version 2; fit the model again and save it.")


@each("projection", ["kl", "w2"])
def test_files_of_cep_with_a_projection_load_if_it_was_the_usual_one(tmp_path, projection):
    path, model = tmp_path / "model.npz", new("regressor", method=tc.CEP(damping=0.5)).fit(*entries("regressor"))
    model.save(path)
    edit(path, **{"params.method.projection": projection})
    if projection == "kl":
        assert tc.load(path).method == model.method
    else:
        refused(path, "CEP(projection='w2')", "no longer has", "fit the model again")


def test_load_refuses_an_unknown_class(saved):
    edit(saved, **{"class": "CPDreamer"})
    refused(saved, "'CPDreamer'", "CPRegressor", "update tensorcep")


ARRAYS = ["posterior.Lam", "posterior.eta", "posterior.seen", "unseen_mean", "unseen_cov"]


@each("missing", ARRAYS)
def test_load_refuses_a_file_without_an_array(tmp_path, missing):
    saved = whole(tmp_path)
    edit(saved, drop=[missing])
    refused(saved, "not a complete model", missing)


POSTERIOR = ["posterior.shape", "posterior.rank", "posterior.noise"]


@each("missing", ["class", "params", *POSTERIOR, "n_iter", "converged", "labels", "stream"])
def test_load_refuses_a_header_without_a_field(tmp_path, missing):
    saved = whole(tmp_path)
    edit(saved, **{missing if missing in ("class", "params") else f"fitted.{missing}": None})
    refused(saved, "not a complete model", missing)


@each("name", ARRAYS)
def test_load_refuses_arrays_of_a_wrong_shape(tmp_path, name):
    saved = whole(tmp_path)
    with np.load(saved) as archive:
        array = archive[name]
    for wrong in (array[:-1], array[..., :-1], array[None]):
        edit(saved, {name: wrong})
        refused(saved, "do not fit its shape", name, str(wrong.shape))


@each("name", ARRAYS)
def test_load_refuses_arrays_of_what_is_no_number(tmp_path, name):
    saved = whole(tmp_path)
    with np.load(saved) as archive:
        array = archive[name]
    for wrong in (np.full(array.shape, "x"), np.full(array.shape, np.nan)):
        edit(saved, {name: wrong})
        refused(saved, "not a complete model", name)


def test_load_refuses_rows_that_are_no_gaussians(saved):
    with np.load(saved) as archive:
        Lam = archive["posterior.Lam"]
    edit(saved, {"posterior.Lam": -Lam})
    refused(saved, "not a complete model", "not positive definite")


def test_load_refuses_rows_of_which_nearly_nothing_is_known(tmp_path):
    path = tmp_path / "model.npz"
    new("regressor", method="vmp", max_iter=4, tol=1e9).fit(*entries("regressor")).save(path)
    with np.load(path) as archive:
        Lam = archive["posterior.Lam"]
    Lam[0] *= 1e-290
    edit(path, {"posterior.Lam": Lam})
    refused(path, "not a complete model", "predictions would overflow")


@each("name", ["n_batches", "n_iter", "n_samples_seen"])
def test_load_refuses_counts_that_nothing_reaches(tmp_path, name):
    saved = whole(tmp_path)
    edit(saved, **{f"fitted.{name}": 10**370})
    refused(saved, "not a complete model", name, "371 digits")


def test_load_refuses_a_file_that_another_program_wrote_again(saved):
    """Its checksums are right then, those of zip and of every array."""
    with np.load(saved) as archive:
        content = {name: archive[name] for name in archive.files}
    swapped = {"posterior.eta": -content["posterior.eta"]}
    np.savez(saved, **{**content, **swapped})
    refused(saved, "was changed after it was written", "checksum")
    np.savez(saved, **{name: array for name, array in content.items() if name != "trace.change"})
    refused(saved, "was changed after it was written")
    edit(saved, swapped)  # a file of an earlier version has no checksum
    tc.load(saved)


def test_load_refuses_any_member_of_a_mixture_that_is_no_gaussian(tmp_path):
    path = tmp_path / "model.npz"
    new("regressor", method=tc.CEP(n_ensemble=2), max_iter=4, tol=1e9).fit(*entries("regressor")).save(path)
    with np.load(path) as archive:
        Lam, eta = (archive[f"posterior.members.1.{name}"] for name in ("Lam", "eta"))
    etas = (np.full_like(eta, np.nan), np.full_like(eta, 1e200), eta + 1j, eta.astype(">f8"))
    for wrong in ({"Lam": -Lam}, *({"eta": found} for found in etas)):
        edit(path, {f"posterior.members.1.{name}": array for name, array in wrong.items()})
        refused(path, "not a complete model")
        new("regressor", method=tc.CEP(n_ensemble=2), max_iter=4, tol=1e9).fit(*entries("regressor")).save(path)


def test_load_refuses_logarithms_of_counts_that_no_fit_reaches(tmp_path):
    path = tmp_path / "model.npz"
    for name, large in (("regressor", False), ("counts", True)):
        new(name, method=tc.CEP(n_ensemble=1), max_iter=4, tol=1e9).fit(*entries(name)).save(path)
        with np.load(path) as archive:
            eta = archive["posterior.eta"]
        edit(path, {"posterior.eta": eta + 1e5})
        tc.load(path)
        edit(path, {"posterior.eta": eta + 1e20})
        if large:
            refused(path, "logarithms of numbers that no count reaches")
        else:
            tc.load(path)


@each("level", [10**370, -(10**370), 1e301, "1", [1.0]])
def test_load_refuses_a_level_that_no_fit_has(tmp_path, level):
    saved = whole(tmp_path)
    edit(saved, **{"fitted.own.level_": 1})
    tc.load(saved)
    edit(saved, **{"fitted.own.level_": level})
    refused(saved, "not a complete model", "level_")


SENSELESS = [
    ({"unseen_cov": -np.eye(2)[None].repeat(3, 0)}, "not positive definite"),
    ({"trace.change": np.ones(3) + 1j}, "trace.change does not hold numbers"),
    ({"trace.change": np.array(["a"])}, "trace.change does not hold numbers"),
]


@each(("arrays", "words"), SENSELESS)
def test_load_refuses_arrays_that_make_no_sense(tmp_path, arrays, words):
    saved = whole(tmp_path)
    edit(saved, arrays)
    refused(saved, "not a complete model", words)


def test_load_refuses_labels_that_do_not_fit_the_rows_or_their_own_text(tmp_path):
    path = tmp_path / "model.npz"
    X, y = entries("regressor")
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(a=[f"a{i}" for i in X[:, 0]], y=y)
    new("regressor", max_iter=2, tol=1e9).fit(tc.SparseTensor.from_pandas(frame, ["a", "b", "c"])).save(path)
    with np.load(path) as archive:
        ends, text = archive["labels.arrays.labels_0_ends"], archive["labels.arrays.labels_0"]
    edit(path, {"labels.arrays.labels_0_ends": ends[:-1], "labels.arrays.labels_0": text[: ends[-2]]})
    refused(path, "mode 0 has 11 labels for 12 rows")
    for wrong in (ends + 100, ends[::-1], -ends):
        edit(path, {"labels.arrays.labels_0_ends": wrong, "labels.arrays.labels_0": text})
        refused(path, "labels of mode 0 are damaged")


@each("own", [{"predict": "x"}, {"__class__": 1}, {"_stream": 1}])
def test_load_gives_no_names_of_a_file_to_the_model(tmp_path, own):
    saved = whole(tmp_path)
    edit(saved, **{"fitted.own": own})
    refused(saved, "not a complete model", repr(next(iter(own))))


def test_load_reads_no_pipe(tmp_path):
    path = tmp_path / "model.npz"
    os.mkfifo(path)
    refused(path, "is a pipe or a device")


WRONG = {
    "a version that never was": {"version": 0},
    "a negative version": {"version": -5},
    "a version that is a truth": {"version": True},
    "a method that does not exist": {"fitted.own.method_": "oracle"},
    "a limit that is no number": {"fitted.own.lower_limit_": "x"},
    "a limit that is not finite": {"fitted.own.lower_limit_": float("nan")},
    "a noise that is not positive": {"fitted.posterior.noise.a": -1.0},
    "a doubt below 0": {"fitted.posterior.doubt": -1.0},
    "parameters that this version does not have": {"params": {"rank": 2, "flavour": "up"}},
    "parameters that are no names": {"params": 3},
    "a shape that is no list": {"fitted.posterior.shape": "large"},
    "a shape of numbers below one": {"fitted.posterior.shape": [-1, 31, 0]},
    "a rank that is no integer": {"fitted.posterior.rank": 2.5},
    "a noise of one number": {"fitted.posterior.noise": {"a": 1.0}},
    "no noise for a regressor": {"fitted.posterior.noise": 0},
    "a noise that is no number": {"fitted.posterior.noise.a": float("nan")},
    "labels for another number of modes": {"fitted.labels.described": []},
    "a class that is no word": {"class": ["CPRegressor"]},
    "a fit that is no record": {"fitted": [1]},
}


PARAMETERS = {
    "callbacks": "os.system",
    "method": "x" * 1_000_000,
    "n_jobs": 10**9,
    "max_iter": -5,
    "verbose": 10**400,
    "rank": [2],
    "tol": "small",
    "unknown": "fail",
    "random_state": -1,
    "prior": "flat",
    "prior_scale": 0.0,
    "interactions": {"main": -1},
    "init": "cold",
    "shape": [3],
    "noise_prior": [1.0],
    "lower_limit": "low",
    "power": 2.0,
    "fit_intercept": "no",
}


@each("name", PARAMETERS)
def test_load_refuses_parameters_that_no_fit_takes(tmp_path, name):
    saved = whole(tmp_path)
    edit(saved, **{f"params.{name}": PARAMETERS[name]})
    assert len(refused(saved, "not a complete model", name)) < 1000


@each("name", ["method", "max_iter", "n_jobs"])
def test_a_model_with_parameters_that_no_fit_takes_is_not_written(tmp_path, name):
    model = copy.copy(fitted("regressor")).set_params(**{name: PARAMETERS[name]})
    with pytest.raises(ValueError, match=f"cannot be saved .*{name} must be"):
        model.save(tmp_path / "model.npz")
    assert os.listdir(tmp_path) == []


def test_load_refuses_a_header_of_names_without_end(saved):
    edit(saved, **{f"n{i}": 0 for i in range(20_000)})
    refused(saved, "no tensorcep header")


@each("case", sorted(WRONG))
def test_load_refuses_a_header_that_makes_no_sense(tmp_path, case):
    saved = whole(tmp_path)
    edit(saved, **WRONG[case])
    refused(saved)


def test_load_says_which_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file '.*model\.npz'"):
        tc.load(tmp_path / "model.npz")


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_interrupted_save_leaves_the_old_file(saved, monkeypatch, error):
    before = saved.read_bytes()

    def half(handle, **arrays):
        handle.write(b"PK half of a file")
        raise error

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(type(error)):
        fitted("classifier").save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["model.npz"]


@each("classes", [[0], [0, 0], [0, 1, 2], []])
def test_load_refuses_classes_that_no_labels_have(classes, tmp_path):
    path = tmp_path / "model.npz"
    fitted("classifier").save(path)
    edit(path, **{"fitted.own._classes": classes})
    refused(path, "classes")


def test_load_refuses_a_dispersion_without_end_and_a_model_without_a_method(tmp_path):
    path = tmp_path / "model.npz"
    X, y = entries("counts")
    model = tc.CPCountRegressor(1, method="vmp", likelihood="negbinomial", max_iter=2, tol=1e9, random_state=0)
    model.set_params(method="pg-vb").fit(X, y).save(path)
    edit(path, {"posterior.dispersion.b": np.zeros_like(model.posterior_.dispersion.b)})
    refused(path, "not a complete model")
    model.save(path)
    edit(path, **{"fitted.own.method_": None})
    refused(path, "not a complete model ('method_')")


@each(("params", "name"), [({}, "stream.kept"), ({"revisit": 5}, "stream.reservoir.sample")])
def test_load_refuses_a_stream_that_holds_entries_of_no_row(params, name, tmp_path):
    # kernels take row numbers as they are: out of range they read, and write, what is not theirs
    X, y = entries("regressor")
    path = tmp_path / "model.npz"
    tc.CPRegressor(1, random_state=0, **params).partial_fit(X[:20], y[:20]).save(path)
    with np.load(path) as archive:
        coords = archive[f"{name}.coords"]
    for row in (-1, 10_000):
        wrong = coords.copy()
        wrong[0, -1] = row
        edit(path, {f"{name}.coords": wrong})
        refused(path, "holds entries outside its shape")


@each("unit", [0.0, -1.0, 1e301])
def test_load_refuses_a_unit_of_exposures_that_is_no_positive_number(tmp_path, unit):
    """Latent values of a model that loaded were not finite: their origin is the logarithm of the unit."""
    path, (coords, y) = tmp_path / "model.npz", entries("counts")
    model = new("counts", method="vmp", likelihood="poisson", max_iter=4, tol=1e9)
    model.fit(coords, y, exposure=np.linspace(0.5, 2.0, len(y))).save(path)
    edit(path, **{"fitted.own._extent_unit": unit})
    refused(path, "not a complete model", "_extent_unit is no number that a fit has")


def test_a_model_whose_file_could_not_be_loaded_is_not_written(saved):
    before, model = saved.read_bytes(), copy.copy(fitted("regressor"))
    posterior = model.posterior_
    model._set(
        model._result.changed(rows=model._result.rows._replace(posterior=posterior._replace(seen=posterior.seen[:-1])))
    )
    with pytest.raises(ValueError, match=r"cannot be saved to '.*model\.npz', .*posterior\.seen is .*report this\.$"):
        model.save(saved)
    # of the right shapes, and no sense
    model._set(
        model._result.changed(
            rows=model._result.rows._replace(posterior=posterior._replace(noise=posterior.noise._replace(a=-1.0)))
        )
    )
    with pytest.raises(
        ValueError, match=r"cannot be saved .*a noise precision .* is not positive\); nothing was written"
    ):
        model.save(saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["model.npz"]
