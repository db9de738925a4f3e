"""Bad calls, each of which is to be refused in a sentence."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.gaussian_process.kernels import RBF

import tensorcep as tc
from tensorcep.factor_models import settings as factor
from tensorcep.gaussian_process import settings as gp
from tensorcep.linear import settings as glm
from tests.golden.cp_cases import FAMILIES, PRIOR, fitted
from tests.golden.data import cells, exposures, matrix, points, table, trials

# What a bad call may raise; anything else is a fault of the package.
ERRORS = (ValueError, TypeError, OSError, ImportError, AttributeError, LookupError, ArithmeticError, RuntimeError)
GOES_THROUGH = "is not refused"
REFUSALS: dict[str, Callable[[], Any]] = {}


def refusal_of(call: Callable[[], Any]) -> str:
    """The kind of error, of our own the one that it is of, and its sentence; places in temporary folders left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except ERRORS as error:
            kind = next(kind for kind in type(error).__mro__ if not kind.__module__.startswith("tensorcep."))
            return f"{kind.__name__}: {_without_places(str(error))}"
    return GOES_THROUGH


def _without_places(text: str) -> str:
    text = text.replace(str(Path(__file__).parent), "<folder>")
    return re.sub(rf"{re.escape(tempfile.gettempdir())}/[^\s'\",;]*/", "<folder>/", text)


