"""The labels of several modes as a file holds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.entries.labels import Labels, pack_labels, unpack_labels


class StoredLabels(NamedTuple):
    """Per mode what `pack_labels` describes, None without labels; and its arrays."""

    described: tuple[Any, ...]
    arrays: dict[str, np.ndarray]

    def labels(self) -> tuple[Labels | None, ...]:
        """The labels of every mode."""
        each = enumerate(self.described)
        return tuple(None if item is None else unpack_labels(item, k, self.arrays) for k, item in each)


def stored_labels(labels: Sequence[Labels | None]) -> StoredLabels:
    """What a file holds of the labels of every mode.

    Raises
    ------
    ValueError
        On labels that cannot be stored.
    """
    arrays: dict[str, np.ndarray] = {}
    described = [None if found is None else pack_labels(found, k, arrays) for k, found in enumerate(labels)]
    return StoredLabels(tuple(described), arrays)
