"""Figures: predictions with their uncertainty, convergence, calibration and factors.

Every function draws on `ax`, or on the axes of a new figure, and returns the axes. They need matplotlib
(``pip install 'tensorcep[plots]'``), which is imported when the first of them is called.
"""

from __future__ import annotations

from tensorcep.plots.fits import plot_comparison, plot_convergence, plot_rank_scores
from tensorcep.plots.models import plot_component
from tensorcep.plots.predictions import plot_coverage, plot_predictions, plot_reliability

__all__ = [
    "plot_comparison",
    "plot_component",
    "plot_convergence",
    "plot_coverage",
    "plot_predictions",
    "plot_rank_scores",
    "plot_reliability",
]
