"""Words that a test expects of a fit which it keeps short on purpose.

Whether so few draws are told to be too few depends on the draws, which are others on another processor; so these are
named and ignored, not asked for. Other warnings of health still fail the test.
"""

from __future__ import annotations

import pytest

CUT_SHORT = pytest.mark.filterwarnings(
    r"ignore:[\w-]+ was cut short:sklearn.exceptions.ConvergenceWarning",
    r"ignore:the chains of [\w-]+ disagree:sklearn.exceptions.ConvergenceWarning",
)
