"""Bad input to the estimators: each is refused before any work, in one sentence that says what is wrong."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.data import CLASSES, NAMES, entries, fitted, new
from helpers.models import paper

import tensorcep as tc

X0 = np.array([[0, 0, 0], [1, 2, 3], [3, 1, 2]])
Y0 = np.array([0.0, 1.0, 1.0])


def changed(array, where, value):
    array = np.array(array, dtype=float if isinstance(value, float) else None)
    array[where] = value
    return array


def refused(expected, words, call):
    """The call raises the expected error, in one sentence that holds the words."""
    with pytest.raises(expected) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    assert text.rstrip().endswith((".", ")"))
    for word in words:
        assert word in text, text


DATA = {
    "nan in y": (X0, changed(Y0, 1, np.nan), ValueError, ["y must be finite", "nan", "entry 1"]),
    "infinite y": (X0, changed(Y0, 2, -np.inf), ValueError, ["y must be finite", "-inf", "entry 2"]),
    "text in y": (X0, ["a", "b", "c"], TypeError, ["y must hold real numbers"]),
    "short y": (X0, Y0[:2], ValueError, ["y must hold one number for each of the 3 entries", "2"]),
    "two-dimensional y": (X0, Y0[:, None], ValueError, ["y must be one-dimensional", "(3, 1)"]),
    "no y": (X0, None, ValueError, ["y must hold one value per row of X", "None"]),
    "negative index": (changed(X0, (1, 2), -1), Y0, ValueError, ["X must be >= 0", "-1", "entry 1, mode 2"]),
    "half index": (changed(X0, (2, 0), 0.5), Y0, ValueError, ["X must hold integers", "0.5", "entry 2, mode 0"]),
    "nan index": (changed(X0, (0, 1), np.nan), Y0, ValueError, ["X must hold integers", "nan", "entry 0, mode 1"]),
    "infinite index": (changed(X0, (0, 1), np.inf), Y0, ValueError, ["X must hold integers", "inf"]),
    "text index": (X0.astype(str), Y0, TypeError, ["X must hold integers", "from_pandas"]),
    "bool index": (X0 > 0, Y0, TypeError, ["X must hold integers", "bool"]),
    "one mode": (X0[:, :1], Y0, ValueError, ["two modes or more", "(3, 1)"]),
    "flat X": (X0[:, 0], Y0, ValueError, ["X must be an integer array of shape (entries, modes)", "(3,)"]),
    "no entries": (X0[:0], Y0[:0], ValueError, ["X holds no entries"]),
}


@each("name", NAMES)
@each("case", DATA)
def test_fit_refuses_bad_entries(name, case):
    X, y, expected, words = DATA[case]
    if (name, case) == ("classifier", "text in y"):  # which may be labels, if they are two
        expected, words = ValueError, ["y must hold labels 0 and 1, or any two labels", "'a', 'b', 'c'"]
    refused(expected, words, lambda: CLASSES[name]().fit(X, y))


MASKED = {
    "X": (np.ma.array(X0, mask=X0 == 2), Y0, {}),
    "y": (X0, np.ma.array(Y0, mask=[0, 1, 0]), {}),
    "sample_weight": (X0, Y0, {"sample_weight": np.ma.array([1.0, 2.0, 0.5], mask=[0, 1, 0])}),
    "exposure": (X0, Y0, {"exposure": np.ma.array([1.0, 2.0, 0.5], mask=[0, 1, 0])}),
}


@each("cls", [*CLASSES.values(), tc.CPOrdinalClassifier])
@each("what", MASKED)
@each("call", ["fit", "partial_fit"])
def test_masked_numbers_are_refused(cls, what, call):
    X, y, more = MASKED[what]
    has_no_stream = call == "partial_fit" and cls is tc.CPOrdinalClassifier
    if has_no_stream or (what == "exposure" and cls is not tc.CPCountRegressor):
        return
    refused(ValueError, ["must have no masked numbers", "entry 1"], lambda: getattr(cls(), call)(X, y, **more))


@each("name", NAMES)
def test_masked_numbers_are_refused_by_a_model(name):
    model, (X, y) = fitted(name), entries(name)
    masked, some = np.ma.array(X[:5], mask=X[:5] < 0), np.ma.array(y[:5], mask=[0, 1, 0, 0, 0])
    masked[1, 1] = np.ma.masked
    words = ["must have no masked numbers", "entry 1"]
    for call in (
        lambda: model.predict(masked),
        lambda: model.predict_latent(masked),
        lambda: model.log_score(masked, y[:5]),
        lambda: model.log_score(X[:5], some),
        lambda: model.score(X[:5], some),
        lambda: model.score(X[:5], y[:5], sample_weight=some),
        lambda: model.anomaly_score(X[:5], some),
    ):
        refused(ValueError, words, call)


def test_fit_refuses_a_tensor_beside_y_and_an_empty_one():
    tensor = tc.SparseTensor(X0, Y0)
    refused(ValueError, ["y must be left out", "SparseTensor"], lambda: paper(tc.CPRegressor).fit(tensor, Y0))
    empty = tc.SparseTensor(np.zeros((0, 3), dtype=int), [], (3, 3, 3))
    refused(ValueError, ["holds no entries"], lambda: paper(tc.CPRegressor).fit(empty))


def test_tensor_refuses_repeated_cells():
    again = np.concatenate([X0, X0[1:2]])
    refused(ValueError, ["(1, 2, 3)", "1"], lambda: tc.SparseTensor(again, np.arange(4.0)))


@each("bad", [2.0, -1.0, 0.5])
def test_classifier_refuses_a_third_label_and_says_what_serves_grades(bad):
    words = ["y must hold labels 0 and 1, or any two", "got 3 different ones, such as", f"{bad}", "CPOrdinalClassifier"]
    refused(ValueError, words, lambda: paper(tc.CPClassifier).fit(X0, changed(Y0, 1, bad)))


def test_classifier_refuses_labels_of_one_class():
    for y in (np.ones(len(Y0)), np.zeros(len(Y0), dtype=int), ["yes"] * len(Y0)):
        words = ["y must hold labels of two classes; got only", "sample_zeros gives the zeros alone"]
        refused(ValueError, words, lambda y=y: paper(tc.CPClassifier).fit(X0, y))
    zeros = tc.SparseTensor(X0, np.ones(len(Y0))).sample_zeros(4, random_state=0)
    refused(ValueError, ["got only 0.0"], lambda: paper(tc.CPClassifier).fit(zeros))
    refused((ValueError, TypeError), ["y must"], lambda: paper(tc.CPClassifier).fit(X0, [None] * len(Y0)))


@each("name", NAMES)
def test_weights_of_entries_are_refused_by_the_public_class(name):
    X, y = entries(name)
    for call in ("fit", "partial_fit"):
        words = [f"{CLASSES[name].__name__}.{call} takes no groups", "take it out"]
        refused(TypeError, words, lambda call=call: getattr(new(name), call)(X, y, groups=y))


ABSURD = [
    ({"prior_scale": 1e300}, ["prior_scale", "1e+300", "[1e-70, 1e+70]"]),
    ({"prior_scale": 1e-300}, ["prior_scale", "1e-300"]),
    ({"noise_prior": (1e300, 1e-300)}, ["noise_prior[0]", "1e+300"]),
    ({"noise_prior": (1.0, 1e-300)}, ["noise_prior[1]", "1e-300"]),
    ({"noise_prior": (1.0, 1e300)}, ["noise_prior[1]", "1e+300"]),
]


@each("method", ["cep", "vmp", "gibbs", "wopt"])
@each(("params", "words"), ABSURD)
def test_fit_refuses_numbers_that_leave_the_range_of_floating_point(method, params, words):
    how = {"method": method, "interactions": "cp", "prior": "fixed"}
    refused(ValueError, words, lambda: tc.CPRegressor(2, **how, **params).fit(X0, Y0))


@each("bad", [-1.0, 0.5])
def test_count_regressor_refuses_what_is_no_count(bad):
    words = ["y must hold counts", f"{bad:g}", "entry 1"]
    refused(ValueError, words, lambda: paper(tc.CPCountRegressor).fit(X0, changed(Y0, 1, bad)))


PARAMETERS = [
    ({"rank": 0}, ["rank must be 'auto' or an integer >= 1", "0"]),
    ({"rank": 2.5}, ["rank must be 'auto' or an integer", "2.5"]),
    ({"rank": True}, ["rank must be 'auto' or an integer", "True"]),
    ({"rank": "8"}, ["rank must be 'auto' or an integer", "'8'"]),
    ({"tol": -1e-3}, ["tol must be a number >= 0", "-0.001"]),
    ({"tol": np.nan}, ["tol", "nan"]),
    ({"tol": None}, ["tol", "None"]),
    ({"max_iter": 0}, ["max_iter must be 'auto' or an integer >= 1", "0"]),
    ({"method": "vmpx"}, ["method must be one of 'auto', 'cep'", "'vmpx'"]),
    ({"prior_scale": 0.0}, ["prior_scale must be", "a number in [1e-70, 1e+70]", "0.0"]),
    ({"prior_scale": "wide"}, ["prior_scale", "'wide'"]),
    ({"prior_mean": np.inf}, ["prior_mean", "inf"]),
    ({"prior": [0.0, 1.0]}, ["prior must be one of", "'fixed'", "a tensorcep.Prior", "[0.0, 1.0]"]),
    ({"init": "zeros"}, ["init must be one of 'auto', 'random', 'prior'", "'zeros'"]),
    ({"init": [np.ones((4, 2))] * 3, "rank": 2}, ["init must be", "(n_k, 2)", "(4, 3, 4)"]),
    ({"init": [np.full((n, 2), np.nan) for n in (4, 3, 4)], "rank": 2}, ["init must be finite"]),
    ({"shape": (4, 3)}, ["shape must have 3 modes", "(4, 3)"]),
    ({"shape": (4, 3, 3)}, ["X must be below the shape (4, 3, 3)", "3", "entry 1, mode 2"]),
    ({"shape": (4, 3, 4.0)}, ["shape must hold one integer >= 1"]),
    ({"shape": 4}, ["shape must hold one integer >= 1", "4"]),
    ({"unknown": "zero"}, ["unknown must be one of 'prior', 'error'", "'zero'"]),
    ({"n_jobs": 0}, ["n_jobs must be an integer", "0"]),
    ({"random_state": -1}, ["random_state must be None, an integer >= 0", "-1"]),
    ({"random_state": "seed"}, ["random_state must be None", "'seed'"]),
]


@each(("params", "words"), PARAMETERS)
def test_fit_refuses_parameters_out_of_range(params, words):
    model = paper(tc.CPRegressor, **params)  # the constructor accepts anything, as scikit-learn asks
    refused(ValueError, words, lambda: model.fit(X0, Y0))
    assert not hasattr(model, "posterior_")


SETTINGS = [
    ({"damping": 1.0}, ["damping must be", "a number in [0, 1)", "1.0"]),
    ({"damping": -0.1}, ["damping", "-0.1"]),
    ({"damping": np.nan}, ["damping", "nan"]),
    ({"damping": "some"}, ["damping", "'some'"]),
    ({"anneal": -1}, ["anneal must be 'auto' or an integer >= 0", "-1"]),
    ({"anneal": 1.5}, ["anneal must be 'auto' or an integer", "1.5"]),
    ({"dtype": "float16"}, ["dtype must be one of 'float64', 'float32'", "'float16'"]),
    ({"dtype": int}, ["dtype must be one of 'float64', 'float32'", "int"]),
    ({"schedule": "serial"}, ["schedule must be one of 'modewise', 'parallel'", "'serial'"]),
    ({"moments": "prior"}, ["moments must be one of 'cavity', 'posterior'", "'prior'"]),
    ({"order": 3}, ["order must be an integer from 1 to 2", "3"]),
    ({"dtype": "floaty"}, ["dtype must be one of"]),
    ({"damping": "some"}, ["damping must be", "adaptive"]),
    ({"messages": "some"}, ["messages must be one of 'full', 'averaged'", "'some'"]),
    ({"positive": 1}, ["positive must be True or False", "1"]),
    ({"message_noise": (1.0, -1.0)}, ["message_noise[1] must be a number > 0", "-1.0"]),
    ({"n_starts": 0}, ["n_starts must be an integer >= 1", "0"]),
    ({"n_ensemble": "many"}, ["n_ensemble must be an integer >= 1", "'many'"]),
]


@each(("settings", "words"), SETTINGS)
def test_settings_refuse_values_out_of_range(settings, words):
    refused(ValueError, words, lambda: tc.CEP(**settings))
    record = tc.CEP()
    refused(ValueError, words, lambda: record.set_params(**settings))
    assert record == tc.CEP()
    vars(record).update(settings)  # what the record could not see is refused by the fit
    refused(ValueError, words, lambda: paper(tc.CPRegressor, method=record).fit(X0, Y0))


EXPLAINED = [
    ({"callbacks": 5}, ["callbacks must be"]),
    ({"callbacks": [lambda *_: None, 5]}, ["callbacks must be"]),
    ({"init": 5}, ["init must be"]),
    ({"prior": tc.Prior([0.0, 0.0], [1.0, 1.0])}, ["prior must", "3 modes"]),
    ({"prior": tc.Prior([0.0] * 3, [-1.0] * 3)}, ["prior", "positive"]),
    ({"prior": tc.Prior([np.nan] * 3, [1.0] * 3)}, ["prior", "finite"]),
    ({"prior": tc.Prior([np.ones(3)] * 3, [1.0] * 3)}, ["prior", "shape"]),
    ({"n_jobs": -2}, ["n_jobs must be", "-1"]),
    ({"prior_mean": "unifrom"}, ["prior_mean must be", "uniform"]),
    ({"prior_scale": "wide"}, ["prior_scale must be", "auto"]),
]


@each(("params", "words"), EXPLAINED)
def test_fit_explains_parameters_out_of_range(params, words):
    refused((ValueError, TypeError), words, lambda: paper(tc.CPRegressor, rank=2, **params).fit(X0, Y0))


def test_classifier_and_counts_refuse_unknown_likelihoods():
    refused(
        ValueError,
        ["link must be one of 'auto', 'probit', 'logit'", "'cauchit'"],
        lambda: paper(tc.CPClassifier, link="cauchit").fit(X0, Y0),
    )
    refused(
        ValueError,
        ["likelihood must be one of 'auto', 'poisson'", "'geometric'"],
        lambda: paper(tc.CPCountRegressor, likelihood="geometric").fit(X0, Y0),
    )


@each("bad", [(1.0,), 3.0, (0.0, 1.0), (1.0, -1.0), ("a", 1.0)])
def test_regressor_refuses_a_noise_prior_that_is_no_gamma(bad):
    refused(ValueError, ["noise_prior"], lambda: paper(tc.CPRegressor, noise_prior=bad).fit(X0, Y0))


@each("name", NAMES)
def test_predict_refuses_bad_coordinates(name):
    model = fitted(name)
    refused(ValueError, ["X must have 3 columns", "2"], lambda: model.predict([[0, 1]]))
    refused(ValueError, ["X must have 3 columns", "4"], lambda: model.predict([[0, 1, 2, 3]]))
    refused(ValueError, ["X must be an integer array"], lambda: model.predict([0, 1, 2]))
    refused(ValueError, ["X must be >= 0", "-1"], lambda: model.predict([[0, -1, 2]]))
    refused(ValueError, ["X must hold integers", "0.5"], lambda: model.predict([[0, 0.5, 2]]))
    refused(ValueError, ["X must hold integers", "nan"], lambda: model.predict([[0, np.nan, 2]]))


@each("coverage", [0.0, 1.0, 1.5, np.nan, "high"])
def test_predict_interval_refuses_a_coverage_out_of_range(coverage):
    X, _ = entries("regressor")
    for name in NAMES:
        refused(ValueError, ["coverage"], lambda name=name: fitted(name).predict_interval(X, coverage))


def test_sampling_refuses_a_bad_count():
    X, _ = entries("regressor")
    refused(ValueError, ["n_samples must be an integer >= 1"], lambda: fitted("regressor").sample_y(X, 0))
    refused(ValueError, ["n_samples must be an integer >= 1"], lambda: fitted("regressor").sample_posterior(1.5))


def test_log_score_refuses_bad_observations():
    X, y = entries("classifier")
    refused(ValueError, ["labels 0 and 1"], lambda: fitted("classifier").log_score(X, y + 1))
    refused(ValueError, ["y must hold one number for each"], lambda: fitted("regressor").log_score(X, y[:5]))


@each("scale", [1e-30, 1e-4, 1e-2, 1e30, 1e120])
def test_regressor_is_sound_on_values_of_any_size(scale):
    X, y = entries("regressor")
    model = new("regressor").fit(X, scale * y)
    assert np.isfinite(model.predict(X)).all()
    assert model.score(X, scale * y) > 0.9


def test_regressor_refuses_values_too_large_to_square():
    X, y = entries("regressor")
    refused((ValueError, FloatingPointError), ["y"], lambda: new("regressor").fit(X, 1e200 * y))


def test_regressor_is_sound_on_constant_and_zero_values():
    X, y = entries("regressor")
    zero = new("regressor").fit(X, np.zeros_like(y))
    assert np.abs(zero.predict(X)).max() < 0.1
    constant = new("regressor").fit(X, np.full_like(y, 3.0))
    np.testing.assert_allclose(constant.predict(X), 3.0, atol=0.2)
    single = paper(tc.CPRegressor, rank=1, random_state=0).fit([[2, 3]], [1.5])
    assert np.isfinite(single.predict([[2, 3]])).all()


@pytest.fixture(scope="module")
def of_a_table():
    """A model of labels of three kinds, and its table."""
    coords, y = entries("regressor")
    days = pd.date_range("2024-01-01", periods=8)
    table = pd.DataFrame({"u": [f"u{n}" for n in coords[:, 0]], "n": coords[:, 1], "day": days[coords[:, 2]], "y": y})
    return new("regressor", max_iter=20).fit(table, value="y"), table


MISSING = {"nan": np.nan, "NaT": pd.NaT, "None": None, "Int64": pd.Series([pd.NA] * 3, dtype="Int64")}


@each("mode", ["u", "n", "day"])
@each("missing", MISSING)
def test_a_column_that_is_wholly_missing_has_the_prior(mode, missing, of_a_table):
    model, table = of_a_table
    X = table[["u", "n", "day"]][:3]
    hidden = X.assign(**{mode: MISSING[missing]})
    with pytest.warns(UserWarning, match="3 of 3 entries touch rows without training entries"):
        found = model.predict(hidden)
    with pytest.warns(UserWarning, match="their prior is used"):
        one_by_one = [model.predict(hidden[n : n + 1])[0] for n in range(3)]
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, one_by_one, rtol=1e-12)


@each("label", [[1], {1}, {"a": 1}])
def test_what_cannot_be_a_label_is_refused_as_fit_does(label, of_a_table):
    model, table = of_a_table
    bad = table[:2].assign(u=[label] * 2)
    X, words = bad[["u", "n", "day"]], ["numbers, text or dates", "unhashable"]
    for call in (
        lambda: model.predict(X),
        lambda: model.transform(bad, mode="u", value="y"),
        lambda: model.recommend("n", given={"u": [label]}, exclude=None),
        lambda: model.partial_fit(X, bad["y"]),
        lambda: tc.CPRegressor().partial_fit(X, bad["y"]),
        lambda: tc.CPRegressor().fit(X, bad["y"]),
    ):
        refused(ValueError, words, call)


@each(
    ("cls", "params", "message"),
    [
        (
            tc.CPRegressor,
            {"method": "vmp", "revisit": 5},
            "method 'vmp' cannot take revisit=",
        ),
        (
            tc.CPRegressor,
            {"prior": tc.Prior([0.5] * 2, [1.0] * 2), "prior_scale": 2.0},
            "out beside a Prior",
        ),
        (tc.CPCountRegressor, {"likelihood": "poisson", "dispersion": 2.0}, "dispersion=2.0 is for"),
        (
            tc.CPCountRegressor,
            {"likelihood": "binomial", "dispersion": 2.0},
            "dispersion=2.0 is for",
        ),
    ],
)
def test_what_a_fit_would_not_use_is_refused(cls, params, message):
    X = np.argwhere(np.ones((4, 3)))
    with pytest.raises(ValueError, match=message):
        cls(1, random_state=0, **{"method": "cep", **params}).fit(X, np.arange(12) % 2)


def test_a_dispersion_that_counts_do_not_have_is_told():
    rng = np.random.default_rng(0)
    X = np.argwhere(np.ones((12, 10)))
    model = tc.CPCountRegressor(1, method="vmp", dispersion=2.0, random_state=0)
    with pytest.warns(UserWarning, match="no more than Poisson ones, which have none: dispersion=2 is not used"):
        model.fit(X, rng.poisson(4.0, len(X)))
    assert model.likelihood_ == "poisson"
