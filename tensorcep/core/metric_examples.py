"""Examples of tensorcep.metrics, by the names of what they show; they are part of the docstrings."""

from __future__ import annotations

EXAMPLES: dict[str, str] = {
    "ReliabilityCurve": """
>>> from tensorcep import metrics
>>> metrics.reliability_curve([0, 1, 1], [0.2, 0.8, 0.9], n_bins=2).weight.tolist()
[1.0, 2.0]
""",
    "rmse": """
>>> from tensorcep import metrics
>>> metrics.rmse([1.0, 2.0], [1.0, 4.0])
1.4142135623730951
""",
    "mae": """
>>> from tensorcep import metrics
>>> metrics.mae([1.0, 2.0], [1.0, 4.0])
1.0
""",
    "auc": """
>>> from tensorcep import metrics
>>> metrics.auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
0.75
""",
    "average_precision": """
>>> from tensorcep import metrics
>>> round(metrics.average_precision([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 3)
0.833
""",
    "accuracy": """
>>> from tensorcep import metrics
>>> metrics.accuracy([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
0.75
""",
    "log_loss": """
>>> from tensorcep import metrics
>>> round(metrics.log_loss([0, 1], [0.1, 0.8]), 3)
0.164
""",
    "brier": """
>>> from tensorcep import metrics
>>> round(metrics.brier([0, 1], [0.1, 0.8]), 3)
0.025
""",
    "reliability_curve": """
>>> from tensorcep import metrics
>>> curve = metrics.reliability_curve([0, 1, 1], [0.2, 0.8, 0.9], n_bins=2)
>>> curve.observed.tolist()
[0.0, 1.0]
""",
    "expected_calibration_error": """
>>> from tensorcep import metrics
>>> round(metrics.expected_calibration_error([0, 1, 1], [0.2, 0.8, 0.9], n_bins=2), 3)
0.167
""",
    "gaussian_log_score": """
>>> from tensorcep import metrics
>>> round(metrics.gaussian_log_score([1.0, 2.0], [1.0, 2.5], [0.5, 0.5]), 3)
-0.476
""",
    "crps_gaussian": """
>>> from tensorcep import metrics
>>> round(metrics.crps_gaussian([1.0, 2.0], [1.0, 2.5], [0.5, 0.5]), 3)
0.209
""",
    "coverage": """
>>> from tensorcep import metrics
>>> metrics.coverage([1.0, 2.0], [0.5, 2.5], [1.5, 3.5])
0.5
""",
    "interval_score": """
>>> from tensorcep import metrics
>>> metrics.interval_score([1.0, 2.0], [0.5, 2.5], [1.5, 3.5], level=0.5)
2.0
""",
    "evaluate_regression": """
>>> from tensorcep import metrics
>>> round(metrics.evaluate_regression([1.0, 2.0], [1.0, 2.5], [0.5, 0.5])["rmse"], 3)
0.354
""",
    "evaluate_binary": """
>>> from tensorcep import metrics
>>> metrics.evaluate_binary([0, 1], [0.1, 0.8])["auc"]
1.0
""",
    "evaluate_counts": """
>>> from tensorcep import metrics
>>> metrics.evaluate_counts([1, 4], [1.5, 3.0], [-1.0, -2.0], {0.8: ([0, 1], [3, 6])})["coverage_80"]
1.0
""",
}
