"""Figures: predictions with their uncertainty, convergence, calibration and factors.

Every function draws on `ax`, or on the axes of a new figure, and returns the axes. They need matplotlib
(``pip install 'tensorcep[plots]'``), which is imported when the first of them is called.
"""

from __future__ import annotations

from tensorcep.plots.checks import plot_forecast as plot_forecast
from tensorcep.plots.checks import plot_gaps as plot_gaps
from tensorcep.plots.checks import plot_residuals as plot_residuals
from tensorcep.plots.checks import plot_trace as plot_trace
from tensorcep.plots.components import plot_component as plot_component
from tensorcep.plots.components import plot_components as plot_components
from tensorcep.plots.components import plot_scores as plot_scores
from tensorcep.plots.components import plot_top_rows as plot_top_rows
from tensorcep.plots.components import plot_variance_explained as plot_variance_explained
from tensorcep.plots.fits import plot_comparison as plot_comparison
from tensorcep.plots.fits import plot_convergence as plot_convergence
from tensorcep.plots.fits import plot_rank_scores as plot_rank_scores
from tensorcep.plots.predictions import plot_coverage as plot_coverage
from tensorcep.plots.predictions import plot_decision as plot_decision
from tensorcep.plots.predictions import plot_predictions as plot_predictions
from tensorcep.plots.predictions import plot_rate as plot_rate
from tensorcep.plots.predictions import plot_reliability as plot_reliability
from tensorcep.plots.predictions import plot_series as plot_series
from tensorcep.plots.report import report as report


def __dir__() -> list[str]:
    """The figures, for completion in a shell."""
    return [name for name in globals() if name.startswith("plot_") or name == "report"]
