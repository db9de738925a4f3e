"""Settings of the mean-field methods."""

from __future__ import annotations

from dataclasses import dataclass

from tensorcep.core.checks import check_int, check_range
from tensorcep.cp.parameters import check_parameter


@dataclass(frozen=True)
class VMPOptions:
    """Settings of VMP.

    Attributes
    ----------
    anneal : int
        Sweeps at the start in which every entry counts `anneal_power` times (no bound is reported for those): from a
        start that knows nothing, the uncertainty of the factors otherwise shrinks components to zero, where they stay.
    anneal_power : float

    Raises
    ------
    ValueError
        If a value is out of its range.
    """

    anneal: int = 0
    anneal_power: float = 10.0

    def __post_init__(self) -> None:
        check_int("anneal", self.anneal, 0)
        check_range("anneal_power", self.anneal_power, 1.0)


@dataclass(frozen=True)
class PGVBOptions:
    """Settings of PG-VB.

    Attributes
    ----------
    dispersion_prior : tuple of float
        For counts, shape and rate of the Gamma prior of the dispersion r.
    dispersion_mode : int or None
        The mode whose rows have a dispersion each; None for one that all entries share.
    anneal : int
        Sweeps at the start in which every entry counts `anneal_power` times (see `VMPOptions`).
    anneal_power : float
    """

    dispersion_prior: tuple[float, float] = (1.0, 0.1)
    dispersion_mode: int | None = None
    anneal: int = 0
    anneal_power: float = 10.0

    def __post_init__(self) -> None:
        check_parameter("dispersion", self.dispersion_prior, self.dispersion_mode)
        check_int("anneal", self.anneal, 0)
        check_range("anneal_power", self.anneal_power, 1.0)
