"""
Which method, and which rank?
=============================

Compare them on entries held out of the training entries; score the choice once.
"""

import numpy as np

from tensorcep import CPRegressor, compare, datasets, metrics, select_rank

train, test = datasets.load_il2().train_test_split(test_size=0.2, random_state=0)
inner, held_out = train.train_test_split(test_size=0.2, random_state=1)  # the test entries take no part in a choice

model = CPRegressor(random_state=0)
table = compare(inner, held_out, ["gibbs", "cep", "vmp"], estimator=model)
print(table.round(3).to_string())
method = str(table["log_score"].idxmax())

quick = CPRegressor(method="vmp", prior="learned", random_state=0)
chosen = select_rank(quick, inner, ranks=[2, 4, 8], random_state=0)
print(f"\nrank by held-out log score: {chosen.rank}")

final = CPRegressor(chosen.rank, method=method, random_state=0).fit(train)
rmse, log_score = metrics.rmse(test.values, final.predict(test)), np.mean(final.log_score(test, test.values))
print(f"{method}, rank {final.rank_}, on the test entries: RMSE {rmse:.4f}, log score {log_score:.3f}")
