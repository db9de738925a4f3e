"""What a file holds of a fitted CP model, and a stream's part of it."""

from __future__ import annotations

import os
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from tensorcep.core.checks import fail_value
from tensorcep.core.packing import diagonal, offsets
from tensorcep.core.persist.models import StoredModel, check_names, fitted_record
from tensorcep.core.persist.models import write_model as write_record
from tensorcep.core.persist.records import RECORD, Sized, read_as
from tensorcep.cp.fitted.diagnostics import Diagnostics
from tensorcep.cp.fitted.model import FitResult, rows_of_posterior
from tensorcep.cp.methods import METHODS
from tensorcep.cp.posterior import Draws, Mixture, PointEstimate, Posterior, Result
from tensorcep.cp.stream.reservoir import StoredStream, stored_stream, stream_of
from tensorcep.cp.targets.base import Observation
from tensorcep.entries.labels import Labels, StoredLabels, stored_labels
from tensorcep.priors.deviations import Deviations
from tensorcep.priors.features import Design
from tensorcep.priors.graph import Net
from tensorcep.priors.normal_wishart import Expected
from tensorcep.priors.series import Clock

# What the square of a product of numbers of the rows may reach: beyond it predictions overflow.
LARGEST = 1e300
# What a row of logarithms may reach: counts are within 64 bits, and products of several rows may cancel.
LARGEST_LOG = 1e6
# What parameters came to; files name them as attributes of the estimator.
DECIDED = ("method", "rank", "max_iter", "prior", "interactions")


class FittedCP(NamedTuple):
    """What was fitted: the attributes of a CP estimator, without their last underscore."""

    posterior: Result
    unseen_mean: Annotated[np.ndarray, Sized("K R")]
    unseen_cov: Annotated[np.ndarray, Sized("K R R")]
    labels: StoredLabels
    n_iter: int
    converged: bool
    n_samples_seen: int
    n_batches: int
    own: dict[str, Any]
    trace: dict[str, Annotated[np.ndarray, Sized("_", "n")]]
    stream: StoredStream | None
    diagnostics: Diagnostics | None = None
    cells: Annotated[np.ndarray, Sized("_ K", "i")] | None = None
    features: tuple[Design | None, ...] = ()
    series: tuple[Clock | Net | None, ...] = ()
    expected: Expected | None = None
    apart: tuple[str, ...] = ()
    sampled: Annotated[np.ndarray, Sized("_ K", "i")] | None = None

    def dims(self) -> dict[str, int]:
        """The sizes of its arrays."""
        if len(self.labels.described) != len(self.posterior.shape):
            raise ValueError(f"labels of {len(self.labels.described)} modes do not fit its shape")
        return {name: size for name, size in self.posterior.dims().items() if name != "m"}


# What a result and its file have alike.
ALIKE = tuple(name for name in FittedCP._fields if name not in ("posterior", "labels", "own", "stream"))


def write_model(path: str | os.PathLike[str], estimator: BaseEstimator, extra: dict[str, Any] | None = None) -> None:
    """Write a fitted CP estimator: header with `extra`, parameters, posterior, trace, labels and stream."""
    fit: FitResult = estimator._result
    own = {**{f"{name}_": getattr(fit, name) for name in DECIDED}, "forgotten_": list(fit.forgotten)}
    own |= fit.observation.facts
    alike = {name: getattr(fit, name) for name in ALIKE}
    stream, kind = None if fit.stream is None else stored_stream(fit.stream), type(fit.observation)
    fitted = FittedCP(posterior=fit.posterior, labels=stored_labels(fit.labels), own=own, stream=stream, **alike)
    write_record(path, estimator, fitted, extra, read=lambda stored: read_result(stored, kind))


