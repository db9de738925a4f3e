"""The data sets that TensorLy ships; `tensorcep.entries.datasets` offers them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tensorcep.entries.labels import Labels
from tensorcep.entries.tensor import SparseTensor


def load_covid19_serology() -> SparseTensor:
    """Load the COVID-19 systems serology tensor that TensorLy ships: sample x antigen x receptor, 438 x 6 x 11.

    Values are log-scaled and centred antibody measurements, none missing. A sample's label is its patient's group and
    its row, such as "Severe 201", because the groups alone are not unique.

    Source: Zohar et al. (2020), Cell 183(6), as prepared by Tan et al. (2021), Molecular Systems Biology 17(9).

    Examples
    --------
    >>> from tensorcep import datasets
    >>> datasets.load_covid19_serology().shape
    (438, 6, 11)
    """
    from tensorly import datasets

    bunch = datasets.load_covid19_serology()
    groups, antigens, receptors = bunch.ticks
    ticks = [f"{group} {row}" for row, group in enumerate(groups)], antigens, receptors
    return _labelled(bunch.tensor, ticks, ("sample", "antigen", "receptor"))


def load_il2() -> SparseTensor:
    """Load the IL-2 mutein response tensor that TensorLy ships: ligand x time (h) x dose (nM) x cell, 13 x 4 x 12 x 8.

    The 192 cells that were not measured are left out.

    Source: Orcutt-Jahns, Emmel, Snyder, Taylor, Meyer (2021), Multivalency enhances the specificity of Fc-cytokine
    fusions.

    Examples
    --------
    >>> from tensorcep import datasets
    >>> datasets.load_il2().shape
    (13, 4, 12, 8)
    """
    from tensorly import datasets

    bunch = datasets.load_IL2data()
    return _labelled(bunch.tensor, bunch.ticks, ("ligand", "time", "dose", "cell"))


def _labelled(array: Any, ticks: Iterable[Any], names: Iterable[str]) -> SparseTensor:
    labels = [Labels(list(tick), name=name) for tick, name in zip(ticks, names, strict=True)]
    return SparseTensor.from_dense(np.asarray(array), labels=labels)
