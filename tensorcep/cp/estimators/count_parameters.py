"""What the count estimator learns beside its rows: the dispersions, and the share of structural zeros."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tensorcep.core.checks import check_choice, check_flag, check_range, fail_value
from tensorcep.cp.estimators.defaults import Chosen
from tensorcep.cp.estimators.noise import uneven_dispersion
from tensorcep.cp.estimators.overdispersion import has_wild_count
from tensorcep.cp.problem import Uneven
from tensorcep.likelihoods import names_of
from tensorcep.likelihoods.inflated import zero_inflated
from tensorcep.likelihoods.record import Likelihood
from tensorcep.likelihoods.zeros import Zeros

# Shares at which a fit may start.
STARTS = (0.01, 0.9)


class CountParameters:
    """The part of an estimator of counts that tells of their dispersion and of structural zeros."""

    _inflated: ClassVar[bool] = False  # until a fit

    def _given_name(self: Any) -> str:
        """The parameter likelihood after its check; a dispersion for every row asks for that which has one."""
        given, name = self.dispersion, check_choice("likelihood", self.likelihood, ("auto", *names_of("counts")))
        if isinstance(given, str) and given == "learned":
            return name
        if name not in ("auto", "negbinomial"):
            fail_value(
                f"dispersion={given!r} is for likelihood='negbinomial' or 'auto'; got {name!r}; use one of these, or "
                "dispersion='learned'."
            )
        if not isinstance(given, str):
            return name
        if self._asks_for_zeros():
            fail_value(
                f"zero_inflation=True takes one dispersion of all counts; got dispersion={given!r}; leave one out."
            )
        return "negbinomial"

    def _given_dispersion(self: Any) -> float | None:
        """The parameter dispersion after its check; None where it is to be learned."""
        if isinstance(self.dispersion, str):  # which mode it names is known later
            return None
        return check_range(
            "dispersion", self.dispersion, 0.0, include_low=False, instead="'learned', the name of a mode, or "
        )

    def _is_wild(self, values: np.ndarray) -> bool:
        """Whether one of the counts could decide all of a fit by chains."""
        return has_wild_count(values)

    def _decide_noise(self: Any, labels: Any, chosen: Chosen, streaming: bool) -> tuple[Uneven | None, dict[str, Any]]:
        """How the dispersion differs; there is no other noise."""
        return uneven_dispersion(self.dispersion, labels, chosen.method, streaming), {}

    def _with_zeros(self: Any, likelihood: Likelihood, asked: bool, share: float | None = None) -> Likelihood:
        """The likelihood with structural zeros if they are asked for, whose share starts by main effects."""
        if not asked:
            return likelihood
        if likelihood.extent != "exposure":
            fail_value(
                f"zero_inflation=True is for likelihood='poisson' or 'negbinomial'; got {likelihood.name!r}; leave it "
                "out."
            )
        zeros = Zeros() if share is None else Zeros(start=float(np.clip(share, *STARTS)))
        return zero_inflated(likelihood, zeros)

    def _asks_for_zeros(self: Any) -> bool:
        """The parameter zero_inflation after its check."""
        return check_flag("zero_inflation", self.zero_inflation)

    @property
    def zero_share_(self: Any) -> float | None:
        """Posterior mean of the share of structural zeros; None where none were looked for."""
        theta = self._fitted_belief().theta
        return float(theta.values[:, -1].mean()) if self._inflated and theta is not None else None

    @property
    def zero_share_std_(self: Any) -> float | None:
        """Posterior standard deviation of the share of structural zeros; None where none were looked for."""
        theta = self._fitted_belief().theta
        if not self._inflated or theta is None:
            return None
        within = 0.0
        if theta.shares is not None:
            a, b = theta.shares
            within = float((a * b / ((a + b) ** 2 * (a + b + 1.0))).mean())
        return float(np.sqrt(within + theta.values[:, -1].var()))

    @property
    def dispersion_(self: Any) -> float | np.ndarray | None:
        """Posterior mean of r, or the number that was given; None for Poisson and binomial counts."""
        theta, likelihood = self._fitted_belief().theta, self._likelihood()
        if likelihood.name != "negbinomial":
            return None
        if theta is None:
            return float(likelihood.default_theta)
        if theta.mode is not None:
            return np.asarray(theta.values.mean(axis=0))
        return float(theta.values[:, 0].mean()) if likelihood.parameter is not None else float(likelihood.default_theta)

    @property
    def dispersion_std_(self: Any) -> float | np.ndarray | None:
        """Posterior standard deviation of r; None where it was given or has no law."""
        theta = self._fitted_belief().theta
        if theta is None or (theta.gamma is None and len(theta.values) == 1) or self._likelihood().parameter is None:
            return None
        within = 0.0 if theta.gamma is None else (theta.gamma[0] / theta.gamma[1] ** 2).mean(axis=0)
        values = theta.values[:, :1] if self._inflated else theta.values
        sd = np.sqrt(within + values.var(axis=0))
        return float(sd[0]) if theta.mode is None else sd
