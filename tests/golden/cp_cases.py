"""Cases of CP models: every family by every method, and every option."""

from __future__ import annotations

import contextlib
import inspect
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import tensorcep as tc
from tests.golden.data import Cells, cells, exposures, table, trials, weights
from tests.golden.table import Arrays, case, frame, joined, lines

NUMBERS = (
    "lower_bound_",
    "noise_precision_",
    "noise_sd_",
    "noise_dof_",
    "level_",
    "power_",
    "lower_limit_",
    "upper_limit_",
    "dispersion_",
    "dispersion_std_",
    "zero_share_",
    "zero_share_std_",
    "thresholds_",
    "thresholds_std_",
)
WORDS = ("method_", "prior_", "interactions_", "link_", "likelihood_", "noise_")


def answers(model: Any, data: Cells | None = None, asked: Any = None, **extent: Any) -> Arrays:
    """Posterior, traces and predictions of a CP model."""
    asked = data.asked if asked is None else asked
    out: Arrays = {"posterior": joined(model.posterior_), "factors": joined(model.factors_)}
    sure = not model.has_uncertainty()
    if not sure:
        out["covariances"] = joined(model.factor_covs_)
    out["sizes"] = np.array([model.n_iter_, model.converged_, model.rank_, model.n_samples_seen_, *model.shape_])
    out["weights"] = joined([model.weights_, model.relevance_])
    for name, values in model.trace_.items():
        if name != "seconds":
            out[f"trace {name}"] = np.asarray(values, dtype=float)
    for name in NUMBERS:
        value = getattr(model, name, None)
        if value is not None:
            out[name] = np.asarray(value, dtype=float)
    out["words"] = np.array([f"{name} {getattr(model, name)}" for name in WORDS if hasattr(model, name)])
    out["latent"] = joined(model.predict_latent(asked))
    out["predict"] = model.predict(asked, **extent)
    if "return_std" in inspect.signature(model.predict).parameters and not sure:
        out["std"] = model.predict(asked, return_std=True, **extent)[1]
    if hasattr(model, "predict_proba"):
        out["proba"] = model.predict_proba(asked)
    if not sure:
        out["interval"] = model.predict_interval(asked, 0.8, **extent)
        out["draws"] = joined(model.sample_posterior(12, asked[:3], random_state=1))
    if data is not None and asked is data.asked:
        out["score"] = model.log_score(asked, data.answer, **extent)
    return out


def fitted(make: Any, data: Cells, *, fit: dict[str, Any] | None = None, **params: Any) -> Any:
    """A CP model of few sweeps."""
    how = {"rank": 2, "max_iter": 6, "random_state": 0, "shape": data.shape, **params}
    return make(**how).fit(data.X, data.y, **(fit or {}))


def plain(
    make: Any, kind: str, order: int = 3, n: int | None = None, fit: dict[str, Any] | None = None, **params: Any
) -> Arrays:
    """A fit, and what it answers."""
    data = cells(kind, order, n=n)
    return answers(fitted(make, data, fit=fit, **params), data)


REG, LAB, CNT, ORD = tc.CPRegressor, tc.CPClassifier, tc.CPCountRegressor, tc.CPOrdinalClassifier
# Of each family the estimator, the kind of data, parameters, and the methods that fit it.
FAMILIES: dict[str, tuple[Any, str, dict[str, Any], tuple[str, ...]]] = {
    "real": (REG, "real", {}, ("cep", "laplace", "vmp", "wopt", "gibbs")),
    "lower limit": (REG, "lower", {"lower_limit": -0.2}, ("cep", "vmp", "gibbs")),
    "upper limit": (REG, "upper", {"upper_limit": 0.8}, ("cep", "vmp", "gibbs")),
    "probit": (LAB, "labels", {"link": "probit"}, ("cep", "laplace", "vmp", "wopt", "gibbs")),
    "logit": (LAB, "labels", {"link": "logit"}, ("cep", "laplace", "wopt", "pg-vb", "pg-gibbs")),
    "poisson": (CNT, "counts", {"likelihood": "poisson"}, ("cep", "laplace", "vmp", "wopt", "gibbs")),
    "negbinomial": (
        CNT,
        "wild",
        {"likelihood": "negbinomial"},
        ("cep", "laplace", "vmp", "wopt", "gibbs", "pg-vb", "pg-gibbs"),
    ),
    "binomial": (
        CNT,
        "successes",
        {"likelihood": "binomial"},
        ("cep", "laplace", "vmp", "wopt", "gibbs", "pg-vb", "pg-gibbs"),
    ),
    "ordinal probit": (ORD, "levels", {}, ("cep", "laplace", "vmp", "gibbs")),
    "ordinal logit": (ORD, "levels", {"link": "logit"}, ("cep", "laplace")),
}


