"""Settings of CP-WOPT, a point estimate by gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensorcep.core.checks import check_int, check_range, word_or_range
from tensorcep.core.settings import Settings
from tensorcep.cp.settings.base import Memory, Size, packed


@dataclass(repr=False, kw_only=True)
class WOPT(Settings):
    """CP-WOPT: the factors that maximise the penalised likelihood, by gradients, without uncertainty.

    Parameters
    ----------
    ridge : float or "prior", default="prior"
        Penalty, which keeps the factors finite where the entries alone do not (labels that the model can separate, more
        parameters than entries). A number: the loss grows by ridge / 2 times the sum of squares of the factors.
        "prior": by minus the log density of the rows' prior, for real values times the noise variance. The residuals of
        a point estimate shrink as it overfits and do not tell that variance: the variance of the values stands for it.
        The search is then the same in any unit of the values; with a number, as published, it sees them as they are.
    prior_weight : float or "auto", default="auto"
        What the log density of the prior counts, where it is the penalty: a point estimate of labels or counts that
        takes the prior at its word can be so sure of what it made of noise that a constant predicts better. "auto": 1
        for real values, whose variance stands before it already, for entries with weights, and where a prior or a start
        is given. Else the weight of 1, 3, 10, 30, ... with which a fit without some of the entries predicts these best,
        unless they are too few to tell, or so many that it hardly matters; that takes some four fits.
    iterations : int, default=20
        L-BFGS-B iterations that one sweep stands for. The search forgets the curvature between sweeps.
    memory : int, default=10
        Steps from which L-BFGS-B knows the curvature.
    least_gain : float, default=1.0
        The search ends after a sweep that gains less log likelihood, the penalty in it, than so many standard
        deviations of what as many free numbers gain by following noise alone, sqrt(n / 2). 0: by the tolerance alone.

    References
    ----------
    Acar, Dunlavy, Kolda and Morup (2011), Scalable tensor factorizations for incomplete data.

    Examples
    --------
    >>> from tensorcep import WOPT, CPRegressor
    >>> CPRegressor(method=WOPT(ridge=0.0)).method
    WOPT(ridge=0.0)
    """

    name: ClassVar[str] = "wopt"

    ridge: float | str = "prior"
    prior_weight: float | str = "auto"
    iterations: int = 20
    memory: int = 10
    least_gain: float = 1.0

    def check(self) -> None:
        word_or_range("ridge", self.ridge, ("prior",), 0.0)
        word_or_range("prior_weight", self.prior_weight, ("auto",), 0.0)
        check_int("iterations", self.iterations)
        check_int("memory", self.memory)
        check_range("least_gain", self.least_gain, 0.0)

    def bytes_at_peak(self, size: Size, max_iter: int) -> Memory:
        # at the start moments of the prior; then the search's own arrays, two for every step that it knows
        numbers = max(2 * packed(size.R) + 4 * size.R, size.Q * (2 * self.memory + 8) + 8 * size.R)
        return Memory(size.n_entries * (size.by_row + 4 * len(size.shape) + 72), 8 * size.n_rows * numbers)
