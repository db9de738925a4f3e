"""
A biologist's tensor with gaps
==============================

What its components are, what they explain, and a page with all figures.
"""

import tempfile
from pathlib import Path

from tensorcep import CPRegressor, datasets, plots

responses = datasets.load_il2()  # ligand x time x dose x cell
model = CPRegressor(2, method="vmp", interactions="main+cp", random_state=0).fit(responses)
print(model.variance_explained(responses).head(4).round(3))
print(model.components("dose").head(4).round(2))
page = Path(tempfile.mkdtemp()) / "report.html"
page.write_text(plots.report(model, responses), encoding="utf-8")
print(page.stat().st_size > 50_000, "figures in", page.name)
