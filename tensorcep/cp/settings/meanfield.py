"""Settings of the mean-field engines: VMP and PG-VB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tensorcep.core.checks import check_int
from tensorcep.core.settings import Settings
from tensorcep.cp.settings.base import Decided, Memory, Size, check_annealing, check_pair, check_starts, packed


@dataclass(repr=False, kw_only=True)
class VMP(Settings):
    """Variational message passing, with a lower bound of the log evidence.

    For counts, which no latent value makes Gaussian, entries are matched to the log likelihood at the present rows; the
    bound is then that at the present dispersion, and may fall.

    Parameters
    ----------
    anneal : int or "auto", default="auto"
        Sweeps at the start in which every entry counts `anneal_power` times (no bound is reported for those), at most
        half of max_iter: from a start that knows nothing, components otherwise shrink to zero and stay there. "auto" is
        15 for real values and 40 otherwise; with a learned prior 5 (15 with values at a lower limit) and 15, and 2
        after a quick fit.
    anneal_power : float, default=10
    n_starts : int, default=3
        Random starts. Each gets the annealed sweeps; the one that then fits the training entries best goes on.
    n_ensemble : int, default=1
        Fits from different random starts, each the best of `n_starts`, whose mixture is the posterior.

    Examples
    --------
    >>> from tensorcep import VMP, CPRegressor
    >>> CPRegressor(method=VMP(n_starts=1)).method
    VMP(n_starts=1)
    """

    name: ClassVar[str] = "vmp"

    anneal: Decided = "auto"
    anneal_power: float = 10.0
    n_starts: int = 3
    n_ensemble: int = 1

    def check(self) -> None:
        check_annealing(self.anneal, self.anneal_power)
        check_starts(self.n_starts, self.n_ensemble)

    def bytes_at_peak(self, size: Size, max_iter: int) -> Memory:
        # per row Lam, cov and second moments, sums over entries, and vectors; beside those, factors of such sums in the
        # order of a mode's elements, or the posterior in all columns
        # a row's sums have a line for every pair of a free and a clamped column
        n, P, W = size.n_rows, packed(size.Q), packed(size.Q) + size.Q * (size.R - size.Q)
        state = 8 * n * (3 * P + W + 6 * size.Q + 2 * size.R)
        beside = size.posterior + max(8 * (n - min(size.shape)) * (W + size.R), size.posterior)
        starts = min(2, self.n_starts)
        return Memory(starts * size.n_entries * (size.by_row + 56), starts * state + beside)


@dataclass(repr=False, kw_only=True)
class PGVB(VMP):
    """Variational inference by Polya-Gamma augmentation: labels with the logit link, negative-binomial counts.

    Parameters
    ----------
    dispersion_prior : tuple of float, default=(1, 0.1)
        For counts, shape and rate of the Gamma prior of the dispersion r.
    dispersion_mode : int, optional
        The mode whose rows have a dispersion each; None for one that all entries share.
    anneal, anneal_power, n_starts, n_ensemble
        As in `VMP`; for "auto" 40 sweeps are annealed, and 15 with a learned prior.

    References
    ----------
    Klami (2014), Polya-Gamma augmentations for factor models.

    Examples
    --------
    >>> from tensorcep import PGVB, CPClassifier
    >>> CPClassifier(method=PGVB(n_starts=1)).method
    PGVB(n_starts=1)
    """

    name: ClassVar[str] = "pg-vb"

    dispersion_prior: tuple[float, float] = (1.0, 0.1)
    dispersion_mode: int | None = None

    def check(self) -> None:
        super().check()
        check_dispersion(self.dispersion_prior, self.dispersion_mode)


def check_dispersion(prior: Any, mode: Any) -> None:
    """Refuse a prior that is no pair of positive numbers, or a mode that is no whole number."""
    check_pair("dispersion_prior", prior)
    if mode is not None:
        check_int("dispersion_mode", mode, 0)
