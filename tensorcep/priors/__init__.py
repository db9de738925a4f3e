"""Priors of the factor rows; one file each, listed here by the name that users give."""

from __future__ import annotations

from tensorcep.priors.ard import ARDPrior
from tensorcep.priors.by_mode import PriorByMode

# Priors with parameters that are learned: made from (Lam, eta, mean, scale, free, strength).
LEARNED = {"learned": PriorByMode, "ard": ARDPrior}
