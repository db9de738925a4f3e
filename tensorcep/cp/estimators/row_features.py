"""What is known of rows in a fit: which modes have features, or are a series, and the rows that features add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tensorcep.core.checks import fail_value
from tensorcep.cp.estimators.modes import by_mode, names_of
from tensorcep.cp.methods import METHODS
from tensorcep.entries.labels import Labels
from tensorcep.likelihoods.record import Likelihood
from tensorcep.priors.design import Design
from tensorcep.priors.features import Features, Mode, designed
from tensorcep.priors.series import Clock, Series, clock
from tensorcep.priors.slopes import MOST_DIRECT

# What a mode may have beside Features and a Series.
OTHERWISE = ("auto", "learned")

Designs = tuple[Design | None, ...]
Clocks = tuple[Clock | None, ...]


class Described(NamedTuple):
    """The rows of a fit: shape and labels with the rows that only features name; features, and axis, of each mode."""

    shape: tuple[int, ...]
    labels: tuple[Labels | None, ...]
    designs: Designs
    clocks: Clocks


def has_features(prior: Any) -> bool:
    """Whether the parameter `prior` gives features of some mode."""
    return isinstance(prior, Mapping) and any(isinstance(own, Features) for own in prior.values())


def has_series(prior: Any) -> bool:
    """Whether the parameter `prior` says that a mode is a series."""
    return isinstance(prior, Mapping) and any(isinstance(own, Series) for own in prior.values())


def knows_rows(prior: Any) -> str | None:
    """What the parameter `prior` knows of rows, in words; None where it knows nothing."""
    if has_features(prior):
        return "Features"
    return "a Series" if has_series(prior) else None


def described(prior: Any, shape: tuple[int, ...], labels: Sequence[Labels | None]) -> Described:
    """The rows of a fit with this parameter `prior`; no designs where it gives no features, no clocks without series.

    Raises
    ------
    ValueError, TypeError
        If a mode is not known, or its features do not fit it, or it is no series.
    """
    if knows_rows(prior) is None:
        return Described(shape, tuple(labels), (), ())
    sizes, known, names = list(shape), list(labels), names_of(labels)
    designs: list[Design | None] = [None] * len(shape)
    clocks: list[Clock | None] = [None] * len(shape)
    for k, own in by_mode(labels, prior).items():
        mode = Mode(names[k], known[k], sizes[k])
        if isinstance(own, Features):
            designs[k], mode = designed(own, mode)
            sizes[k], known[k] = mode.size, mode.labels
        if isinstance(own, Series):
            clocks[k] = clock(own, mode)
    own_designs, own_clocks = tuple(designs) if has_features(prior) else (), tuple(clocks) if has_series(prior) else ()
    return Described(tuple(sizes), tuple(known), own_designs, own_clocks)


def check_mode_priors(prior: Mapping[Any, Any]) -> None:
    """Refuse a prior of a mode that is none.

    Raises
    ------
    ValueError
    """
    for name, own in prior.items():
        if not (isinstance(own, (Features, Series)) or (isinstance(own, str) and own in OTHERWISE)):
            allowed = f"a tensorcep.Features, a tensorcep.Series, or one of {OTHERWISE}"
            fail_value(f"prior of mode {name!r} must be {allowed}; got {own!r}.")


def check_number(designs: Designs, method: str, likelihood: Likelihood) -> None:
    """Refuse more features than a method takes.

    Raises
    ------
    ValueError
    """
    if are_many(designs) and not METHODS[method].sampler:
        most = max(design.n_features for design in designs if design is not None)
        fits = [m.name for m in METHODS.values() if m.takes_features and m.sampler and not m.lacks(likelihood)]
        fail_value(f"method {method!r} takes at most {MOST_DIRECT} features of a mode; got {most}; use one of {fits}.")


def are_many(designs: Designs) -> bool:
    """Whether a mode has so many features that systems are solved by conjugate gradients."""
    return any(design is not None and design.n_features > MOST_DIRECT for design in designs)
