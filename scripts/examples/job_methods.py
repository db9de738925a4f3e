"""
Which method, and how sure are its chains?
==========================================

And do other seeds find the same components?
"""

from tensorcep import CPRegressor, Gibbs, compare, replicability, simulate_cp

train, test = simulate_cp((20, 15, 10), 2, 1200, noise_precision=4.0, random_state=0).tensor.train_test_split(0.2, 0)
model = CPRegressor(2, interactions="cp", prior="learned", max_iter=120, random_state=0)
print(compare(train, test, ["cep", "vmp"], estimator=model).round(3).iloc[:, :4])
sampled = model.set_params(method=Gibbs(n_chains=2)).fit(train)
print(sampled.diagnostics_)
print(sampled.factor_diagnostics(0).head(2).round(2))
print(replicability(model.set_params(method="vmp"), train, n_repeats=3).round(3))
