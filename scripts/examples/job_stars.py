"""
Grades in two words
===================

Who likes what, with calibrated probabilities.
"""

import numpy as np
import pandas as pd

from tensorcep import CPClassifier, metrics, simulate_cp

tensor = simulate_cp((40, 30, 4), 2, 2500, noise_precision=4.0, prior_mean=0.5, random_state=0).tensor
grades = pd.DataFrame(tensor.coords, columns=["user", "film", "week"]).assign(grade=tensor.values)
grades["grade"] = np.where(grades["grade"] > grades["grade"].median(), "good", "bad")
train, test = grades[:2000], grades[2000:]
model = CPClassifier(2, method="pg-vb", random_state=0).fit(train, value="grade")
p = model.predict_proba(test[["user", "film", "week"]])[:, list(model.classes_).index("good")]
print({name: round(value, 3) for name, value in metrics.evaluate_binary(test["grade"] == "good", p).items()})
