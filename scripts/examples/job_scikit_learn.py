"""
Label columns in scikit-learn
=============================

Shuffled folds, a search, a pipeline's manners.
"""

import pandas as pd
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from tensorcep import CPRegressor, simulate_cp

tensor = simulate_cp((20, 15, 4), 2, 900, noise_precision=4.0, random_state=0).tensor
X = pd.DataFrame(tensor.coords, columns=["patient", "gene", "week"]).astype(str)
folds = KFold(3, shuffle=True, random_state=0)  # entries sorted by patient must be shuffled
model = CPRegressor(method="vmp", random_state=0, prior="learned")
print(cross_val_score(model.set_params(rank=2), X, tensor.values, cv=folds).round(2))
print(GridSearchCV(model, {"rank": [1, 2]}, cv=folds).fit(X, tensor.values).best_params_)
