"""
Ratings: what to recommend
==========================

Which items are alike, why, and what a new user would like.
"""

import pandas as pd

from tensorcep import CPRegressor, simulate_cp

tensor = simulate_cp((60, 40, 6), 2, 2500, noise_precision=4.0, prior_mean=0.7, random_state=0).tensor
ratings = pd.DataFrame(tensor.coords, columns=["user", "item", "month"]).astype(str).assign(stars=tensor.values)
known, new = ratings[ratings["user"] != "7"], ratings[ratings["user"] == "7"]
model = CPRegressor(2, method="vmp", random_state=0).fit(known, value="stars")
print(model.recommend("item", given={"user": "1", "month": "5"}, n=3, by="lower", exclude="seen").round(2))
print(model.similar("item", "3", n=3).round(2))
print(model.explain(user="1", item="3", month="5").round(2))
more = model.with_rows(model.transform(new, mode="user", value="stars"))
print(more.recommend("item", given={"user": "7", "month": "5"}, n=3).round(2))