def bad(name: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Add a bad call to the table."""
    name = " ".join(name.split())
    if name in REFUSALS:
        raise ValueError(f"there are two bad calls named {name!r}")
    REFUSALS[name] = functools.partial(call, *args, **kwargs)


# Parameters of CP models.

REG, LAB, CNT, ORD = tc.CPRegressor, tc.CPClassifier, tc.CPCountRegressor, tc.CPOrdinalClassifier
KINDS = {"real": REG, "labels": LAB, "counts": CNT, "levels": ORD}


def fit(kind: str, given: dict[str, Any] | None = None, data: str | None = None, **params: Any) -> Any:
    """A fit with these parameters of an estimator, and these arguments."""
    entries = cells(data or kind)
    return KINDS[kind](**{"random_state": 0, "max_iter": 3, "rank": 2, **params}).fit(
        entries.X, entries.y, **(given or {})
    )


ANY: list[dict[str, Any]] = [
    {"rank": 0},
    {"rank": 1.5},
    {"rank": "many"},
    {"max_iter": 0},
    {"max_iter": "few"},
    {"tol": -1.0},
    {"tol": "tight"},
    {"method": "vmpx"},
    {"method": 3},
    {"prior": "wide"},
    {"prior": tc.Prior([0.0], [1.0])},
    {"prior": tc.Prior([0.0] * 3, [-1.0] * 3)},
    {"prior": {"user": 3}},
    {"prior": {7: tc.Series()}},
    {"prior_scale": -1.0, "prior": "fixed"},
    {"prior_mean": "some", "prior": "fixed"},
    {"interactions": "none"},
    {"interactions": {"main": 1, "third": 2}},
    {"interactions": {"main": 0, "cp": 0}},
    {"init": "zeros"},
    {"init": [np.ones((2, 2))]},
    {"init": "prior"},
    {"shape": (2, 2, 2)},
    {"shape": (8, 6)},
    {"unknown": "zero"},
    {"forget": 1.0},
    {"revisit": -1},
    {"n_jobs": 0},
    {"random_state": "seed"},
    {"callbacks": 5},
]
OWN: dict[str, list[dict[str, Any]]] = {
    "real": [
        {"lower_limit": np.nan},
        {"lower_limit": "least"},
        {"lower_limit": 1.0, "upper_limit": 2.0},
        {"lower_limit": 3.0, "method": "laplace"},
        {"upper_limit": -100.0},
        {"lower_limit": 1.0, "method": tc.CEP(order=2)},
        {"noise_prior": (1.0, -1.0)},
        {"noise_prior": 3.0},
        {"noise": "some"},
        {"noise": 7},
        {"noise": "entry", "method": "cep"},
        {"power": 2.0},
        {"power": "root"},
        {"power": 0.5, "noise": "entry", "method": "vmp"},
        {"fit_intercept": "maybe"},
        {"method": "wopt", "prior": {0: tc.Features(np.ones((8, 1)))}},
        {"method": "laplace", "prior": {2: tc.Series(local=0)}},
    ],
    "labels": [{"link": "cauchit"}, {"zero_rate": 2.0}, {"zero_rate": "auto"}, {"zero_rate": 0.0}],
    "counts": [
        {"likelihood": "geometric"},
        {"dispersion": -1.0, "likelihood": "negbinomial"},
        {"dispersion": "mode_9", "likelihood": "negbinomial"},
        {"zero_inflation": "yes"},
        {"zero_inflation": True, "method": "cep"},
        {"zero_inflation": True, "likelihood": "binomial"},
    ],
    "levels": [{"link": "cauchit"}, {"link": "logit", "method": "gibbs"}, {"method": "wopt"}, {"method": "pg-vb"}],
}
for params in ANY:
    bad(f"CPRegressor {params}", fit, "real", **params)
for kind, lists in OWN.items():
    for params in lists:
        bad(f"{KINDS[kind].__name__} {params}", fit, kind, **params)
bad("CPRegressor positive values of which some are not", fit, "real", data="outliers", power=0.0)
bad("CPRegressor a Prior without a method that keeps it", fit, "real", prior=PRIOR, interactions="all")
METHODS = ("cep", "laplace", "vmp", "wopt", "gibbs", "pg-vb", "pg-gibbs")
for name, (make, kind, params, methods) in list(FAMILIES.items()):
    for method in METHODS:
        if methods and method not in methods:
            given = {"n_trials": trials(140)} if name == "binomial" else {}
            bad(f"{name} by {method}", fitted, make, cells(kind), fit=given, method=method, **params)

# Records of settings.

SETTINGS: list[tuple[Any, dict[str, Any]]] = [
    (tc.CEP, {"messages": "some"}),
    (tc.CEP, {"schedule": "random"}),
    (tc.CEP, {"moments": "prior"}),
    (tc.CEP, {"noise_moments": "prior"}),
    (tc.CEP, {"order": 3}),
    (tc.CEP, {"damping": 1.0}),
    (tc.CEP, {"dtype": "float16"}),
    (tc.CEP, {"positive": "yes"}),
    (tc.CEP, {"anneal": -1}),
    (tc.CEP, {"anneal_power": 0.5}),
    (tc.CEP, {"warm_up": -1}),
    (tc.CEP, {"message_precision": -1.0}),
    (tc.CEP, {"message_noise": (1.0,)}),
    (tc.CEP, {"n_starts": 0}),
    (tc.CEP, {"n_ensemble": 0}),
    (tc.Laplace, {"curvature": "full"}),
    (tc.Laplace, {"damping": "adaptive"}),
    (tc.VMP, {"n_ensemble": 1.5}),
    (tc.VMP, {"anneal": "some"}),
    (tc.PGVB, {"dispersion_prior": (1.0, 0.0)}),
    (tc.PGVB, {"dispersion_mode": -1}),
    (tc.Gibbs, {"n_chains": 0}),
    (tc.Gibbs, {"burn_in": -1}),
    (tc.Gibbs, {"thin": 0}),
    (tc.Gibbs, {"weights": "best"}),
    (tc.Gibbs, {"noise": "known"}),
    (tc.PGGibbs, {"dtype": "int64"}),
    (tc.WOPT, {"ridge": -1.0}),
    (tc.WOPT, {"prior_weight": "some"}),
    (tc.WOPT, {"iterations": 0}),
    (glm.EP, {"schedule": "random"}),
    (glm.IS, {"n_draws": 1}),
    (glm.IS, {"proposal": "none"}),
    (glm.ConditionalEP, {"order": 3}),
    (glm.FactorizedEP, {"damping": 1.0}),
    (glm.LP, {"stop": "never"}),
    (factor.FactorisedVB, {"step": 0.0}),
    (factor.Gibbs, {"burn_in": -1}),
    (gp.EP, {"damping": 1.0}),
    (gp.QP, {"rule": "guess"}),
]
for make, params in SETTINGS:
    bad(f"{make.__module__.split('.')[1]}.{make.__name__} {params}", make, **params)
bad("Gibbs with a burn-in of all sweeps", fit, "real", method=tc.Gibbs(burn_in=3))
bad("set_params of a setting that is not there", lambda: tc.CPRegressor(method=tc.CEP()).set_params(method__steps=3))
bad("set_params of a parameter that is not there", lambda: tc.CPRegressor().set_params(ranks=3))
bad("a class in place of a record", fit, "real", method=tc.CEP)

# Entries that are not right.


def entries_of(kind: str) -> dict[str, tuple[Any, Any]]:
    """Entries that must be refused, whatever the parameters."""
    data = cells(kind)
    wrong, far = data.y.astype(float).copy(), data.X.copy()
    wrong[7], far[3, 1] = {"real": np.nan, "labels": 2.0, "counts": -1.0, "levels": np.nan}[kind], -1
    return {
        "a value that is not allowed": (data.X, wrong),
        "an infinite value": (data.X, np.where(np.arange(140) == 3, np.inf, data.y)),
        "too few values": (data.X, data.y[:-1]),
        "no values": (data.X, None),
        "text for values": (data.X, np.array(["a"] * 139 + ["b"])),
        "one index per entry": (data.X[:, 0], data.y),
        "one mode": (data.X[:, :1], data.y),
        "a negative index": (far, data.y),
        "broken indices": (data.X + 0.5, data.y),
        "text for indices": (data.X.astype(str), data.y),
        "no entries": (data.X[:0], data.y[:0]),
        "an object": (object(), data.y),
    }


for kind, make in KINDS.items():
    for what in entries_of(kind):
        if kind == "real" or what in ("a value that is not allowed", "an infinite value"):
            bad(
                f"{make.__name__} of {what}",
                lambda make=make, kind=kind, what=what: make(2, max_iter=3).fit(*entries_of(kind)[what]),
            )
bad("CPClassifier of one label", lambda: LAB(2).fit(cells("real").X, np.ones(140)))
bad("CPOrdinalClassifier of one level", lambda: ORD(2).fit(cells("real").X, np.ones(140)))
bad("CPOrdinalClassifier of many levels", lambda: ORD(2).fit(cells("real").X, np.arange(140)))
bad("CPCountRegressor of fractions", lambda: CNT(2).fit(cells("real").X, cells("real").y))
GIVEN: dict[str, tuple[str, dict[str, Any]]] = {
    "weights of another length": ("real", {"sample_weight": np.ones(3)}),
    "negative weights": ("real", {"sample_weight": -np.ones(140)}),
    "weights of zero": ("real", {"sample_weight": np.zeros(140)}),
    "text for weights": ("real", {"sample_weight": "weight"}),
    "a column of a table that is none": ("real", {"value": "y"}),
    "modes of a table that is none": ("real", {"modes": ["a", "b"]}),
    "fixed modes before a fit": ("real", {"fixed_modes": [0]}),
    "exposures of values": ("real", {"exposure": np.ones(140)}),
    "trials of values": ("real", {"n_trials": np.ones(140)}),
    "a folder that is not there": ("real", {"scratch": "/no/such/folder"}),
    "a memory that is too little": ("real", {"memory": "1kB"}),
    "a memory in no unit": ("real", {"memory": "much"}),
    "a word that is not known": ("real", {"weights": np.ones(140)}),
    "exposures of another length": ("counts", {"exposure": np.ones(3)}),
    "negative exposures": ("counts", {"exposure": -np.ones(140)}),
    "exposures and trials": ("counts", {"exposure": np.ones(140), "n_trials": np.ones(140)}),
    "exposures on scratch": ("counts", {"exposure": np.ones(140), "scratch": tempfile.gettempdir()}),
    "trials of Poisson counts": ("counts", {"n_trials": np.full(140, 30)}),
}
for what, (kind, given) in GIVEN.items():
    bad(f"fit with {what}", fit, kind, given, method="vmp")
bad(
    "fit of binomial counts above their trials",
    fit,
    "counts",
    {"n_trials": np.ones(140)},
    likelihood="binomial",
    method="pg-vb",
)
bad(
    "fit of binomial counts with broken trials",
    fit,
    "counts",
    {"n_trials": np.full(140, 30.5)},
    likelihood="binomial",
    method="pg-vb",
)
bad("scratch by a method that cannot", fit, "real", {"scratch": tempfile.gettempdir()}, method="laplace")
bad("weights of a sampler of levels", fit, "levels", {"sample_weight": np.full(140, 0.5)}, method="gibbs")

# What is known of rows.


def rows(prior: Any, **params: Any) -> Any:
    return REG(2, prior=prior, method="vmp", max_iter=3, random_state=0, **params).fit(table(), value="value")


ROWS: dict[str, Any] = {
    "features of a mode that is not there": {"shop": tc.Features(np.ones((8, 1)))},
    "features that are not finite": {
        "user": tc.Features(pd.DataFrame({"a": [np.nan] * 8}, [f"u{i}" for i in range(8)]))
    },
    "a series of text": {"user": tc.Series()},
    "a series of another kind": {"day": tc.Series(kind="cubic")},
    "a series with a period in no unit": {"day": tc.Series(period="weekly")},
    "a series with a number for a period of days": {"day": tc.Series(period=7)},
    "a series with a negative period": {"day": tc.Series(period="-7D")},
    "a series on too short a circle": {"day": tc.Series(cyclic=True, period="2D")},
    "a series with an order that lacks labels": {"user": tc.Series(order=["u1"])},
    "a series local to itself": {"day": tc.Series(local="day")},
    "a series local to a mode that is not there": {"day": tc.Series(local="shop")},
    "a graph of no edges": {"user": tc.Graph([])},
    "a graph with a loop": {"user": tc.Graph([("u1", "u1")])},
    "a graph with a negative weight": {"user": tc.Graph([("u1", "u2", -1.0)])},
}
for what, known in ROWS.items():
    bad(f"rows: {what}", rows, known)
bad("rows: features of what is no table", lambda: rows({"user": tc.Features("ages")}))
bad("rows: a graph of what is no list", lambda: rows({"user": tc.Graph(3)}))
bad("table without its value", lambda: REG(2).fit(table(), value="stars"))
bad("table without its mode", lambda: REG(2).fit(table(), value="value", modes=["user", "shop"]))
bad("table of one mode", lambda: REG(2).fit(table(), value="value", modes=["user"]))
bad("table with a missing label", lambda: REG(2).fit(table().assign(user=None), value="value"))

# Questions to a fitted model.


@functools.cache
def model(kind: str = "real", method: Any = "vmp", labels: bool = True) -> Any:
    make = KINDS[kind](2, method=method, max_iter=3, random_state=0, interactions="main+cp")
    return make.fit(table(kind), value="value") if labels else make.fit(cells(kind).X, cells(kind).y)


ASKED = table().drop(columns="value").iloc[:4]
X = cells("real").X[:4]
QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "predict of indices where there are labels": lambda m: m.predict(X),
    "predict without a mode": lambda m: m.predict(ASKED[["user", "item"]]),
    "predict of a label that is new": lambda m: m.set_params(unknown="error").predict(ASKED.assign(user="zz")),
    "predict_interval of a coverage above 1": lambda m: m.predict_interval(ASKED, 1.5),
    "predict_interval of a coverage of 0": lambda m: m.predict_interval(ASKED, 0.0),
    "sample_y of no draws": lambda m: m.sample_y(ASKED, 0),
    "sample_posterior of broken draws": lambda m: m.sample_posterior(1.5),
    "log_score of too few values": lambda m: m.log_score(ASKED, [1.0]),
    "components of a mode that is not there": lambda m: m.components("shop"),
    "components of a number that is no mode": lambda m: m.components(7),
    "explain of a label that is not there": lambda m: m.explain(user="zz", item="i1", day=ASKED["day"].iloc[0]),
    "explain without a mode": lambda m: m.explain(user="u1"),
    "recommend of a mode that is not there": lambda m: m.recommend("shop"),
    "recommend by a word that is not known": lambda m: m.recommend("item", by="best"),
    "recommend of no rows": lambda m: m.recommend("item", n=0),
    "recommend given a label that is not there": lambda m: m.set_params(unknown="error").recommend(
        "item", given={"user": "zz"}
    ),
    "recommend given the mode itself": lambda m: m.recommend("item", given={"item": "i1"}),
    "similar of a label that is not there": lambda m: m.similar("user", "zz"),
    "anomaly_score without values": lambda m: m.anomaly_score(ASKED),
    "transform of labels that are known": lambda m: m.transform(table().iloc[:3], mode="user", value="value"),
    "transform of a mode that is not there": lambda m: m.transform(table().iloc[:3], mode="shop", value="value"),
    "with_rows of what are no rows": lambda m: m.with_rows(3),
    "predict_block given a label that is not there": lambda m: m.predict_block({"user": "zz"}),
    "chain_diagnostics of what has no chains": lambda m: m.chain_diagnostics(ASKED),
    "factor_diagnostics of what has no chains": lambda m: m.factor_diagnostics(0),
    "forget_entries of no entries": lambda m: m.forget_entries(ASKED),
    "forget_rows of a label that is not there": lambda m: m.forget_rows("user", "zz"),
    "fixed modes that are not there": lambda m: m.fit(table(), value="value", fixed_modes=["shop"]),
    "all modes fixed": lambda m: m.fit(table(), value="value", fixed_modes=["user", "item", "day"]),
    "save into a folder that is not there": lambda m: m.save("/no/such/folder/model.npz"),
    "partial_fit by other modes": lambda m: m.partial_fit(ASKED[["user", "item"]], np.ones(4)),
    "partial_fit without values": lambda m: m.partial_fit(ASKED),
    "partial_fit with negative weights": lambda m: m.partial_fit(ASKED, np.ones(4), sample_weight=-np.ones(4)),
    "stream of a file that is not there": lambda m: m.stream("/no/such/file.csv"),
    "stream of what is no batch": lambda m: m.stream([3]),
    "stream of no entries to a batch": lambda m: m.stream(table(), batch_size=0),
}
for what, ask in QUESTIONS.items():
    bad(what, lambda ask=ask: ask(model.__wrapped__()))
bad("predict of two modes", lambda: model("real", "vmp", False).predict(X[:, :2]))
bad("predict of nan", lambda: model("real", "vmp", False).predict([[0, np.nan, 2]]))
bad("predict of text", lambda: model("real", "vmp", False).predict([["a", "b", "c"]]))
bad("predict before a fit", lambda: tc.CPRegressor().predict(X))
bad("predict_interval of a point estimate", lambda: model("real", "wopt", False).predict_interval(X))
bad("standard deviations of a point estimate", lambda: model("real", "wopt", False).predict(X, return_std=True))
bad("draws of a point estimate", lambda: model("real", "wopt", False).sample_posterior(2))
bad("log_score of a count below 0", lambda: model("counts", "vmp", False).log_score(X, [-1, 0, 1, 2]))
bad("log_score of a label that is none", lambda: model("labels", "pg-vb", False).log_score(X, [0, 1, 2, 1]))
bad("predict_block of levels", lambda: model("levels", "vmp", False).predict_block({0: 1}))
bad("levels by a word that is not known", lambda: model("levels", "vmp", False).predict(X, by="median"))
bad("partial_fit of levels", lambda: ORD(2).partial_fit(cells("levels").X, cells("levels").y))
bad("stream of levels", lambda: ORD(2).stream([(cells("levels").X, cells("levels").y)]))
for method in ("laplace", "wopt", "gibbs", "pg-vb", "pg-gibbs"):
    bad(
        f"a stream that begins by {method}",
        lambda method=method: LAB(2, method=method).partial_fit(cells("labels").X, cells("labels").y),
    )
for params in ({"zero_inflation": True}, {"dispersion": "mode_1", "likelihood": "negbinomial"}):
    bad(
        f"a stream with {params}",
        lambda params=params: CNT(2, **params).partial_fit(cells("counts").X, cells("counts").y),
    )
bad("a stream with noise by mode", lambda: REG(2, noise=1).partial_fit(cells("real").X, cells("real").y))
bad("a stream with a power", lambda: REG(2, power=0.5).partial_fit(cells("positive").X, cells("positive").y))
bad(
    "a stream of revisits with averaged messages",
    lambda: REG(2, method=tc.CEP(messages="averaged"), revisit=9).partial_fit(cells("real").X, cells("real").y),
)


def two_batches(first: dict[str, Any], then: dict[str, Any]) -> Any:
    data = cells("counts")
    batch = CNT(2, method="vmp", likelihood="poisson", max_iter=3, random_state=0).partial_fit(
        data.X[:90], data.y[:90], **first
    )
    return batch.partial_fit(data.X[90:], data.y[90:], **then)


bad("a batch without exposures after one with them", two_batches, {"exposure": exposures(90)}, {})
bad("a time before that of the last batch", two_batches, {"time": 3.0}, {"time": 1.0})
bad("a file that is no model", lambda: tc.load(Path(__file__)))
bad("a file that is not there", lambda: tc.load("/no/such/model.npz"))

# Tensors, labels and files of entries.

TENSOR = cells("real").tensor
bad("tensor with a cell twice", lambda: tc.SparseTensor.from_coo([[0, 0], [0, 0]], [1.0, 2.0]))
bad("tensor with a value that is not finite", lambda: tc.SparseTensor.from_coo([[0, 0]], [np.nan]))
bad("tensor smaller than its indices", lambda: tc.SparseTensor.from_coo([[5, 0]], [1.0], (2, 2)))
bad("tensor of fewer values", lambda: tc.SparseTensor.from_coo([[5, 0], [1, 1]], [1.0]))
bad("tensor with another policy", lambda: tc.SparseTensor.from_coo([[0, 0]], [1.0], duplicates="keep"))
bad("tensor of a table without its modes", lambda: tc.SparseTensor.from_pandas(table(), ["shop"], "value"))
bad("split of more than all", lambda: TENSOR.train_test_split(1.5))
bad("folds of one part", lambda: TENSOR.kfold(1))
bad("batches of no entries", lambda: list(TENSOR.minibatches(0)))
bad("more zeros than there are cells", lambda: TENSOR.sample_zeros(1000))
bad("a tensor of order three for scipy", TENSOR.to_scipy)
bad("labels twice", lambda: tc.Labels(["a", "a"]))
bad("labels that are missing", lambda: tc.Labels(["a", None]))
bad("rows of labels that are not there", lambda: tc.Labels(["a"]).rows(["b"]))


def read(text: str, name: str = "cells.csv", **how: Any) -> Any:
    """Read a file with this text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text(text)
        return tc.read_tensor(path, **how)


FILES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "no entries": ("a,b,y\n", "cells.csv", {}),
    "nothing": ("", "cells.csv", {}),
    "a value that is text": ("a,b,y\nx,p,high\n", "cells.csv", {}),
    "a line that is short": ("a,b,y\nx,p,1\nx,2\n", "cells.csv", {}),
    "a line that is long": ("a,b,y\nx,p,1\nx,q,2,3\n", "cells.csv", {}),
    "a value that is missing": ("a,b,y\nx,p,1\nx,q,\n", "cells.csv", {}),
    "a label that is missing": ("a,b,y\nx,p,1\n,q,2\n", "cells.csv", {}),
    "a value that is infinite": ("a,b,y\nx,p,1\nx,q,inf\n", "cells.csv", {}),
    "a cell twice": ("a,b,y\nx,p,1\nx,p,2\n", "cells.csv", {}),
    "a column that is not there": ("a,b,y\nx,p,1\n", "cells.csv", {"value": "z"}),
    "a mode that is not there": ("a,b,y\nx,p,1\n", "cells.csv", {"modes": ["a", "c"]}),
    "one column": ("y\n1\n", "cells.csv", {}),
    "columns of the same name": ("a,a,y\nx,p,1\n", "cells.csv", {}),
    "an index that is 0": ("0,1,2.5\n", "cells.csv", {"header": False}),
    "an index that is broken": ("1.5,1,2.5\n", "cells.csv", {"header": False, "labels": False}),
    "a base that is none": ("1,1,2.5\n", "cells.csv", {"header": False, "index_base": 2}),
    "a shape that is too small": ("1,5,2.5\n", "cells.csv", {"header": False, "shape": (2, 2)}),
    "an extension that is not known": ("1,1,1\n", "cells.xyz", {}),
    "a format that is not known": ("1,1,1\n", "cells.csv", {"format": "xml"}),
    "tns, a line that is short": ("1 1 0.5\n2 1\n", "cells.tns", {}),
    "tns, a value that is text": ("1 1 0.5\n2 1 high\n", "cells.tns", {}),
    "tns, an index that is 0": ("0 1 0.5\n", "cells.tns", {}),
    "tns, entries that are fewer than its header says": ("2 3\n4 5\n1 1 0.5\n", "cells.tns", {}),
    "tns, nothing": ("", "cells.tns", {}),
    "npz that is none": ("text", "cells.npz", {}),
    "gz that is none": ("text", "cells.csv.gz", {}),
    "parquet that is none": ("text", "cells.parquet", {}),
}
for what, (text, name, how) in FILES.items():
    bad(f"file with {what}", read, text, name, **how)
