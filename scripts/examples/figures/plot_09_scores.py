"""
Scores of samples, by a group
=============================

Handwritten digits by their first two scores: zeros lie apart from ones and twos, which touch.
"""

from sklearn.datasets import load_digits

from tensorcep import BayesianPCA, plots

digits = load_digits(n_class=3)
model = BayesianPCA(4, random_state=0).fit(digits.data[:200])
plots.plot_scores(
    model.transform(digits.data[:200]), digits.target[:200].astype(str), name="digit"
)
