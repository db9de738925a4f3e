"""`sample_weight` of the CP estimators: powers of the entries' likelihoods.

An entry of weight n counts as n entries that are equal: whole numbers are entries given so many times, for every method
and for streams; an entry of weight 0 is left out, its labels stay. Any other weight is the power of a likelihood, or
of what a method puts in its place: of the bound of a mean-field method, of the message of one that passes messages, of
the Polya-Gamma form of a sampler (PG(n b, f) variables), of the density of real values. As a weight goes to 0 the fit
goes to that without the entry (`tensorcep.cp.telling`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import check_values, check_weights, fail_value
from tensorcep.cp.estimators.entries import Entries
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import augmentation_in_use
from tensorcep.entries.batch import Batch

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
    """Entries as often as their weights say, if these are whole numbers; otherwise those that count, with weights.

    Raises
    ------
    ValueError
        If a weight is negative or not finite, or all are 0.
    """
    if sample_weight is None:
        return Weighted(entries, None, extent)
    coords, values, shape, labels = entries
    weights = _checked(sample_weight, len(values))
    if (weights == np.rint(weights)).all():
        which = _repeated(weights)
        return Weighted((coords[which], values[which], shape, labels), None, None if extent is None else extent[which])
    kept = weights > 0.0
    extent = None if extent is None else extent[kept]
    return Weighted((coords[kept], values[kept], shape, labels), weights[kept], extent)


def weighted_batch(batch: Batch, sample_weight: Any) -> Batch:
    """A batch with its entries as often as their weights say, if these are whole numbers; otherwise with weights.

    Raises
    ------
    ValueError
        If a weight is negative or not finite, or all are 0.
    """
    if sample_weight is None:
        return batch
    weights = _checked(sample_weight, len(batch.values))
    whole = bool((weights == np.rint(weights)).all())
    which = _repeated(weights) if whole else np.flatnonzero(weights)
    keys = tuple(None if own is None else [own[n] for n in which.tolist()] for own in batch.keys)
    extents = None if batch.extents is None else batch.extents[which]
    some = batch._replace(coords=batch.coords[which], keys=keys, values=batch.values[which], extents=extents)
    return some if whole else some._replace(weights=weights[which])


def _checked(sample_weight: Any, n: int) -> np.ndarray:
    return check_weights("sample_weight", check_values(sample_weight, n, name="sample_weight"))


def _repeated(weights: np.ndarray) -> np.ndarray:
    if weights.sum() > MOST_ENTRIES:
        fail_value(f"sample_weight counts entries, of which there may be 2**31; got {weights.sum():g}; divide it.")
    return np.repeat(np.arange(len(weights)), weights.astype(np.int64))


def check_power(name: str, problem: Problem) -> None:
    """Refuse weights that are no whole numbers where a method, by its name, takes none.

    Raises
    ------
    ValueError
        If the sampler draws normals that labels or limits hide, whose powers have no such form, levels or a dispersion
        are learned, zeros are structural, or noise differs.
    """
    likelihood = problem.likelihood
    normal = likelihood.normal if name == "gibbs" else None
    if normal is not None and augmentation_in_use(normal, problem) is not None:
        fail_value(
            f"method 'gibbs' takes whole numbers as weights of {likelihood.name!r} entries, each counting as so many; "
            "got others; use method='vmp' or 'cep', or link='logit' with method='pg-gibbs'."
        )
    if likelihood.levels is not None and name != "vmp":  # the others learn thresholds from whole entries
        fail_value(
            f"method {name!r} takes whole numbers as weights of ordered levels, each counting as so many entries; got "
            "others; use method='vmp'."
        )
    if likelihood.parameter is not None and not likelihood.parameter.is_precision:
        fail_value(
            "weights must be whole numbers where a dispersion is learned; got others; give dispersion=, or "
            "likelihood='poisson'."
        )
    if likelihood.zeros is not None:
        fail_value(
            "weights must be whole numbers with zero_inflation=True, each entry counting as so many; got others; "
            "round them, or use zero_inflation=False."
        )
    if problem.uneven is not None:
        fail_value(
            "weights must be whole numbers where noise differs, each entry counting as so many; got others; use "
            "noise='one'."
        )