def family(name: str, method: Any, order: int = 3, **more: Any) -> Arrays:
    """A fit of one family by one method."""
    make, kind, params, _ = FAMILIES[name]
    data = cells(kind, *more.pop("data", (order,)))
    given = more.pop("fit", {})
    extent: dict[str, Any] = {}
    if name == "binomial":
        given, extent = {**given, "n_trials": trials(len(data.y))}, {"n_trials": np.full(len(data.asked), 4)}
        data = data._replace(answer=np.minimum(data.answer, 4))
    sweeps = {"max_iter": 12} if "gibbs" in str(getattr(method, "name", method)) else {}
    return answers(fitted(make, data, fit=given, **{"method": method, **sweeps, **params, **more}), data, **extent)


for name, (_, _, _, methods) in FAMILIES.items():
    for method in methods:
        for order in (2, 3, 4):
            more = {2: {}, 3: {"interactions": "cp"}, 4: {"interactions": "main+cp"}}[order]
            case(f"{name}/{method}/order {order}", name, method, order, **more)(family)


# Options, each with the least that it needs.

ORDER = {
    "cep": tc.CEP,
    "laplace": tc.Laplace,
    "vmp": tc.VMP,
    "gibbs": tc.Gibbs,
    "pg-vb": tc.PGVB,
    "pg-gibbs": tc.PGGibbs,
}
RNG = np.random.default_rng(11)
START = [0.5 * RNG.standard_normal((n, 2)) for n in (8, 6, 5)]
PRIOR = tc.Prior([0.3, 0.0, np.linspace(-0.2, 0.2, 10).reshape(5, 2)], [2.0, 1.0, 0.5])
WEIGHTS = weights(140)
VARIANTS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    # what one method alone has
    "cep of second order": ("real", tc.CEP(order=2, warm_up=2), {}),
    "cep of second order, labels": ("probit", tc.CEP(order=2, warm_up=2), {}),
    "cep with averaged messages": ("real", tc.CEP(messages="averaged"), {}),
    "cep with averaged messages, counts": ("poisson", tc.CEP(messages="averaged"), {}),
    "cep in parallel": ("real", tc.CEP(schedule="parallel"), {}),
    "cep in parallel, labels": ("probit", tc.CEP(schedule="parallel", damping=0.7), {}),
    "cep with moments of the posterior": ("real", tc.CEP(moments="posterior"), {}),
    "cep with noise of cavities": ("real", tc.CEP(noise_moments="cavity", message_noise=(2.0, 1.0)), {}),
    "cep in single precision": ("real", tc.CEP(dtype="float32"), {}),
    "cep with adaptive damping": ("probit", tc.CEP(damping="adaptive"), {}),
    "cep as published": ("probit", tc.CEP(positive=False, message_precision=1e-6), {"prior": "fixed"}),
    "cep, annealed": ("logit", tc.CEP(anneal=3, anneal_power=5.0, n_starts=2), {}),
    "cep, a mixture": ("real", tc.CEP(n_ensemble=3), {}),
    "laplace in parallel": ("probit", tc.Laplace(schedule="parallel"), {}),
    "laplace, marginal curvature": ("real", tc.Laplace(curvature="marginal"), {}),
    "laplace in single precision": ("poisson", tc.Laplace(dtype="float32"), {}),
    "vmp, a mixture": ("real", tc.VMP(n_ensemble=2, n_starts=2), {}),
    "vmp, annealed": ("probit", tc.VMP(anneal=3, anneal_power=4.0), {}),
    "wopt with a ridge": ("real", tc.WOPT(ridge=0.1, iterations=5, memory=4), {}),
    "wopt with a prior weight": ("logit", tc.WOPT(prior_weight=2.0, least_gain=0.0), {}),
    "gibbs with sampled noise": ("real", tc.Gibbs(n_chains=2, noise="sampled", burn_in=4, thin=2), {}),
    "gibbs with noise of entries left out": ("real", tc.Gibbs(n_chains=2), {"data": (3, (12, 9, 6), 320)}),
    "gibbs with equal chains": ("probit", tc.Gibbs(n_chains=3, weights="equal"), {}),
    "gibbs in single precision": ("real", tc.Gibbs(n_chains=2, dtype="float32"), {}),
    "gibbs with a prior of the dispersion": ("negbinomial", tc.Gibbs(n_chains=2, dispersion_prior=(2.0, 0.5)), {}),
    # dispersions, noise, power and limits
    **{
        f"dispersions by row, {name}": ("negbinomial", make(dispersion_mode=1), {})
        for name, make in (("gibbs", tc.Gibbs), ("pg-vb", tc.PGVB), ("pg-gibbs", tc.PGGibbs))
    },
    **{
        f"dispersions by a mode's name, {name}": ("negbinomial", name, {"dispersion": "mode_1"})
        for name in ("cep", "vmp", "laplace")
    },
    **{
        f"known dispersion, {name}": ("negbinomial", name, {"dispersion": 2.0})
        for name in ("cep", "vmp", "gibbs", "pg-vb", "pg-gibbs", "wopt")
    },
    **{f"noise by mode, {name}": ("real", name, {"noise": 1}) for name in ("vmp", "gibbs")},
    **{f"noise by entry, {name}": ("outliers", name, {"noise": "entry"}) for name in ("vmp", "gibbs")},
    "noise that is chosen": ("outliers", "vmp", {"noise": "auto"}),
    "prior of the noise": ("real", "vmp", {"noise_prior": (2.0, 0.5)}),
    **{f"root, {name}": ("positive", name, {"power": 0.5}) for name in ("cep", "vmp", "gibbs")},
    **{f"logarithm, {name}": ("positive", name, {"power": 0}) for name in ("cep", "vmp", "gibbs", "laplace", "wopt")},
    "power that is chosen": ("positive", "vmp", {"power": "auto"}),
    "limit that is seen": ("lower", "gibbs", {}),
    "no intercept": ("real", "vmp", {"fit_intercept": False}),
    # structural zeros
    **{f"zero inflation, poisson, {name}": ("holes", name, {"zero_inflation": True}) for name in ("vmp",)},
    **{
        f"zero inflation, negbinomial, {name}": ("holes negbinomial", name, {"zero_inflation": True})
        for name in ("vmp", "pg-vb", "pg-gibbs")
    },
    "sampled zeros": ("logit", "pg-gibbs", {"zero_rate": 0.2}),
    # priors and columns
    **{
        f"prior {prior}, {name}": ("real", name, {"prior": prior})
        for prior in ("fixed", "learned", "ard")
        for name in ("cep", "laplace", "vmp", "gibbs")
    },
    **{
        f"prior with means, {name}": ("real", name, {"prior": PRIOR})
        for name in ("cep", "laplace", "vmp", "gibbs", "wopt")
    },
    **{f"prior ard, {name}": ("logit", name, {"prior": "ard"}) for name in ("pg-vb", "pg-gibbs")},
    "scale and mean of the prior": ("probit", "cep", {"prior": "fixed", "prior_scale": 0.7, "prior_mean": 0.1}),
    **{
        f"columns {columns}, {name}": ("real", name, {"interactions": columns})
        for columns in ("pairwise", "all")
        for name in ("cep", "laplace", "vmp", "gibbs", "wopt")
    },
    **{f"columns all, {name}": ("logit", name, {"interactions": "all"}) for name in ("cep", "pg-vb", "pg-gibbs")},
    "columns by number": ("poisson", "vmp", {"interactions": {"main": 1, "pair": 1, "cp": 2}}),
    # starts
    "random start": ("real", "vmp", {"init": "random"}),
    "start at the prior": ("real", "cep", {"init": "prior", "prior": PRIOR, "interactions": "cp"}),
    "start that is given": ("real", "laplace", {"init": START, "interactions": "cp"}),
    "random start, chains": ("real", tc.Gibbs(n_chains=2), {"init": "random"}),
    # weights
    **{
        f"weights, real, {name}": ("real", name, {"fit": {"sample_weight": WEIGHTS}})
        for name in ("cep", "laplace", "vmp", "gibbs", "wopt")
    },
    **{
        f"weights, probit, {name}": ("probit", name, {"fit": {"sample_weight": WEIGHTS}})
        for name in ("cep", "laplace", "vmp", "wopt")
    },
    **{
        f"weights, logit, {name}": ("logit", name, {"fit": {"sample_weight": np.ceil(WEIGHTS)}})
        for name in ("cep", "pg-vb", "pg-gibbs")
    },
    **{
        f"weights, counts, {name}": ("poisson", name, {"fit": {"sample_weight": WEIGHTS}})
        for name in ("cep", "vmp", "wopt")
    },
    "weights, levels": ("ordinal probit", "vmp", {"fit": {"sample_weight": WEIGHTS}}),
    # a tolerance that is met, threads
    "converged, vmp": ("real", "vmp", {"max_iter": 60, "tol": 0.02}),
    "converged, cep": ("real", "cep", {"max_iter": 60, "tol": 0.02}),
    **{
        f"two threads, {name}": (kind, name, {"n_jobs": 2})
        for kind, name in (
            ("real", "cep"),
            ("real", "vmp"),
            ("real", "gibbs"),
            ("probit", "laplace"),
            ("logit", "pg-vb"),
            ("logit", "pg-gibbs"),
            ("poisson", "vmp"),
            ("ordinal probit", "gibbs"),
        )
    },
}
FAMILIES |= {
    "outliers": (REG, "outliers", {}, ()),
    "positive": (REG, "positive", {}, ()),
    "lower": (REG, "lower", {}, ()),
    "holes": (CNT, "holes", {"likelihood": "poisson"}, ()),
    "holes negbinomial": (CNT, "holes", {"likelihood": "negbinomial"}, ()),
}
for name, (kind, method, more) in VARIANTS.items():
    case(f"option/{name}", kind, method, **more)(family)


