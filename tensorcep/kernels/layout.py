"""The work array of one thread: its parts lie one after the other, and a record tells where each begins."""

from __future__ import annotations

import itertools
from typing import NamedTuple, TypeVar

import numpy as np

from tensorcep.kernels.slots import LANES, lane_zeros

Slots = TypeVar("Slots", bound=NamedTuple)


def layout(record: type[Slots], **sizes: int) -> Slots:
    """Where every part of a work array begins.

    Parameters
    ----------
    record : type
        A NamedTuple of int: the parts in their order, and `size` last, which becomes the number of slots.
    **sizes : int
        Slots of the parts that take more or fewer than one.

    Raises
    ------
    TypeError
        If a size has the name of no part.
    """
    *parts, last = record._fields
    unknown = sizes.keys() - set(parts)
    if unknown or last != "size":
        raise TypeError(f"{record.__name__} has the parts {parts} and ends with {last!r}; got sizes of {set(sizes)}.")
    return record._make([0, *itertools.accumulate(sizes.get(name, 1) for name in parts)])


def work_array(at: Slots) -> tuple[np.ndarray, Slots]:
    """Zeros for all slots, with ones in the slot `one` where there is such, beside the record: scratch of a kernel."""
    w = lane_zeros((at[-1], LANES))
    if "one" in at._fields:
        w[at[at._fields.index("one")]] = 1.0
    return w, at