bad("file that is not there", lambda: tc.read_tensor("/no/such/cells.csv"))
bad("write into a folder that is not there", lambda: tc.write_tensor(TENSOR, "/no/such/folder/cells.csv"))
bad("write with an extension that is not known", lambda: tc.write_tensor(TENSOR, "cells.dat"))

# Factor models.

GAPS = matrix("gaussian")
PCA: list[dict[str, Any]] = [
    {"n_components": 0},
    {"n_components": "many"},
    {"likelihood": "gauss"},
    {"likelihood": "negbinomial", "augmentation": "boehning"},
    {"augmentation": "none"},
    {"method": "em"},
    {"method": factor.Gibbs(burn_in=5), "max_iter": 5},
    {"bias": "all"},
    {"absent": "gone"},
    {"init": "pca"},
    {"noise": "row"},
    {"dispersion": "some", "likelihood": "negbinomial"},
    {"tol": -1.0},
    {"max_iter": 0},
    {"n_jobs": 0},
    {"random_state": -1},
    {"row_prior": tc.Series(), "method": "gibbs"},
    {"row_prior": 3},
]
for params in PCA:
    data = {"gauss": GAPS, "negbinomial": matrix("negbinomial")}.get(str(params.get("likelihood", "gauss")), GAPS)
    bad(
        f"BayesianPCA {params}",
        lambda params=params, data=data: tc.BayesianPCA(**{"n_components": 2, **params}).fit(data),
    )
