"""Estimators with the settings of the CEP paper, whatever the defaults are: tests about these, and quick fits."""

from __future__ import annotations

from scripts.benchmarks.common import paper_model as paper
from scripts.benchmarks.common import with_settings

__all__ = ["paper", "with_settings"]
