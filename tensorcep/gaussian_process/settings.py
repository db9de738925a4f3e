"""Settings of the methods for Gaussian processes, as in ``method=EP(schedule="sequential")``; their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensorcep.core.checks import check_choice, check_range
from tensorcep.core.settings import Engines, Settings


@dataclass(repr=False, kw_only=True)
class GPSettings(Settings):
    """Settings of a method for Gaussian processes."""


@dataclass(repr=False, kw_only=True)
class EP(GPSettings):
    """Expectation propagation.

    Parameters
    ----------
    schedule : {"parallel", "sequential"}, default="parallel"
        Update all sites from one posterior, with one Cholesky factor a sweep; or the posterior after every site.
    damping : float in [0, 1), optional
        Fraction of the old site kept. By default it starts at 0 and grows while the changes do not fall.

    References
    ----------
    Minka (2001), Expectation propagation for approximate Bayesian inference; Rasmussen and Williams (2006), sec. 3.6.

    Examples
    --------
    >>> from tensorcep import GaussianProcessClassifier
    >>> from tensorcep.gaussian_process.settings import EP
    >>> GaussianProcessClassifier(method=EP(damping=0.2)).method
    EP(damping=0.2)
    """

    name: ClassVar[str] = "ep"

    schedule: str = "parallel"
    damping: float | None = None

    def check(self) -> None:
        check_choice("schedule", self.schedule, ("parallel", "sequential"))
        if self.damping is not None:
            check_range("damping", self.damping, 0.0, 1.0, include_high=False)


@dataclass(repr=False, kw_only=True)
class QP(EP):
    """Quantile propagation: EP whose projection is the nearest Gaussian in the L2 Wasserstein distance.

    Kernels are learned by EP's evidence, as in the paper, and QP runs at the kernel that this finds: QP has no evidence
    of its own, and its surrogate (EP's formula at QP's sites) is not stationary in the sites.

    Parameters
    ----------
    schedule, damping
        As in `EP`.
    rule : {"quadrature", "table"}, default="quadrature"
        How standard deviations are found: to rounding error, or, for the probit, within 3e-5 of the ratio to EP's from
        a table of 1344 numbers, which is much faster.

    References
    ----------
    Zhang, Walder, Bonilla, Rizoiu, Xie (2020), Quantile propagation for Wasserstein-approximate Gaussian processes.

    Examples
    --------
    >>> from tensorcep import GaussianProcessClassifier
    >>> from tensorcep.gaussian_process.settings import QP
    >>> GaussianProcessClassifier(method=QP(rule="quadrature")).method.name
    'qp'
    """

    name: ClassVar[str] = "qp"

    rule: str = "quadrature"

    def check(self) -> None:
        super().check()
        check_choice("rule", self.rule, ("quadrature", "table"))


@dataclass(repr=False, kw_only=True)
class VB(GPSettings):
    """Variational Bayes with a full Gaussian, and a lower bound of the evidence; it has no settings.

    References
    ----------
    Opper and Archambeau (2009), The variational Gaussian approximation revisited.

    Examples
    --------
    >>> from tensorcep import GaussianProcessClassifier
    >>> from tensorcep.gaussian_process.settings import VB
    >>> GaussianProcessClassifier(method=VB()).method.name
    'vb'
    """

    name: ClassVar[str] = "vb"


@dataclass(repr=False, kw_only=True)
class Laplace(GPSettings):
    """Laplace's approximation around the posterior mode; it has no settings.

    References
    ----------
    Williams and Barber (1998), Bayesian classification with Gaussian processes.

    Examples
    --------
    >>> from tensorcep import GaussianProcessClassifier
    >>> from tensorcep.gaussian_process.settings import Laplace
    >>> GaussianProcessClassifier(method=Laplace()).method.name
    'laplace'
    """

    name: ClassVar[str] = "laplace"


GP_METHODS: dict[str, GPSettings] = {record.name: record for record in (EP(), QP(), VB(), Laplace())}
SETTINGS: dict[str, type[Settings]] = {type(record).__name__: type(record) for record in GP_METHODS.values()}
ENGINES = Engines(GP_METHODS, otherwise="ep", home="tensorcep.gaussian_process.settings", moved=())
settings_of = ENGINES.settings_of
