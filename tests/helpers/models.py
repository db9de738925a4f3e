"""Estimators with the settings of the CEP paper, whatever the defaults are: tests about these, and quick fits."""

from __future__ import annotations

from scripts.lib.common import paper_model as paper
from scripts.lib.common import with_settings

__all__ = ["paper", "with_settings"]