# The defaults of everything.


@case("default/CPRegressor, order 3", REG, "real", 3)
@case("default/CPRegressor, order 2", REG, "real", 2)
@case("default/CPRegressor, order 4", REG, "real", 4)
@case("default/CPRegressor, positive values", REG, "positive", 3)
@case("default/CPClassifier", LAB, "labels", 3)
@case("default/CPClassifier by cep", LAB, "labels", 3, method="cep")
@case("default/CPCountRegressor", CNT, "counts", 3)
@case("default/CPCountRegressor, wild counts", CNT, "wild", 3)
@case("default/CPOrdinalClassifier", ORD, "levels", 3)
def default(make: Any, kind: str, order: int, **params: Any) -> Arrays:
    """A fit of a third of the entries with nothing set but the seed."""
    data = cells(kind, order)
    model = make(random_state=0, **params).fit(data.X[: 60 if order > 2 else 44], data.y[: 60 if order > 2 else 44])
    asked = np.minimum(data.asked, np.array(model.shape_) - 1)
    return answers(model, asked=asked)


# Exposures and offsets of counts.


@case("exposure/cep", "poisson", "cep")
@case("exposure/vmp", "poisson", "vmp")
@case("exposure/gibbs", "poisson", "gibbs")
@case("exposure/negbinomial, pg-vb", "negbinomial", "pg-vb")
@case("exposure/negbinomial, pg-gibbs", "negbinomial", "pg-gibbs")
@case("exposure/negbinomial, vmp", "negbinomial", "vmp")
def exposed(name: str, method: str) -> Arrays:
    data = cells("counts")
    model = fitted(CNT, data, fit={"exposure": exposures(140)}, method=method, likelihood=name)
    return answers(model, data, exposure=exposures(len(data.asked)))