def read_result(stored: StoredModel, observation: type[Observation]) -> FitResult:
    """The result that `write_model` wrote; one of `core.persist.models.UNREADABLE` if something is missing or wrong."""
    theta = stored.arrays.get("posterior.theta")
    if stored.class_name == "CPOrdinalClassifier" and theta is not None and theta.ndim == 3:
        posterior = stored.header["fitted"]["posterior"]  # for a time files did not say that they hold thresholds
        posterior["n_thresholds"] = posterior["n_thresholds"] or theta.shape[2]
    fitted: FittedCP = fitted_record(stored, FittedCP)
    labels, facts = fitted.labels.labels(), fitted.own
    names = (*(f"{name}_" for name in DECIDED), "forgotten_", *observation.FACTS)
    check_names(facts, names)
    missing = [name for name in names if name not in facts]
    if missing:
        raise KeyError(missing[0])
    _check_sense(fitted, labels, observation.of_logs)
    rows = rows_of_posterior(fitted.posterior, labels, fitted.unseen_mean, fitted.unseen_cov)
    told, known = fitted.stream, (labels, fitted.features, fitted.series)
    stream = None if told is None else stream_of(told, *known)
    fields: dict[str, Any] = {"observation": observation.of(facts), "forgotten": tuple(facts["forgotten_"])}
    fields |= {name: facts[f"{name}_"] for name in DECIDED} | {name: getattr(fitted, name) for name in ALIKE}
    return FitResult(rows=rows, shape=fitted.posterior.shape, stream=stream, **fields)


def drop_projection(stored: StoredModel) -> None:
    """Forget a setting that CEP once had; refuse a fit by what it no longer does."""
    method = stored.params.get("method")
    if isinstance(method, dict) and method.get(RECORD) == "CEP" and method.pop("projection", "kl") != "kl":
        fail_value(
            f"'{stored.path}' holds a fit by CEP(projection='w2'), which this tensorcep no longer has; fit the model "
            "again without it and save it."
        )


def _check_sense(fitted: FittedCP, labels: tuple[Labels | None, ...], of_logs: bool) -> None:
    """Refuse what has the right shapes and is no model; `of_logs`: the rows tell of logarithms of counts."""
    for k, (found, n) in enumerate(zip(labels, fitted.posterior.shape, strict=True)):
        if found is not None and len(found) != n:
            raise ValueError(f"mode {k} has {len(found)} labels for {n} rows")
    if fitted.cells is not None and not ((fitted.cells >= 0) & (fitted.cells < fitted.posterior.shape)).all():
        raise ValueError("it names cells outside its shape")
    shape, told = fitted.posterior.shape, fitted.stream
    if told is not None:  # kernels take the entries that it holds as they are
        sample = None if told.reservoir is None else told.reservoir.sample
        for held in (told.kept, told.watched, sample):
            if held is not None and not ((held.coords >= 0) & (held.coords < told.state.sizes)).all():
                raise ValueError("its stream holds entries outside its shape")
        if any(held and not 0 <= held.fitted <= len(held.values) for held in (told.kept, told.watched)):
            raise ValueError("its stream holds fewer entries than it has fitted")
    sites = fitted.posterior.sites if isinstance(fitted.posterior, Posterior) else ()
    for site, n in zip(sites, shape, strict=bool(sites)):
        if site is not None and not ((site.place >= 0) & (site.place < n)).all():
            raise ValueError("its series or graph tells of rows outside its shape")
    for own, n in zip(fitted.features, shape, strict=bool(fitted.features)):
        if own is not None and (own.matrix.shape != (len(own.described), len(own.names)) or len(own.described) > n):
            raise ValueError("its features do not fit its shape")
    maps = () if told is None else told.state.maps
    for linear, own in zip(maps, fitted.features, strict=bool(maps)):
        if linear is not None and (
            own is None or len(linear.total) != own.n_features or linear.free.sum() != len(linear.mean)
        ):
            raise ValueError("its features do not fit its stream")
    chains = () if told is None else told.state.chains
    for chain, axis in zip(chains, fitted.series, strict=bool(chains)):
        phases = len(axis.phases) if isinstance(axis, Clock) and axis.seasonal else 0
        if chain is not None and (axis is None or chain.free.sum() != len(chain.mean) or len(chain.season) != phases):
            raise ValueError("its series do not fit its stream")
    for clock, n in zip(fitted.series, shape, strict=bool(fitted.series)):
        if isinstance(clock, Clock) and (len(clock.times) != n or not clock.step > 0.0):
            raise ValueError("its series do not fit its shape")
        if isinstance(clock, Net) and not clock.fits(n):
            raise ValueError("its graph does not fit its shape")
    np.linalg.cholesky(fitted.unseen_cov)
    posterior = fitted.posterior
    for member in posterior.members if isinstance(posterior, Mixture) else (posterior,):
        _check_member(member, of_logs)
    for name in ("lower_limit_", "upper_limit_", "_sampled_rate", "level_", "_extent_unit"):
        number = read_as(float | None, fitted.own.get(name), name)
        if number is not None and not (1.0 / LARGEST if name == "_extent_unit" else -LARGEST) <= number <= LARGEST:
            raise ValueError(f"{name} is no number that a fit has")
    classes, shares, method = (fitted.own.get(name) for name in ("_classes", "_shares", "method_"))
    if classes is not None and len(set(classes)) != (2 if shares is None else len(shares)):
        raise ValueError(f"its labels have not the classes {classes}")
    if method is not None and method not in METHODS:
        raise ValueError(f"there is no method {method!r}")


