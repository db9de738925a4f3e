"""A component over time.

A line with a ribbon: the weights of forty days rise and fall with a period of seven days.
"""

import numpy as np
import pandas as pd

from tensorcep import CPRegressor, Series, plots

rng, days = np.random.default_rng(0), np.arange(40)
table = pd.DataFrame([(f"shop {i}", d) for i in range(12) for d in days], columns=["shop", "day"]).sample(
    300, random_state=0
)
table["sales"] = np.sin(2 * np.pi * table["day"] / 7) * (1 + table["shop"].str[5:].astype(int) / 12) + rng.normal(
    0, 0.3, 300
)
model = CPRegressor(1, method="vmp", prior={"day": Series(period=7)}, random_state=0).fit(table, value="sales")
plots.plot_series(model, "day")
