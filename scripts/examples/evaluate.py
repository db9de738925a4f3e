"""
How accurate, and how far to be trusted?
========================================

Hold out entries, score their predictions, and see what their intervals hold.
"""

import numpy as np

from tensorcep import CPClassifier, CPRegressor, datasets, metrics

tensor = datasets.load_il2()  # comes with TensorLy
train, test = tensor.train_test_split(test_size=0.2, random_state=0)

model = CPRegressor(random_state=0).fit(train)
mean = model.predict(test)
print(f"real values: RMSE {metrics.rmse(test.values, mean):.3f}, that of the training mean", end=" ")
print(f"{metrics.rmse(test.values, np.full(test.nnz, train.values.mean())):.3f}")
print(f"mean log predictive density {np.mean(model.log_score(test, test.values)):.3f}")
for coverage in (0.5, 0.9):
    lower, upper = model.predict_interval(test, coverage=coverage).T
    print(f"{metrics.coverage(test.values, lower, upper):.3f} of the values are inside their {coverage:.0%} interval")

# The same with labels: is a response above the median?
median = np.median(train.values)
labels = (test.values > median).astype(int)
classifier = CPClassifier(random_state=0).fit(train.coords, (train.values > median).astype(int))
p = classifier.predict_proba(test.coords)[:, 1]
print(f"labels: AUC {metrics.auc(labels, p):.3f}, log loss {metrics.log_loss(labels, p):.3f}, ", end="")
print(f"calibration error {metrics.expected_calibration_error(labels, p):.3f}")
