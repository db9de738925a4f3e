"""
Fit a csv file
==============

One line per entry: predict cells with intervals, and keep the model.

``python scripts/examples/fit_csv.py [FILE.csv]``: the last column is the value, every other one a mode.
"""

import sys
import tempfile
from pathlib import Path

import pandas as pd

from tensorcep import CPRegressor, datasets, load, read_tensor, write_tensor

folder = Path(tempfile.mkdtemp(prefix="tensorcep-"))
file = Path(sys.argv[1]) if len(sys.argv) > 1 else folder / "entries.csv"
if len(sys.argv) == 1:
    write_tensor(datasets.load_il2(), file)  # responses to IL-2: ligand x time x dose x cell; comes with TensorLy
entries = pd.read_csv(file)
*modes, value = entries.columns
print(entries.head(3))

tensor = read_tensor(file)
model = CPRegressor(random_state=0).fit(tensor)  # CPClassifier for labels 0 and 1, CPCountRegressor for counts
print(f"\n{tensor.nnz} entries of {tensor.shape}: {model.method_}, rank {model.rank_}, prior {model.prior_}")

cells = entries[modes].sample(5, random_state=0)  # any combination of known labels, observed or not
mean, sd = model.predict(cells, return_std=True)
lower, upper = model.predict_interval(cells, coverage=0.9).T
print(cells.assign(mean=mean, sd=sd, lower=lower, upper=upper).round(3).to_string(index=False))

model.save(folder / "model.npz")
again = load(folder / "model.npz")
print(f"\nkept in {folder / 'model.npz'}; the rows of {modes[0]!r}:")
print(again.components(0).head().round(2))