def _check_member(member: Posterior | Draws | PointEstimate, of_logs: bool) -> None:
    """Refuse rows that predictions would not bear, and laws that are none."""
    if isinstance(member, Posterior):
        if member.mode_prior is not None:
            np.linalg.cholesky(member.mode_prior.precision)
        precision = member.Lam[:, diagonal(member.rank)]
        numbers, least = member.eta, float(np.abs(precision).min())
        largest = float((np.abs(member.eta) / np.maximum(precision, 1.0 / LARGEST)).max(initial=0.0))
        laws = (member.noise, member.dispersion, member.uneven, member.zeros)
        parts = [getattr(law, name, None) for law in laws for name in ("a", "b", "mean", "shape")]
    else:
        numbers, least, largest = member.rows, np.inf, float(np.abs(member.rows).max(initial=0.0))
        parts = [getattr(member, name, None) for name in ("theta", "uneven", "factors")]
    if not float(np.abs(numbers).max(initial=0.0)) <= LARGEST ** (0.5 / len(member.shape)) / member.rank:
        raise ValueError("its rows are so large that predictions would overflow")
    if not least >= LARGEST ** (-1 / len(member.shape)):
        raise ValueError("its rows are known so little that predictions would overflow")
    if of_logs and not largest <= LARGEST_LOG:
        raise ValueError("its rows are logarithms of numbers that no count reaches")
    if not isinstance(member, PointEstimate) and not _fits(member, member.deviations):
        raise ValueError("its deviations do not fit its shape")
    if not all(_is_positive(part) for part in parts if part is not None):
        raise ValueError("a noise precision or dispersion is not positive")
    doubt = None if isinstance(member, PointEstimate) else member.doubt
    if doubt is not None and not np.min(doubt) >= 0.0:
        raise ValueError("the doubt of its latent values is no variance")


def _fits(member: Posterior | Draws, of: Deviations | None) -> bool:
    """Whether deviations, if there are some, are those of rows of the result, in order, in each of its components."""
    if of is None:
        return True
    n = 1 if isinstance(member, Posterior) else member.rows.shape[0] * member.rows.shape[1]
    shape, first = member.shape, offsets(member.shape)
    if len(of.mean) != n or not all(0 <= k < len(shape) for k in of.modes):
        return False
    sizes = (of.size, len(of.times)) == tuple(shape[k] for k in of.modes)
    known = bool((of.row >= 0).all() and (of.row < of.size).all() and _is_positive(of.precision))
    in_order = bool((np.lexsort((of.time, of.row)) == np.arange(len(of.row))).all())
    return sizes and known and in_order and tuple(of.first) == tuple(int(first[k]) for k in of.modes)


def _is_positive(numbers: ArrayLike) -> bool:
    return bool((np.isfinite(numbers) & (np.asarray(numbers) > 0.0)).all())