# What is known of rows.


def known(prior: dict[str, Any], kind: str, method: Any, **params: Any) -> Arrays:
    """A fit to labelled entries with features, a series or a graph, and rows beyond those of the fit."""
    make = {"real": REG, "labels": LAB, "counts": CNT, "levels": ORD}[kind]
    entries = table(kind)
    how = {"rank": 2, "max_iter": 6, "random_state": 0, "method": method, **params}
    model = make(prior=prior, **how).fit(entries, value="value")
    asked = entries.drop(columns="value").iloc[:10]
    new = asked.iloc[:3].assign(**NEW)
    out = answers(model, asked=asked)
    out["latent of new rows"] = joined(model.predict_latent(new))
    effects = getattr(model, "feature_effects_", None)
    return out if effects is None or not len(effects) else {**out, **frame(effects, "effects")}


NEW = {"day": pd.to_datetime(["2024-01-03", "2024-01-09", "2024-01-12"])}
USERS = pd.DataFrame({"age": np.linspace(20.0, 60.0, 9), "kind": list("abcabcabc")}, index=[f"u{i}" for i in range(9)])
EDGES = [(f"u{i}", f"u{(i + 1) % 8}") for i in range(8)] + [("u0", "u4")]
ROWS: dict[str, dict[str, Any]] = {
    "features": {"user": tc.Features(USERS)},
    "series": {"day": tc.Series()},
    "season": {"day": tc.Series(kind="ou", period="3D")},
    "random walk": {"day": tc.Series(kind="rw")},
    "circle": {"day": tc.Series(cyclic=True, period="14D")},
    "ordered labels": {"item": tc.Series(order=[f"i{i}" for i in range(6)])},
    "graph": {"user": tc.Graph(EDGES)},
    "local": {"day": tc.Series(local="user")},
    "all": {
        "user": tc.Graph(EDGES),
        "item": tc.Features(pd.DataFrame({"x": np.arange(6.0)}, [f"i{i}" for i in range(6)])),
        "day": tc.Series(),
    },
}
for what, prior in ROWS.items():
    for method in ("cep", "gibbs", "vmp") if what != "circle" else ("vmp",):
        case(f"rows/{what}, {method}", prior, "real", method)(known)