MATRICES: dict[str, Any] = {
    "no cells": np.full((4, 3), np.nan),
    "an infinite cell": [[np.inf, 1.0], [1.0, 2.0]],
    "no rows": np.zeros((0, 3)),
    "one dimension": [1.0, 2.0],
    "text": [["a", "b"]],
}
for what, given in MATRICES.items():
    bad(f"BayesianPCA of {what}", lambda given=given: tc.BayesianPCA(1).fit(given))
bad("BayesianPCA of labels that are none", lambda: tc.BayesianPCA(1, "bernoulli").fit(GAPS))
bad("BayesianPCA of counts that are none", lambda: tc.BayesianPCA(1, "negbinomial").fit(GAPS))


@functools.cache
def components() -> Any:
    return tc.BayesianPCA(2, max_iter=5, random_state=0).fit(GAPS)


bad("transform of other columns", lambda: components().transform(GAPS[:, :3]))
bad("inverse_transform of other components", lambda: components().inverse_transform(np.eye(3)))
bad("predict_missing of text", lambda: components().predict_missing(np.full((1, 6), "a")))
bad("components of a coverage above 1", lambda: components().components(coverage=1.5))
bad("predict_cells of rows that are not there", lambda: components().predict_cells(pd.DataFrame({"r": [99], "c": [1]})))
bad("GroupFactorAnalysis of no views", lambda: tc.GroupFactorAnalysis(2).fit([]))
bad("GroupFactorAnalysis of other rows", lambda: tc.GroupFactorAnalysis(2).fit([GAPS, GAPS[:5]]))
bad("GroupFactorAnalysis of too few likelihoods", lambda: tc.GroupFactorAnalysis(2, ["gaussian"]).fit([GAPS, GAPS]))
bad("BayesianCCA of three views", lambda: tc.BayesianCCA(2).fit([GAPS] * 3))
bad("CollectiveMatrixFactorization of a pair", lambda: tc.CollectiveMatrixFactorization([("a", "b")], 2).fit([GAPS]))
bad(
    "CollectiveMatrixFactorization of an entity with itself",
    lambda: tc.CollectiveMatrixFactorization([("a", "a", "gaussian")], 2).fit([GAPS]),
)
bad(
    "CollectiveMatrixFactorization of too few matrices",
    lambda: tc.CollectiveMatrixFactorization([("a", "b", "gaussian"), ("a", "c", "gaussian")], 2).fit([GAPS]),
)
bad(
    "CollectiveMatrixFactorization of other sizes",
    lambda: tc.CollectiveMatrixFactorization([("a", "b", "gaussian"), ("a", "c", "gaussian")], 2).fit([GAPS, GAPS[:3]]),
)

