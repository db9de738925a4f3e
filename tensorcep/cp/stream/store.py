"""What a model that learns from a stream keeps beside its parameters, and what a file holds of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tensorcep.cp.stream.adf import StreamState
from tensorcep.cp.stream.prequential import Standing
from tensorcep.cp.stream.reservoir import Kept, Reservoir
from tensorcep.cp.stream.row_priors import ModeRows
from tensorcep.priors.features import Design


class Stream(NamedTuple):
    """What a model that learns from a stream keeps beside its parameters.

    Attributes
    ----------
    keys : tuple of dict or None
        Per mode with labels, the row of each label.
    names : tuple
        The names of the modes, None where they have none.
    seed : int
        Of the prior means of new rows.
    uniform : bool
        Whether prior means are drawn (prior_mean="uniform"); otherwise new rows get the mode's average prior.
    reservoir : Reservoir or None
        Past entries that are learned again, where that was asked for.
    standing, kept : Standing, Kept or None
        How well the stream predicts, and its entries while it is beginning.
    watched : Kept or None
        Entries by which the stream is held against a fit.
    """

    state: StreamState
    keys: tuple[dict[Any, int] | None, ...]
    names: tuple[Any, ...]
    seed: int
    uniform: bool
    reservoir: Reservoir | None = None
    standing: Standing = Standing()
    kept: Kept | None = None
    watched: Kept | None = None


class StoredStream(NamedTuple):
    """What a file holds of a `Stream`."""

    state: StreamState
    seed: int
    uniform: bool
    reservoir: Reservoir | None
    standing: Standing = Standing()
    kept: Kept | None = None
    watched: Kept | None = None

    def dims(self) -> dict[str, int]:
        """The sizes of its arrays."""
        return self.state.dims()


def keys_of(labels: Sequence[Any]) -> tuple[tuple[dict[Any, int] | None, ...], tuple[Any, ...]]:
    """Per mode the row of each label, and the names of the modes; None where there are no labels."""
    keys = tuple(None if found is None else {key: i for i, key in enumerate(found)} for found in labels)
    return keys, tuple(None if found is None else found.name for found in labels)


def stored_stream(stream: Stream) -> StoredStream:
    """What a file holds of a stream: only the rows in use; its labels, features and axes are those of the model."""
    state = stream.state
    modes = (ModeRows(*(array[:n] for array in mode)) for mode, n in zip(state.modes, state.sizes, strict=True))
    shared = {name: getattr(stream, name) for name in StoredStream._fields}
    return StoredStream(**{**shared, "state": state._replace(modes=tuple(modes), designs=(), clocks=())})


def stream_of(
    stored: StoredStream,
    labels: Sequence[Any],
    designs: tuple[Design | None, ...] = (),
    clocks: tuple[Any, ...] = (),
) -> Stream:
    """The stream that a file holds, with the labels, the features and the axes of the model.

    Deviations of other rows are refused.
    """
    state = stored.state
    if state.pairs is not None and not state.pairs.fits(state.sizes, clocks):
        raise ValueError("its deviations do not fit its stream")
    keys, names = keys_of(labels)
    state = state._replace(designs=designs if state.maps else state.designs)
    state = state._replace(clocks=clocks if state.chains else state.clocks)
    return Stream(keys=keys, names=names, **{**stored._asdict(), "state": state})
