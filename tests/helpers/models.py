"""Estimators with the settings of the CEP paper, whatever the defaults are: tests about these, and quick fits."""

from __future__ import annotations

from scripts.lib.common import paper_model as paper

__all__ = ["paper"]
