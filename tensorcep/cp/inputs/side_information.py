"""What is known of rows in a fit: modes with features, series and graphs, and the rows that these add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import fail_value, warn_user
from tensorcep.core.settings import Settings
from tensorcep.cp.inputs.coordinates import by_mode, mode_of, names_of
from tensorcep.cp.methods import refuse_unable
from tensorcep.cp.posterior import Components
from tensorcep.entries.labels import Labels
from tensorcep.likelihoods.base import Likelihood
from tensorcep.priors.features import Design, Features, Mode, designed, warn_of_rows_without
from tensorcep.priors.gmrf import check_graph
from tensorcep.priors.graph import Graph, Net, net, warn_of_nodes
from tensorcep.priors.regression import MOST_DIRECT
from tensorcep.priors.series import Clock, Series, clock


class Local(NamedTuple):
    """The mode whose rows deviate along the axis of another mode, that mode, and its axis."""

    row: int
    along: int
    clock: Clock


# What a mode may have beside Features, a Series and a Graph.
OTHERWISE = ("auto", "learned")
# Rows of a graph from which samplers begin without fits by mean field.
LARGE = 5_000

Designs = tuple[Design | None, ...]
Clocks = tuple[Clock | Net | None, ...]


def has_features(prior: Any) -> bool:
    """Whether the parameter `prior` gives features of some mode."""
    return isinstance(prior, Mapping) and any(isinstance(own, Features) for own in prior.values())


def coupled(prior: Any) -> str | None:
    """What the parameter `prior` says that couples the rows of a mode, in words; None where nothing does."""
    given = [own for own in prior.values() if isinstance(own, (Series, Graph))] if isinstance(prior, Mapping) else []
    return f"a {type(given[0]).__name__}" if given else None


def word_of(known: Clock | Net) -> str:
    """What couples the rows of a fitted mode, in words."""
    return "a Graph" if isinstance(known, Net) else "a Series"


def knows_rows(prior: Any) -> str | None:
    """What the parameter `prior` knows of rows, in words; None where it knows nothing."""
    return "Features" if has_features(prior) else coupled(prior)


def lost_knowledge(prior: Any, features: Designs, series: Clocks) -> str | None:
    """What the parameter `prior` no longer says of rows that the fit knew, as of some files, in a sentence; or None."""
    if any(features) and not has_features(prior):
        return "the features of the fit are no longer among the parameters; set prior= to them, as for the fit."
    known = next((word_of(known) for known in series if known is not None), None)
    if known is None or coupled(prior) is not None:
        return None
    what = known.removeprefix("a ")
    return f"the {what} of the fit is no longer among the parameters; set prior= to it, as for the fit."


def described(
    prior: Any, shape: tuple[int, ...], labels: Sequence[Labels | None], columns: Sequence[np.ndarray] | None = None
) -> tuple[tuple[int, ...], tuple[Labels | None, ...], Designs, Clocks]:
    """Shape and labels of a fit with this `prior`, with rows that only it names; features and axis by mode, if any."""
    # with the coordinates of the entries, (N,) in each mode, warnings tell of rows that features or a graph miss
    if knows_rows(prior) is None:
        return shape, tuple(labels), (), ()
    sizes, known, names = list(shape), list(labels), names_of(labels)
    designs: list[Design | None] = [None] * len(shape)
    clocks: list[Clock | Net | None] = [None] * len(shape)
    for k, own in by_mode(labels, prior).items():
        mode = Mode(names[k], known[k], sizes[k])
        if isinstance(own, Features):
            design, mode = designed(own, mode)
            designs[k], sizes[k], known[k] = design, mode.size, mode.labels
            if columns is not None:
                warn_of_rows_without(mode, design.described, rows_among(columns[k], mode.size))
        if isinstance(own, Series):
            clocks[k] = clock(own, mode)
        if isinstance(own, Graph):
            graph, mode = net(own, mode)
            check_graph(graph, names[k])
            clocks[k], sizes[k], known[k] = graph, mode.size, mode.labels
            if columns is not None:
                warn_of_nodes(graph, mode, rows_among(columns[k], mode.size))
    own_designs, own_clocks = tuple(designs) if has_features(prior) else (), tuple(clocks) if coupled(prior) else ()
    return tuple(sizes), tuple(known), own_designs, own_clocks


def rows_among(rows: np.ndarray, size: int) -> np.ndarray:
    """Which of the rows 0, 1, ... occur, (size,) bool."""
    found = np.zeros(size, dtype=bool)
    found[rows] = True
    return found


def warn_of_new_rows(designs: Designs, seen: Sequence[np.ndarray], coords: np.ndarray, names: Sequence[Any]) -> None:
    """Say how many new rows of a batch (N, K), `seen` (n_k,) bool not, have no features, where most have none."""
    for k, design in enumerate(designs):
        if design is None:
            continue
        rows = np.unique(coords[:, k])
        rows = rows[(rows >= len(seen[k])) | ~seen[k][np.minimum(rows, len(seen[k]) - 1)]]
        inside = rows[rows < len(design.described)]
        without = len(rows) - int(design.described[inside].sum())
        if 2 * without > len(rows):
            warn_user(
                f"{without} of {len(rows)} new rows of mode {names[k]!r} have no features, and the prior of an average "
                "row; where they should have some, labels must be spelled as those of the features."
            )


def is_local(prior: Any) -> bool:
    """Whether the parameter `prior` says that rows deviate, each by itself."""
    return isinstance(prior, Mapping) and any(getattr(own, "local", None) is not None for own in prior.values())


def local_of(prior: Any, labels: Sequence[Labels | None], clocks: Clocks) -> Local | None:
    """The mode whose rows deviate along the axis of another, None where the parameter `prior` says of none."""
    if not is_local(prior):
        return None
    given = {k: own.local for k, own in by_mode(labels, prior).items() if getattr(own, "local", None) is not None}
    names = names_of(labels)
    if len(given) > 1:
        fail_value(f"one Series of a fit may have local=; got {len(given)}, of {[names[k] for k in given]}.")
    ((along, name),) = given.items()
    row, clock = mode_of(labels, name), clocks[along]
    if row == along:
        fail_value(f"local of the Series of mode {names[along]!r} must name another mode; got {name!r}.")
    if not isinstance(clock, Clock) or clock.circle:
        fail_value(f"the Series of mode {names[along]!r} is cyclic, along which rows have no local; leave one out.")
    return Local(row, along, clock)


def check_no_deviations(belief: Components, what: str, k: int | None = None) -> Components:
    """The belief, refused where rows deviate along another mode, or those of mode k do."""
    if belief.deviations is not None and (k is None or k in belief.deviations.modes):
        fail_value(f"{what} knows nothing of rows that deviate, which a Series with local= has; use predict, or fit.")
    return belief


def check_pairs(local: Local, coords: np.ndarray, labels: Sequence[Labels | None]) -> int:
    """How many pairs of a row and a time occur among entries (N, K); refused where no row has two."""
    pairs = np.unique(coords[:, [local.row, local.along]], axis=0)
    if len(pairs) == len(np.unique(pairs[:, 0])):
        names = names_of(labels)
        fail_value(
            f"local={names[local.row]!r} of the Series of mode {names[local.along]!r} needs a row with entries at two "
            "times or more; there is none; leave it out."
        )
    return len(pairs)


def check_mode_priors(prior: Mapping[Any, Any]) -> None:
    """Refuse a prior of a mode that is none."""
    for name, own in prior.items():
        if not (isinstance(own, (Features, Series, Graph)) or (isinstance(own, str) and own in OTHERWISE)):
            allowed = f"a tensorcep.Features, a tensorcep.Series, a tensorcep.Graph, or one of {OTHERWISE}"
            fail_value(f"prior of mode {name!r} must be {allowed}; got {own!r}.")


def check_known(designs: Designs, clocks: Clocks, local: bool, settings: Settings, likelihood: Likelihood) -> None:
    """Refuse what is known of rows to methods, or settings of them, that cannot take it."""
    if are_many(designs):
        most = max(design.n_features for design in designs if design is not None)
        cannot = f"takes at most {MOST_DIRECT} features of a mode; got {most}"
        refuse_unable(settings, "sampler", cannot, likelihood)
    for what in [word_of(own).removeprefix("a ") for own in clocks if own is not None]:
        refuse_unable(settings, "coupled_rows", f"takes no {what} of {likelihood.name!r} entries", likelihood)
    if local:
        refuse_unable(settings, "local", "cannot take a Series with local=", likelihood)


def are_large(clocks: Clocks) -> bool:
    """Whether a mode is a graph of so many rows that mean-field sweeps take longer than a sampler's."""
    return any(isinstance(known, Net) and known.n > LARGE for known in clocks)


def are_many(designs: Designs) -> bool:
    """Whether a mode has so many features that systems are solved by conjugate gradients."""
    return any(design is not None and design.n_features > MOST_DIRECT for design in designs)
