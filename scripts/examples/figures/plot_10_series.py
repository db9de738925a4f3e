"""
A component over time
=====================

A line with a ribbon: the weights of forty days rise and fall with a period of seven days.
"""

import numpy as np
import pandas as pd

from tensorcep import CPRegressor, Series, plots

rng, days = np.random.default_rng(0), np.arange(40)
cells = [(shop, day) for shop in range(12) for day in days]
table = pd.DataFrame(cells, columns=["shop", "day"]).sample(300, random_state=0)
size = 1 + table["shop"] / 12
table["sales"] = size * np.sin(2 * np.pi * table["day"] / 7) + rng.normal(0, 0.3, 300)
model = CPRegressor(1, method="vmp", prior={"day": Series(period=7)}, random_state=0)
plots.plot_series(model.fit(table, value="sales"), "day")
