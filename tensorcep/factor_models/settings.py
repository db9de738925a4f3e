"""Settings of the engines that fit factor models: ``BayesianPCA(method=Gibbs(burn_in=100))``.

Each is a record of what belongs to one engine alone; a name, ``method="gibbs"``, stands for its defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensorcep.core.checks import check_int, word_or_range
from tensorcep.core.settings import Engines, Settings


@dataclass(repr=False, kw_only=True)
class VB(Settings):
    """Variational inference with a joint Gaussian for every row. It has no settings.

    References
    ----------
    Klami (2014), Polya-Gamma augmentations for factor models, sec. 2.2, 4.1.2 and 4.2.2.

    Examples
    --------
    >>> from tensorcep import BayesianPCA
    >>> from tensorcep.factor_models.settings import VB
    >>> BayesianPCA(method=VB()).method.name
    'vb'
    """

    name: ClassVar[str] = "vb"


@dataclass(repr=False, kw_only=True)
class FactorisedVB(Settings):
    """Fully factorised variational inference: no matrix to invert.

    Parameters
    ----------
    step : float or "best", default="best"
        Part of the Newton-like step to take, the same for all (the paper: 0.3), or for every row the length that
        raises the lower bound most, which never lowers it and costs one more product per entity.

    References
    ----------
    Klami (2014), Polya-Gamma augmentations for factor models, sec. 2.2 and 4.1.2.

    Examples
    --------
    >>> from tensorcep import BayesianPCA
    >>> from tensorcep.factor_models.settings import FactorisedVB
    >>> BayesianPCA(method=FactorisedVB(step=0.3)).method
    FactorisedVB(step=0.3)
    """

    name: ClassVar[str] = "vb-factorized"

    step: float | str = "best"

    def check(self) -> None:
        word_or_range("step", self.step, ("best",), 0.0, 1.0, include_low=False)


@dataclass(repr=False, kw_only=True)
class Gibbs(Settings):
    """Gibbs sampling; `max_iter` of the estimator is the number of sweeps.

    Parameters
    ----------
    burn_in : int, default=200
        Sweeps before the first draw that is kept.
    thin : int, default=5
        Every how many sweeps one is kept.

    References
    ----------
    Klami (2014), Polya-Gamma augmentations for factor models, sec. 2.1, 4.1.1, 4.2.1 and 4.3.

    Examples
    --------
    >>> from tensorcep import BayesianPCA
    >>> from tensorcep.factor_models.settings import Gibbs
    >>> BayesianPCA(method=Gibbs(burn_in=100)).method
    Gibbs(burn_in=100)
    """

    name: ClassVar[str] = "gibbs"

    burn_in: int = 200
    thin: int = 5

    def check(self) -> None:
        check_int("burn_in", self.burn_in, 0)
        check_int("thin", self.thin)


SETTINGS: dict[str, type[Settings]] = {record.name: record for record in (FactorisedVB, VB, Gibbs)}
DEFAULTS: dict[str, Settings] = {name: record() for name, record in SETTINGS.items()}
ENGINES = Engines(DEFAULTS, otherwise="vb-factorized", home="tensorcep.factor_models.settings")
settings_of = ENGINES.settings_of