for what in ("features", "series", "graph", "local"):
    case(f"rows/{what}, pg-vb", ROWS[what], "labels", "pg-vb", link="logit")(known)
    case(f"rows/{what}, pg-gibbs", ROWS[what], "labels", "pg-gibbs", link="logit")(known)
for what in ("features", "series", "graph"):
    case(f"rows/{what}, laplace", ROWS[what], "real", "laplace")(known)
    case(f"rows/{what}, counts", ROWS[what], "counts", "vmp", likelihood="poisson")(known)
case("rows/series, levels", ROWS["series"], "levels", "gibbs")(known)
case("rows/series of days without labels", {2: tc.Series()}, "real", "vmp")(
    lambda prior, kind, method: plain(REG, kind, prior=prior, method=method)
)


# Files, scratch and workers.


@case("scratch/real, gibbs", "real", "gibbs")
@case("scratch/real, vmp", "real", "vmp")
@case("scratch/real, averaged cep", "real", tc.CEP(messages="averaged"))
@case("scratch/probit, gibbs", "probit", "gibbs")
@case("scratch/logit, pg-gibbs", "logit", "pg-gibbs")
@case("scratch/logit, pg-vb", "logit", "pg-vb")
@case("scratch/poisson, vmp", "poisson", "vmp")
@case("scratch/ordinal probit, gibbs", "ordinal probit", "gibbs")
def on_scratch(name: str, method: Any) -> Arrays:
    with tempfile.TemporaryDirectory() as folder:
        return family(name, method, fit={"scratch": folder})


@case("scratch/of files", "vmp")
def of_files(method: str) -> Arrays:
    with tempfile.TemporaryDirectory() as folder:
        entries = table()
        for place, part in enumerate((entries.iloc[:70], entries.iloc[70:])):
            part.to_csv(Path(folder, f"part{place}.csv"), index=False)
        model = REG(2, method=method, max_iter=6, random_state=0)
        model.fit(str(Path(folder, "*.csv")), value="value", scratch=folder)
        return answers(model, asked=entries.drop(columns="value").astype(str).iloc[:10])


@case("memory/little", "gibbs")
def in_little_memory(method: str) -> Arrays:
    return family("real", method, fit={"memory": "1GB"})


WORKERS = (("real", "gibbs"), ("real", "cep"), ("real", "vmp"), ("logit", "pg-vb"), ("logit", "pg-gibbs"))


@case("two Dask workers/all")
def by_workers() -> Arrays:
    """Fits by two worker processes; that they have the bits of one process is told by an array of its own."""
    out: Arrays = {}
    with workers() as client:
        for name, method in WORKERS:
            make, kind, params, _ = FAMILIES[name]
            data = cells(kind)
            model = make(2, method=method, max_iter=6, random_state=0, interactions="cp", **params)
            tc.distributed.fit(model, data.tensor, client=client, n_parts=2)
            here = make(2, method=method, max_iter=6, random_state=0, interactions="cp", **params).fit(data.tensor)
            there, alone = answers(model, data), answers(here, data)
            for key in ("posterior", "predict", "latent"):
                out[f"{name}, {method}: {key}"] = there[key]
            same = all(np.array_equal(there[key], alone[key], equal_nan=True) for key in alone if key != "words")
            out[f"{name}, {method}: as in one process"] = np.array(same)
    return out


@contextlib.contextmanager
def workers() -> Iterator[Any]:
    """The client of two processes of one thread each."""
    import dask
    import distributed

    quiet = {"distributed.comm.timeouts.connect": "30s", "distributed.worker.memory.terminate": False}
    with dask.config.set(quiet):
        how: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "memory_limit": None}
        cluster = distributed.LocalCluster(dashboard_address=":0", silence_logs=50, **how)
        with cluster, distributed.Client(cluster) as client:
            yield client


# Streams.

STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "real, cep": ("real", {"method": "cep"}),
    "real, auto": ("real", {"method": "auto"}),
    "real, vmp": ("real", {"method": "vmp"}),
    "lower limit, vmp": ("lower limit", {"method": "vmp"}),
    "upper limit, cep": ("upper limit", {"method": "cep"}),
    "probit, cep": ("probit", {"method": "cep"}),
    "probit, vmp": ("probit", {"method": "vmp"}),
    "logit, cep": ("logit", {"method": "cep"}),
    "poisson, cep": ("poisson", {"method": "cep"}),
    "poisson, vmp": ("poisson", {"method": "vmp"}),
    "negbinomial, vmp": ("negbinomial", {"method": "vmp"}),
    "negbinomial, cep": ("negbinomial", {"method": "cep"}),
    "forgetting": ("real", {"method": "cep", "forget": 0.2}),
    "forgetting, vmp": ("real", {"method": "vmp", "forget": 0.2}),
    "revisits": ("real", {"method": "cep", "revisit": 20}),
    "revisits of labels": ("probit", {"method": "cep", "revisit": 200}),
    "learned prior": ("real", {"method": "cep", "prior": "learned"}),
    "ard": ("real", {"method": "vmp", "prior": "ard"}),
    "fixed prior": ("real", {"method": "cep", "prior": "fixed"}),
    "averaged messages": ("real", {"method": tc.CEP(messages="averaged")}),
    "all columns": ("real", {"method": "cep", "interactions": "all"}),
    "series": ("real", {"method": "cep", "prior": {2: tc.Series()}}),
    "series with local": ("real", {"method": "cep", "prior": {2: tc.Series(local=0)}}),
    "features": ("real", {"method": "vmp", "prior": {0: tc.Features(np.linspace(-1.0, 1.0, 16).reshape(8, 2))}}),
    "graph": ("real", {"method": "cep", "prior": {0: tc.Graph([(i, i + 1) for i in range(7)])}}),
}


def streamed(name: str, params: dict[str, Any], **more: Any) -> Any:
    """A model of three batches, and its data."""
    make, kind, own, _ = FAMILIES[name]
    data = cells(kind)
    how = {"rank": 2, "max_iter": 6, "random_state": 0, "shape": data.shape, **own, **params}
    model = make(**how)
    for place, time in ((slice(0, 80), 0.0), (slice(80, 110), 1.0), (slice(110, 140), 2.5)):
        given = {key: values[place] for key, values in more.items()}
        model.partial_fit(data.X[place], data.y[place], time=time, **given)
    return model, data


def stream(name: str, params: dict[str, Any], **more: Any) -> Arrays:
    model, data = streamed(name, params, **more)
    extent = {key: np.full(len(data.asked), 5) for key in more if key != "sample_weight"}
    out = answers(model, data, **extent)
    out["batches"] = np.array([model.n_batches_, model.n_revisited_, model.n_revisits_skipped_])
    return out


for what, (name, params) in STREAMS.items():
    case(f"stream/{what}", name, params)(stream)
case("stream/weights", "probit", {"method": "cep"}, sample_weight=WEIGHTS)(stream)
case("stream/exposures", "poisson", {"method": "vmp"}, exposure=exposures(140))(stream)
case("stream/trials", "binomial", {"method": "cep"}, n_trials=trials(140))(stream)


@case("stream/after a fit by draws")
def after_draws() -> Arrays:
    data = cells("real")
    model = fitted(
        REG, data.part(slice(0, 110)), method=tc.Gibbs(n_chains=1), max_iter=40, interactions="main+cp", rank=1
    )
    model.partial_fit(data.X[110:], data.y[110:])
    return answers(model, data)


@case("stream/after a fit, vmp", "vmp")
@case("stream/after a fit, cep", "cep")
def after_fit(method: str) -> Arrays:
    data = cells("real")
    model = fitted(REG, data.part(slice(0, 110)), method=method)
    model.partial_fit(data.X[110:], data.y[110:])
    return answers(model, data)


@case("stream/of a table with scores and new labels")
def of_table() -> Arrays:
    entries = table("labels").assign(value=cells("labels").y)
    later = entries.iloc[:10].assign(user=[f"new{i % 3}" for i in range(10)])
    told: list[pd.DataFrame] = []
    model = LAB(2, method="cep", max_iter=6, random_state=0)
    source = pd.concat([entries, later]).astype({"day": str})
    model.stream(source, batch_size=50, first_batch=80, value="value", scores=told.append)
    scores = pd.concat(told).drop(columns=["user", "item", "day"], errors="ignore")
    asked = source.drop(columns="value").iloc[-8:]
    return {**answers(model, asked=asked), **frame(scores, "scores")}


