"""
A raw log of events
===================

Count them, learn what is normal, and rank what is not.
"""

import numpy as np
import pandas as pd

from tensorcep import CPCountRegressor, SparseTensor

rng, p = np.random.default_rng(0), np.arange(20, 0, -1) / 210
log, today = (pd.DataFrame({"host": rng.integers(0, 30, 6000), "port": rng.choice(20, 6000, p=p)}) for _ in "ab")
tensor = SparseTensor.from_pandas(log, ["host", "port"], value=None).with_zeros(10, random_state=0)
model = CPCountRegressor(1, method="cep", max_iter=30, random_state=0).fit(tensor)
today = pd.concat([today, pd.DataFrame({"host": [4] * 90, "port": [18] * 90})])
print(model.anomaly_score(today, value=None).sort_values("surprise", ascending=False).head(3).round(2))
