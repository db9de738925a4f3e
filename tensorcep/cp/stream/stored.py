"""What a file holds of a stream, and the stream that comes back from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tensorcep.cp.stream.adf import ModeRows, Stream, StreamState, keys_of
from tensorcep.cp.stream.reservoir import Reservoir
from tensorcep.cp.stream.standing import Kept, Standing
from tensorcep.priors.design import Design


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

    Raises
    ------
    ValueError
        If it tells of deviations of other rows.
    """
    pairs = stored.state.pairs
    if pairs is not None and not pairs.fits(stored.state.sizes, clocks):
        raise ValueError("its deviations do not fit its stream")
    keys, names = keys_of(labels)
    state = stored.state._replace(designs=designs) if stored.state.maps else stored.state
    state = state._replace(clocks=clocks) if state.chains else state
    return Stream(keys=keys, names=names, **{**stored._asdict(), "state": state})