@case("stream/of a file")
def of_csv() -> Arrays:
    with tempfile.TemporaryDirectory() as folder:
        entries = table("counts")
        entries.to_csv(Path(folder, "counts.csv"), index=False)
        model = CNT(2, method="vmp", likelihood="poisson", max_iter=6, random_state=0)
        model.stream(str(Path(folder, "counts.csv")), batch_size=60, value="value")
        return answers(model, asked=entries.drop(columns="value").astype(str).iloc[:8])


# Going on from a fit.


@case("warm start/cep", "real", "cep")
@case("warm start/gibbs", "real", "gibbs")
@case("warm start/vmp", "real", "vmp")
@case("warm start/wopt", "logit", "wopt")
def warm(name: str, method: str) -> Arrays:
    make, kind, params, _ = FAMILIES[name]
    data = cells(kind)
    model = fitted(make, data.part(slice(0, 100)), method=method, interactions="cp", **params)
    return answers(model.fit(data.X, data.y, warm_start=True), data)


for name, method in (
    ("real", "cep"),
    ("real", "laplace"),
    ("real", "vmp"),
    ("real", "gibbs"),
    ("logit", "pg-vb"),
    ("logit", "pg-gibbs"),
    ("poisson", "vmp"),
    ("probit", "laplace"),
    ("negbinomial", "pg-vb"),
    ("ordinal probit", "vmp"),
):

    @case(f"fixed modes/{name}, {method}", name, method)
    def fixed(name: str, method: str) -> Arrays:
        make, kind, params, _ = FAMILIES[name]
        data = cells(kind)
        model = fitted(make, data.part(slice(0, 90)), method=method, interactions="main+cp", **params)
        return answers(model.fit(data.X[90:], data.y[90:], fixed_modes=[1, 2]), data)

    @case(f"fold-in/{name}, {method}", name, method)
    def folded(name: str, method: str) -> Arrays:
        """Two new rows, and a model that knows them."""
        make, kind, params, _ = FAMILIES[name]
        data = cells(kind)
        old = data.X[:, 0] < 6
        how = {"rank": 2, "max_iter": 6, "random_state": 0, "method": method, **params}
        model = make(**how).fit(data.X[old], data.y[old])
        rows = model.transform(data.X[~old], data.y[~old], mode=0)
        more = model.with_rows(rows)
        out = {"mean": joined(rows.mean), "covariance": joined(rows.cov), "latent": joined(more.predict_latent(data.X))}
        return {**out, "predict": more.predict(data.X), "shape": np.array(more.shape_)}


@case("forgotten entries/messages that were kept", tc.CEP(keep_messages=True, n_starts=1), False)
@case("forgotten entries/done again, cep", "cep", True)
@case("forgotten entries/done again, vmp", "vmp", True)
@case("forgotten entries/done again, gibbs", tc.Gibbs(n_chains=2), True)
def forgotten(method: Any, again: bool) -> Arrays:
    data = cells("real")
    how = {"data": data.X, "y": data.y} if again else {}
    model = fitted(REG, data, method=method, shape=None)
    model.forget_entries(data.X[:5], **how)
    out = {f"entries: {key}": value for key, value in answers(model, data).items()}
    if again:
        how = {"data": data.X[5:], "y": data.y[5:]}
    model.forget_rows(1, [2], **how)
    asked = data.asked[data.asked[:, 1] < 5]
    out |= {f"rows: {key}": value for key, value in answers(model, asked=asked).items()}
    return {**out, "told": np.array([str(sorted(one.items())) for one in model.forgotten_])}


@case("forgotten entries/of a reservoir", 200, False)
@case("forgotten entries/of a part of a stream", 40, True)
def forgotten_stream(revisit: int, partly: bool) -> Arrays:
    model, data = streamed("real", {"method": "cep", "revisit": revisit, "shape": None})
    model.forget_entries(data.X[:140:3], partly=partly)
    model.forget_rows(0, 3, partly=partly)
    asked = data.asked[data.asked[:, 0] < 7]
    return {**answers(model, asked=asked), "told": np.array([str(sorted(one.items())) for one in model.forgotten_])}


# Files of models, and that a model that was loaded goes on as the one that was saved.