# Linear models, Gaussian processes, message passing.

PX, PY, _ = points()
GLM: list[dict[str, Any]] = [
    {"method": "em"},
    {"prior_scale": 0.0},
    {"prior_scale": "some"},
    {"intercept_scale": -1.0},
    {"max_iter": 0},
    {"tol": -1.0},
    {"n_jobs": 0},
]
for params in GLM:
    bad(f"BayesianProbitRegression {params}", lambda params=params: tc.BayesianProbitRegression(**params).fit(PX, PY))
bad("BayesianProbitRegression of values", lambda: tc.BayesianProbitRegression().fit(PX, PX[:, 0]))
bad("BayesianProbitRegression of three classes", lambda: tc.BayesianProbitRegression().fit(PX, np.arange(40) % 3))
bad("BayesianPCA, a batch by another method", lambda: tc.BayesianPCA(2, method="gibbs").partial_fit(GAPS))
bad("BayesianProbitRegression of one class", lambda: tc.BayesianProbitRegression().fit(PX, np.ones(40)))
bad("BayesianProbitRegression of fewer labels", lambda: tc.BayesianProbitRegression().fit(PX, PY[:5]))
bad("BayesianProbitRegression of nan", lambda: tc.BayesianProbitRegression().fit(PX * np.nan, PY))
bad(
    "BayesianProbitRegression, a batch of a class that is new",
    lambda: tc.BayesianProbitRegression("vb").fit(PX, PY).partial_fit(PX, PY + 1),
)
bad(
    "BayesianProbitRegression, other features", lambda: tc.BayesianProbitRegression("vb").fit(PX, PY).predict(PX[:, :2])
)
for params in (
    {"kernel": "cubic"},
    {"likelihood": "logit"},
    {"slack": 0.1},
    {"slack": 0.7, "likelihood": "step"},
    {"length_scale": 0.0},
    {"schedule": "random"},
):
    bad(f"BayesPointMachine {params}", lambda params=params: tc.BayesPointMachine(**params).fit(PX, PY))
