"""Grid search: choose settings by the whole distribution

**What you learn:** use `DensityRegressor` in a scikit-learn pipeline, and let `GridSearchCV` choose its settings by the
negative log-likelihood, so that a model which is sure and wrong loses.

**How to read the figure:** a dot is the mean of three folds, its bar their standard deviation. Lower is better. Where
bars overlap widely, the data do not tell the settings apart.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from density_regression import DensityRegressor, metrics

# %% [markdown]
# ## What is searched
#
# Ten features, five of which matter. The pipeline first chooses features, then fits; both have a setting in the grid.
# `register_scorers` makes "neg_nll", "neg_crps" and others known to scikit-learn. They are negative, as it maximises.

# %%
metrics.register_scorers()
X, y = make_friedman1(300, noise=1.0, random_state=0)
pipeline = make_pipeline(
    SelectKBest(f_regression), DensityRegressor(members=0, epochs=60, batch_size=64, random_state=0)
)
grid = {"selectkbest__k": [2, 5, 10], "densityregressor__hidden": [(16,), (64, 64)]}
search = GridSearchCV(pipeline, grid, scoring=["neg_nll", "neg_crps"], refit="neg_nll", cv=3)
search.fit(X[:200], y[:200])

# %% [markdown]
# ## What came out
#
# The search ends with a fit of the best settings to all rows. Rows that took no part in it give the honest figure.

# %%
print("best:", {name.partition("__")[2]: value for name, value in search.best_params_.items()})
mean, std = search.best_estimator_.predict(X[200:], return_std=True)
print(f"NLL by cross-validation {-search.best_score_:.2f}, on 100 other rows {metrics.nll(y[200:], mean, std):.2f}")

# %%
results = search.cv_results_
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained", num="Cross-validated NLL of each setting")
for i, hidden in enumerate(grid["densityregressor__hidden"]):
    rows = [row for row, params in enumerate(results["params"]) if params["densityregressor__hidden"] == hidden]
    where = np.arange(len(rows)) + 0.1 * i
    ax.errorbar(
        where, -results["mean_test_neg_nll"][rows], results["std_test_neg_nll"][rows], fmt="o", label=str(hidden)
    )
ax.set_xticks(np.arange(3) + 0.05, grid["selectkbest__k"])
ax.set(xlabel="features kept", ylabel="NLL (nats)")
ax.legend(title="hidden layers")
plt.show()
