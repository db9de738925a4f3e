"""What an entry counts: `sample_weight`, a power of its likelihood; and its exposure, or number of trials.

An entry of weight n counts as n entries that are equal: whole numbers are entries given so many times, for every method
and for streams; an entry of weight 0 is left out, its labels stay. Any other weight is the power of a likelihood, or
of what a method puts in its place: of the bound of a mean-field method, of the message of one that passes messages, of
the Polya-Gamma form of a sampler (PG(n b, f) variables), of the density of real values. As a weight goes to 0 the fit
goes to that without the entry (`tensorcep.cp.model.subsets`, which also says what exposures and trials do).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import check_values, check_weights, fail_value
from tensorcep.cp.inputs.coordinates import Entries, refuse_others
from tensorcep.cp.methods import refuse_unable
from tensorcep.cp.model.problem import Problem
from tensorcep.entries.io import Batch
from tensorcep.entries.tables import column_apart

MOST_ENTRIES = 2**31
WHOLE_REVISITED = (
    "weights must be whole numbers with revisit=, whose reservoir holds whole entries; got others; use revisit=0."
)


class Weighted(NamedTuple):
    """Entries, the weights (N,) that they have beside being there, None where all weigh the same, and their extents."""

    entries: Entries
    power: np.ndarray | None
    extent: np.ndarray | None = None


def weighted_entries(entries: Entries, sample_weight: Any, extent: np.ndarray | None = None) -> Weighted:
    """Entries as often as their weights say, if these are whole numbers; otherwise those that count, with weights."""
    if sample_weight is None:
        return Weighted(entries, None, extent)
    coords, values, shape, labels = entries
    which, power = _counted(sample_weight, len(values))
    return Weighted((coords[which], values[which], shape, labels), power, None if extent is None else extent[which])


def weighted_batch(batch: Batch, sample_weight: Any) -> Batch:
    """A batch with its entries as often as their weights say, as `weighted_entries`."""
    if sample_weight is None:
        return batch
    which, weights = _counted(sample_weight, len(batch.values))
    return batch._replace(
        coords=batch.coords[which],
        keys=tuple(None if own is None else [own[n] for n in which.tolist()] for own in batch.keys),
        values=batch.values[which],
        extents=None if batch.extents is None else batch.extents[which],
        weights=weights,
    )


def _counted(sample_weight: Any, n: int) -> tuple[np.ndarray, np.ndarray | None]:
    """The places of the entries that count, with their weights; as often as these say, and None, if they are whole."""
    weights = check_weights("sample_weight", check_values(sample_weight, n, name="sample_weight"))
    if (weights != np.rint(weights)).any():
        which = np.flatnonzero(weights)
        return which, weights[which]
    if weights.sum() > MOST_ENTRIES:
        fail_value(f"sample_weight counts entries, of which there may be 2**31; got {weights.sum():g}; divide it.")
    return np.repeat(np.arange(n), weights.astype(np.int64)), None


def check_power(name: str, problem: Problem) -> None:
    """Refuse weights that are no whole numbers to methods, and where something is learned, that take none."""
    likelihood, whole = problem.likelihood, "whole numbers, each counting as so many entries"
    cannot = f"cannot take weights of {likelihood.name!r} entries that are no whole numbers"
    refuse_unable(name, "weights", cannot, likelihood, problem, instead=whole)
    for is_so, where, instead in (
        (likelihood.learns_dispersion, "where a dispersion is learned", "give dispersion=, or likelihood='poisson'"),
        (likelihood.zeros is not None, "with zero_inflation=True", "round them, or use zero_inflation=False"),
        (problem.uneven is not None, "where noise differs", "use noise='one'"),
    ):
        if is_so:
            fail_value(f"weights must be {whole}, {where}; got others; {instead}.")


# The name of the argument of each kind of extent, and what has it.
ARGUMENTS = {"exposure": "exposure", "trials": "n_trials"}
TAKERS = {"exposure": "likelihood='poisson' or 'negbinomial'", "n_trials": "likelihood='binomial'"}


def split_extents(kinds: tuple[str, ...], X: Any, given: dict[str, Any]) -> tuple[Any, Any, str | None]:
    """The entries without a column of extents, the extents or None, and the name of that column."""
    # `kinds` are those that the likelihood may have, `given` the arguments: an array, or a column of the table X
    refuse_others("CPCountRegressor.fit", {name: value for name, value in given.items() if name not in TAKERS})
    said = {name: value for name, value in given.items() if value is not None}
    for name in said:
        if name not in [ARGUMENTS[kind] for kind in kinds]:
            fail_value(f"{name} is for {TAKERS[name]}; leave it out.")
    if not said:
        return X, None, None
    if len(said) > 1:
        fail_value("exposure is for rates and n_trials for binomial counts; give one of them.")
    ((name, value),) = said.items()
    return (*column_apart(X, name, value), value) if isinstance(value, str) else (X, value, None)


def checked_extents(kind: str, values: Any, n: int) -> np.ndarray:
    """Extents (n,) float64, finite and positive, numbers of trials whole; a number serves every entry."""
    name = ARGUMENTS[kind]
    values = np.full(n, values, dtype=np.float64) if np.ndim(values) == 0 else values
    extents = np.asarray(check_values(values, n, name=name))
    bad = ~(extents > 0.0) if kind == "exposure" else ~((extents >= 1.0) & (extents == np.rint(extents)))
    if bad.any():
        allowed = "above 0" if kind == "exposure" else "whole numbers from 1 on"
        i = int(np.argmax(bad))
        fail_value(f"{name} must be {allowed}; got {extents[i]:g} at position {i}; leave such entries out.")
    return extents


def check_trials(y: np.ndarray, trials: np.ndarray | None) -> None:
    """Refuse counts above their numbers of trials."""
    if trials is not None and (y > trials).any():
        i = int(np.argmax(y > trials))
        fail_value(
            f"binomial counts must be at most their number of trials; got {y[i]:g} of {trials[i]:g}; give n_trials=, "
            "or take likelihood='poisson'."
        )