bad("BayesPointMachine of three classes", lambda: tc.BayesPointMachine().fit(PX, np.arange(40) % 3))
bad(
    "BayesPointMachine with a function that is saved",
    lambda: tc.BayesPointMachine(lambda a, b: a @ b.T).fit(PX, PY).save("model.npz"),
)
for params in (
    {"method": "em"},
    {"kernel": 3},
    {"optimizer": "newton"},
    {"n_inducing": 0},
    {"power": 0.5},
    {"power": 2.0, "n_inducing": 5},
    {"likelihood": "step", "method": "vb"},
    {"slack": 0.1},
    {"max_iter": 0},
    {"n_restarts_optimizer": -1},
    {"n_inducing": 5, "method": "laplace"},
):
    bad(
        f"GaussianProcessClassifier {params}",
        lambda params=params: tc.GaussianProcessClassifier(**{"kernel": RBF(1.0), "optimizer": None, **params}).fit(
            PX, PY
        ),
    )
bad("GaussianProcessClassifier of one class", lambda: tc.GaussianProcessClassifier(RBF(1.0)).fit(PX, np.ones(40)))
for params in ({"link": "identity"}, {"prior_mean": "some"}, {"prior_mean": np.nan}):
    bad(
        f"GaussianProcessCountRegressor {params}",
        lambda params=params: tc.GaussianProcessCountRegressor(RBF(1.0), **params).fit(PX, PY),
    )
