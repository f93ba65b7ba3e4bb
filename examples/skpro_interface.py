"""skpro: the same model behind another interface

**What you learn:** use `DensityRegressor` wherever skpro's interface is asked for, score it by skpro's own metrics, and
compare it with another of its regressors.

[skpro](https://skpro.readthedocs.io) is scikit-learn's sister for predictive distributions: `pip install skpro`. Its
adapter takes any regressor whose `predict` knows `return_std`.

**How to read the figure:** predicted distributions of three rows, as densities, and the true value as a dashed line of
the same colour. A good one is narrow, and high where the line is.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import make_friedman1
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from skpro.metrics import CRPS, LogLoss
from skpro.regression.adapters.sklearn import SklearnProbaReg

from density_regression import DensityRegressor

X, y = make_friedman1(300, noise=1.0, random_state=0)
X, y = pd.DataFrame(X[:, :5]).add_prefix("x"), pd.DataFrame({"y": y})

# %% [markdown]
# ## Two regressors, one interface
#
# `predict_proba` returns distributions. skpro's metrics take them as they are; lower is better in both.

# %%
kernel = RBF(np.ones(5)) + WhiteKernel()
regressors = {
    "Density-Regression": DensityRegressor(epochs=100, random_state=0),
    "Gaussian process": GaussianProcessRegressor(kernel, normalize_y=True, random_state=0),
}
laws = {}
for name, regressor in regressors.items():
    laws[name] = SklearnProbaReg(regressor).fit(X[:200], y[:200]).predict_proba(X[200:])
    print(f"{name:18}: CRPS {CRPS()(y[200:], laws[name]):.3f}, log loss {LogLoss()(y[200:], laws[name]):.3f}")

# %% [markdown]
# ## Three rows

# %%
figure, axes = plt.subplots(
    2, 1, figsize=(7, 5), sharex=True, layout="constrained", num="Predicted densities of three rows, by both regressors"
)
at = np.linspace(0, 22, 221)
for ax, (name, law) in zip(axes, laws.items(), strict=True):
    for i, colour in enumerate(("#0b3c8c", "#c8551f", "#3a8f5c")):
        row = law.iloc[[i]]
        mean, std = row.mean().iloc[0, 0], row.var().iloc[0, 0] ** 0.5
        ax.plot(at, np.exp(-0.5 * ((at - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi)), color=colour)
        ax.axvline(y["y"].iloc[200 + i], color=colour, linestyle="--")
    ax.set(title=name, ylabel="density")
axes[1].set_xlabel("y")
plt.show()
