"""The rows' prior of a fit, and the row means that it starts from, by its spec: all that a plan knows of priors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import room_of, weighted_mean
from tensorcep.core.checks import check_choice, check_random_state, fail_value, word_or_range
from tensorcep.cp.inputs.side_information import Clocks, Designs
from tensorcep.cp.model.columns import CLAMPED
from tensorcep.cp.model.entries import Entries
from tensorcep.cp.model.problem import Uneven
from tensorcep.cp.plan.spec import INITS, SCALES, FitSpec
from tensorcep.likelihoods.base import Likelihood
from tensorcep.priors import LEARNED
from tensorcep.priors.base import RowPrior
from tensorcep.priors.by_mode import PriorByMode
from tensorcep.priors.fixed import FixedPrior, Prior, natural_lines


class Data(NamedTuple):
    """What a fit is to explain, and what is known of its rows."""

    entries: Entries
    values: np.ndarray  # in the order of the entries
    shape: tuple[int, ...]
    likelihood: Likelihood
    designs: Designs  # features of rows
    clocks: Clocks  # and their axes
    uneven: Uneven | None = None
    weight: np.ndarray | None = None  # (N,), how much each value counts; None where all count once


def expected_columns(
    free: np.ndarray, intercept: float, centre: float, scale_of: Callable[[int, int], float]
) -> tuple[np.ndarray, np.ndarray]:
    """Expected means (K, R) of the columns, and the standard deviations (R,) of their free elements."""
    # every part (main effects, pairs, CP) is expected to explain as much as every other: ``scale_of(order, rank)`` is
    # the scale at which the sum of `rank` products of `order` factors is as large as the data
    active = free.sum(axis=0)
    parts, counts = np.unique(active, return_counts=True)
    scales = {j: scale_of(j, n * len(parts)) for j, n in zip(parts.tolist(), counts.tolist(), strict=True)}
    mean = np.where(free & (active > 1), centre, np.where(free, 0.0, 1.0))
    if active.min() == 1:
        first = int(np.argmin(active))
        mean[free[:, first], first] = intercept  # of the first main effect
    return mean, np.array([scales[j] for j in active.tolist()])


class ExpectedRows(NamedTuple):
    """What is expected of the rows, the starts (n_rows, R) of fits, and the seed of methods that draw at random."""

    given: Prior
    prior: RowPrior  # the same as methods take it; one that is learned begins with it
    starts: tuple[np.ndarray | None, ...]
    seed: int


def plan_rows(spec: FitSpec, data: Data, kind: Any, free: np.ndarray, n_starts: int, random_state: Any) -> ExpectedRows:
    """Prior ("fixed", "learned", "ard", or as given), starts and seed of a fit in its `free` (K, R) bool columns."""
    # all is checked before the first random number is drawn, so that a refused fit leaves a Generator as it was
    y, shape, likelihood, weight = data.values, data.shape, data.likelihood, data.weight
    scale = word_or_range("prior_scale", spec.prior_scale, ("auto",), *SCALES)
    centre = word_or_range("prior_mean", spec.prior_mean, ("uniform",), -np.inf)
    rank, with_components_alone = free.shape[1], bool(free.all())
    given = checked_init(spec.init, shape, rank)
    values, intercept = spec.target.latent_guess(y, likelihood, weight), 0.0
    if not with_components_alone:
        intercept, centred = spec.target.intercept(y, likelihood, weight), room_of(values).empty(len(values))
        np.subtract(values, weighted_mean(values, weight), out=centred)
        values = centred

    def scale_of(order: int, rank: int) -> float:
        return spec.target.auto_scale(values, order, rank, weight) if scale == "auto" else float(scale)

    fixed = with_components_alone and kind == "fixed"
    if isinstance(kind, Prior):
        if not with_components_alone:
            fail_value("prior must be 'fixed', 'learned' or 'ard' with interactions; a Prior serves interactions='cp'.")
        if spec.prior_scale != "auto" or centre != "uniform":
            fail_value("prior_scale and prior_mean are for priors that are not given; leave them out beside a Prior.")
        prior, mean, sd = checked_prior(kind, shape, rank), np.zeros(free.shape), np.ones(rank)
    else:
        mean, sd = expected_columns(free, intercept, 0.0 if centre == "uniform" else centre, scale_of)
        precision = list(np.where(free, sd**-2, CLAMPED))
        if with_components_alone:
            one = float(sd[0])  # the powers of an array may differ in the last bit
            precision = [1.0 / one**2 if fixed else one**-2] * len(shape)
        prior = Prior(list(mean), precision)
    drawn = fixed and centre == "uniform"  # the paper's prior: one draw per row, kept
    starts_at_prior = isinstance(given, str) and given == "prior"
    if starts_at_prior and not (drawn or (with_components_alone and any(np.any(mean) for mean in prior.mean))):
        where = "at prior means of zero" if with_components_alone else "interactions at zero"
        fail_value(f'init="prior" starts {where}, where every message is zero; use init="random".')
    rng, rows = check_random_state(random_state), None if isinstance(given, str) else given
    if drawn:
        prior = prior._replace(mean=[sd * rng.random((n, rank)) for n in shape])

    def first_rows() -> np.ndarray:
        """Row means to start from, (n_rows, R): main effects at their mean, products at random, unless given."""
        # products at a common mean would all get the same messages, and at the prior mean zero no messages at all
        start, of_rows = np.repeat(mean, shape, axis=0), np.repeat(free, shape, axis=0)
        if rows is not None:
            return np.where(of_rows, rows, start)
        return np.where(of_rows & (free.sum(axis=0) > 1), sd * rng.standard_normal(start.shape), start)

    starts = [None if starts_at_prior else first_rows() for _ in range(n_starts)]
    natural, learned = natural_lines(prior, shape, rank), None if isinstance(kind, Prior) else LEARNED.get(kind)
    law: RowPrior = FixedPrior(*natural)
    if learned is not None:
        law = learned(*natural, mean=mean, scale=np.broadcast_to(sd, free.shape), free=free)
    if isinstance(law, PriorByMode):
        law = replace(law, designs=tuple(data.designs), clocks=tuple(data.clocks))
    return ExpectedRows(prior, law, tuple(starts), int(rng.integers(2**63)))


def checked_prior(prior: Prior, shape: tuple[int, ...], rank: int) -> Prior:
    """Return a Prior whose means and precisions fit the shape, are finite, and positive definite."""
    if not len(prior.mean) == len(prior.precision) == len(shape):
        fail_value(
            f"prior must hold one mean and one precision for each of {len(shape)} modes; got {len(prior.mean)} and "
            f"{len(prior.precision)}."
        )
    for k, (n, mean, precision) in enumerate(zip(shape, prior.mean, prior.precision, strict=True)):
        mean, precision = np.asarray(mean, dtype=np.float64), np.asarray(precision, dtype=np.float64)
        if mean.shape not in ((), (rank,), (n, rank)):
            fail_value(f"prior.mean of mode {k} must have shape (), ({rank},) or ({n}, {rank}); got {mean.shape}.")
        if precision.shape not in ((), (rank,), (rank, rank), (n, rank, rank)):
            allowed = f"(), ({rank},), ({rank}, {rank}) or ({n}, {rank}, {rank})"
            fail_value(f"prior.precision of mode {k} must have shape {allowed}; got {precision.shape}.")
        if not (np.isfinite(mean).all() and np.isfinite(precision).all()):
            fail_value(f"prior of mode {k} must be finite; got nan or infinity.")
        least = precision.min() if precision.ndim < 2 else np.linalg.eigvalsh(precision).min()
        if least <= 0.0:
            fail_value(f"prior.precision of mode {k} must be positive definite; its least eigenvalue is {least:g}.")
    return prior


def checked_init(init: Any, shape: tuple[int, ...], rank: int) -> Any:
    """A word, or the given row means (n_rows, R)."""
    if isinstance(init, str):
        return check_choice("init", init, INITS)
    factors = [np.asarray(factor, dtype=np.float64) for factor in init] if isinstance(init, (list, tuple)) else []
    if [factor.shape for factor in factors] != [(n, rank) for n in shape]:
        got = f"arrays of shapes {[factor.shape for factor in factors]}" if factors else repr(init)
        fail_value(
            f"init must be 'auto', 'random', 'prior', or a list of one array (n_k, {rank}) per mode of the shape "
            f"{shape}; got {got}."
        )
    if not all(np.isfinite(factor).all() for factor in factors):
        fail_value("init must be finite; got nan or infinity.")
    return np.concatenate(factors)