bad("GaussianProcessCountRegressor of values", lambda: tc.GaussianProcessCountRegressor(RBF(1.0)).fit(PX, PX[:, 0]))
for params in (
    {"schedule": "random"},
    {"damping": 1.0},
    {"power": 0.0},
    {"max_iter": 0},
    {"tol": -1.0},
    {"projection": "w3"},
    {"projection": "w2", "power": 0.5},
    {"prior_cov": -1.0},
    {"prior_mean": np.ones(7)},
):
    bad(f"GaussianEP {params}", lambda params=params: tc.GaussianEP(**params).fit(PX, PY, "probit"))
bad("GaussianEP by a likelihood that is not there", lambda: tc.GaussianEP().fit(PX, PY, "cauchit"))
bad("GaussianEP of fewer labels", lambda: tc.GaussianEP().fit(PX, PY[:4], "probit"))
bad("GaussianEP of a number", lambda: tc.GaussianEP().fit(PX, 3, "probit"))
bad("LoopyBP with a table of another shape", lambda: tc.LoopyBP().fit([2, 2], [((0, 1), [1.0, 2.0])]))
bad("LoopyBP with a variable that is not there", lambda: tc.LoopyBP().fit([2], [((1,), [1.0, 2.0])]))
bad("LoopyBP with negative numbers", lambda: tc.LoopyBP().fit([2], [((0,), [1.0, -2.0])]))
bad("LoopyBP with a damping of 1", lambda: tc.LoopyBP(damping=1.0).fit([2], [((0,), [1.0, 2.0])]))
bad("LoopyBP with factors that rule out all", lambda: tc.LoopyBP().fit([2], [((0,), [1.0, 0.0]), ((0,), [0.0, 1.0])]))

# Selection, simulation, metrics, workers.

