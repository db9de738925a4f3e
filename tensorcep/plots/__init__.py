"""Figures: predictions with their uncertainty, convergence, calibration and factors.

Every function draws on `ax`, or on the axes of a new figure, and returns the axes. They need matplotlib
(``pip install 'tensorcep[plots]'``), which is imported when the first of them is called.
"""

from __future__ import annotations

from tensorcep.plots.fits import plot_comparison as plot_comparison
from tensorcep.plots.fits import plot_convergence as plot_convergence
from tensorcep.plots.fits import plot_rank_scores as plot_rank_scores
from tensorcep.plots.models import plot_component as plot_component
from tensorcep.plots.predictions import plot_coverage as plot_coverage
from tensorcep.plots.predictions import plot_predictions as plot_predictions
from tensorcep.plots.predictions import plot_reliability as plot_reliability
from tensorcep.plots.processes import plot_decision as plot_decision
from tensorcep.plots.processes import plot_rate as plot_rate