for name, method in (
    ("real", "cep"),
    ("real", "gibbs"),
    ("real", "wopt"),
    ("lower limit", "vmp"),
    ("probit", "laplace"),
    ("logit", "pg-gibbs"),
    ("poisson", "vmp"),
    ("negbinomial", "pg-vb"),
    ("binomial", "pg-gibbs"),
    ("ordinal probit", "gibbs"),
):

    @case(f"saved and loaded/{name}, {method}", name, method)
    def saved(name: str, method: str) -> Arrays:
        make, kind, params, _ = FAMILIES[name]
        data = cells(kind)
        given = {"n_trials": trials(140)} if name == "binomial" else {}
        model = fitted(make, data, fit=given, method=method, **params)
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder, "model.npz"))
            again = tc.load(Path(folder, "model.npz"))
            with np.load(Path(folder, "model.npz"), allow_pickle=False) as archive:
                names = np.array(sorted(archive.files))
        return {**answers(again, asked=data.asked), "names of arrays": names}


@case("saved and loaded/a stream goes on", 0)
@case("saved and loaded/a stream with a reservoir goes on", 30)
def going_on(revisit: int) -> Arrays:
    model, data = streamed("real", {"method": "cep", "revisit": revisit})
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model.npz"))
        again = tc.load(Path(folder, "model.npz"))
    again.partial_fit(data.X[:40], data.y[:40] + 0.1)
    return answers(again, data)


# Questions.


@case("questions/real, vmp", "real", "vmp")
@case("questions/real, gibbs", "real", "gibbs")
@case("questions/real, cep mixture", "real", tc.CEP(n_ensemble=2))
@case("questions/labels, pg-gibbs", "labels", "pg-gibbs")
@case("questions/counts, vmp", "counts", "vmp")
@case("questions/levels, vmp", "levels", "vmp")
def questions(kind: str, method: Any) -> Arrays:
    """What else a model is asked: by labels, of blocks, of rows, of components."""
    make = {"real": REG, "labels": LAB, "counts": CNT, "levels": ORD}[kind]
    entries = table(kind)
    more = {"likelihood": "poisson"} if kind == "counts" else {}
    model = make(2, method=method, max_iter=8, random_state=0, interactions="main+cp", **more).fit(
        entries, value="value"
    )
    asked = entries.drop(columns="value").iloc[:6]
    out: Arrays = {}
    out |= frame(model.explain({name: asked[name].iloc[0] for name in asked}), "explain")
    out |= frame(
        model.recommend("item", given={"user": ["u1", "u2"], "day": asked["day"].iloc[0]}, n=3, exclude=None),
        "recommend",
    )
    out |= frame(model.recommend("item", given={"user": "u3"}, n=2, by="lower"), "recommend carefully")
    out |= frame(
        model.recommend("item", given={"user": "u3"}, n=2, by="thompson", random_state=3), "recommend by draws"
    )
    out |= frame(model.similar("user", "u2", n=4), "similar")
    out |= frame(model.anomaly_score(entries.iloc[:8], value="value"), "anomalies")
    out |= frame(model.components("item"), "components")
    out |= frame(model.variance_explained(), "shares")
    out |= frame(model.variance_explained(entries.iloc[:40], value="value"), "shares of entries")
    if kind != "levels":
        out["block"] = joined(model.predict_block({"user": "u1"}))
    out["draws of y"] = model.sample_y(asked, 2, random_state=2).astype(float)
    out["draws of rows"] = joined(model.sample_posterior(2, random_state=2))
    out["score"] = np.array(model.score(entries.drop(columns="value"), entries["value"]))
    out["summary"] = lines(model.summary())
    out["tensorly"] = joined([model.to_tensorly().weights, *model.to_tensorly().factors])
    out["diagnostics"] = lines(model.diagnostics_)
    if kind == "levels":
        out["expected"] = joined(model.expected_value(asked, return_std=True))
        out["by mean"] = model.predict(asked, by="mean").astype(float)
    if "gibbs" in str(method):
        out["chains"] = joined(model.chain_diagnostics(asked))
        out |= frame(model.factor_diagnostics(0), "factors")
    return out


@case("questions/callbacks, and a stop")
def callbacks() -> Arrays:
    told: list[list[float]] = []

    def after(sweep: int, info: Any, state: Any) -> bool:
        told.append([float(sweep), float(info.change)])
        return sweep >= 3

    data = cells("real")
    model = fitted(REG, data, method="vmp", callbacks=after)
    return {**answers(model, data), "told": np.array(told)}


@case("questions/fits from a generator, twice")
def generators() -> Arrays:
    data = cells("real")
    rng = np.random.default_rng(5)
    found = [joined(fitted(REG, data, method="vmp", random_state=rng).predict_latent(data.asked)) for _ in range(2)]
    state = fitted(REG, data, method="vmp", random_state=np.random.RandomState(5))
    return {"first": found[0], "second": found[1], "old generator": joined(state.predict_latent(data.asked))}