SMALL = tc.CPRegressor(2, method="vmp", max_iter=3, random_state=0)
bad("compare by a method that is not there", lambda: tc.compare(TENSOR, TENSOR, ["em"], estimator=SMALL))
bad("compare with a coverage of 1", lambda: tc.compare(TENSOR, TENSOR, ["vmp"], estimator=SMALL, coverage=1.0))
bad("compare of what is no tensor", lambda: tc.compare(3, TENSOR, ["vmp"], estimator=SMALL))
bad("select_rank of no ranks", lambda: tc.select_rank(SMALL, TENSOR, ranks=[]))
bad("select_rank of a rank of 0", lambda: tc.select_rank(SMALL, TENSOR, ranks=[0]))
bad("select_rank by a rule that is not there", lambda: tc.select_rank(SMALL, TENSOR, rule="two"))
bad("select_rank of one fold", lambda: tc.select_rank(SMALL, TENSOR, ranks=[1], cv=1))
bad("select_rank of what is no model", lambda: tc.select_rank(3, TENSOR))
bad("replicability by a word that is not there", lambda: tc.replicability(SMALL, TENSOR, by="thirds"))
bad("replicability of one fit", lambda: tc.replicability(SMALL, TENSOR, n_repeats=1))
bad("factor_match_score of other rows", lambda: tc.factor_match_score([np.ones((3, 2))] * 2, [np.ones((4, 2))] * 2))
bad("factor_match_score of what are no factors", lambda: tc.factor_match_score(3, 4))
for params in (
    {"n_entries": 1000},
    {"n_entries": 9, "density": 0.5},
    {"likelihood": "cauchy", "n_entries": 9},
    {"density": 2.0},
    {"n_entries": 9, "prior_sd": -1.0},
):
    bad(f"simulate_cp {params}", lambda params=params: tc.simulate_cp((5, 4), 2, **params))
bad("simulate_cp of one mode", lambda: tc.simulate_cp((5,), 2, 3))
bad("metrics of other lengths", lambda: tc.metrics.rmse([1.0, 2.0], [1.0]))
bad("metrics of labels that are none", lambda: tc.metrics.log_loss([0.5, 1.0], [0.2, 0.3]))
bad("metrics of probabilities above 1", lambda: tc.metrics.log_loss([0, 1], [0.2, 1.3]))
bad("metrics of one class", lambda: tc.metrics.auc([1, 1], [0.2, 0.3]))
bad("distributed.fit of what is no CP model", lambda: tc.distributed.fit(tc.BayesianPCA(2), GAPS))
bad("distributed.predict of what is no table of Dask", lambda: tc.distributed.predict(model(), ASKED))
bad("warmup of a kind that is not there", lambda: tc.warmup(["tensors"]))
bad("a name that is not there", lambda: tc.CPRegresor)

# The shell.


def shell(*words: str) -> None:
    """Run the shell's program on a small file, and raise what it says last, after its exit code."""
    from tensorcep.cli.main import main

    said, out = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(said), contextlib.redirect_stdout(out):
        data = Path(folder, "data.csv")
        table().to_csv(data, index=False)
        names = {"DATA": str(data), "OUT": str(Path(folder, "out.npz"))}
        try:
            code: Any = main(
                [word.replace("FOLDER", folder) if "FOLDER" in word else names.get(word, word) for word in words]
            )
        except SystemExit as end:
            code = end.code
    if code:
        raise RuntimeError(f"exit code {code}: {said.getvalue().strip().splitlines()[-1]}")


SHELL = [
    "",
    "fly",
    "fit",
    "fit DATA",
    "fit none.csv -o OUT",
    "fit DATA -o OUT --rank 0",
    "fit DATA -o OUT --rank some",
    "fit DATA -o OUT --method em",
    "fit DATA -o OUT --value stars",
    "fit DATA -o OUT --modes user,shop",
    "fit DATA -o OUT --prior wide",
    "fit DATA -o OUT --format xml",
    "fit DATA -o /no/such/folder/model.npz --rank 2 --max-iter 2",
    "fit DATA -o OUT --series shop",
    "fit DATA -o OUT --features shop=none.csv",
    "fit DATA -o OUT --likelihood cauchy",
    "fit DATA -o OUT --flight 3",
    "predict none.npz DATA",
    "predict DATA DATA",
    "evaluate none.npz DATA",
    "stream DATA -o OUT --batch-size 0",
    "stream none.csv -o OUT",
    "recommend none.npz --mode item",
    "components none.npz",
    "transform none.npz DATA",
    "score none.npz DATA",
    "report none.npz",
    "compare DATA --methods em",
    "compare none.csv",
    "select-rank DATA --ranks 0",
    "select-rank DATA --cv 1",
    "info none.csv",
    "convert DATA FOLDER/cells.xyz",
    "split DATA a.csv b.csv --test-size 2.5",
    "datasets moon",
    "demo --rank x",
    "warmup tensors",
]
for words in SHELL:
    bad(f"shell: tensorcep {words}", shell, *words.split())
