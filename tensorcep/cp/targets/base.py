"""What the values of a fit are: what the user said of them, and what the fit decided."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorcep.core.settings import Settings
from tensorcep.priors import LEARNED
from tensorcep.priors.fixed import Prior


class Chosen(NamedTuple):
    """What a fit is to be: the parameters that may be "auto", and the settings of the method.

    Attributes
    ----------
    method : str
    settings : Settings
    rank : int
    prior : {"fixed", "learned", "ard"} or Prior
    parts : dict
        Columns of each part, as `tensorcep.cp.model.columns.parts_of` gives them.
    max_iter : int
    members : int
        Fits that are mixed.
    uniform : bool
        Whether means of rows are drawn where the prior is fixed.
    from_least : bool
        Whether positive rows stand for values above the least one: in streams that choose their prior.
    """

    method: str
    settings: Settings
    rank: int
    prior: Any
    parts: dict[str, int]
    max_iter: int
    members: int
    uniform: bool
    from_least: bool

    @property
    def prior_name(self) -> str:
        return "given" if isinstance(self.prior, Prior) else str(self.prior)

    @property
    def has_positive_rows(self) -> bool:
        """Whether rows have the paper's prior, whose mean is positive."""
        return self.prior_name == "fixed" and self.uniform and not (self.parts["main"] or self.parts["pair"])

    @property
    def learns_prior(self) -> bool:
        return self.prior_name in LEARNED
