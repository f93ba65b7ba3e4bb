"""The cubic: a band that widens where there are no data

**What you learn:** fit `DensityRegressor` to one feature, ask for a mean, a standard deviation and an interval, and see
which part of the uncertainty is noise and which is distance from the training rows.

**How to read the figure:** from the middle outwards. Between the dashed lines, where the training rows are, the band is
as wide as the noise (standard deviation 3). Outside it widens, and familiarity falls to 0: the model says that it is
guessing.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from density_regression import DensityRegressor
from density_regression.datasets import make_cubic
from density_regression.plots import predictive_band

# %% [markdown]
# ## Fit
#
# 300 rows of y = x³ + noise, with x between -4 and 4. The settings are the defaults.

# %%
X, y = make_cubic(n=300, noise=3.0, random_state=0)
reg = DensityRegressor(random_state=0).fit(X, y)

# %% [markdown]
# ## Ask
#
# `predict` gives a mean and a standard deviation, in the units of y. `predict_interval` gives the ends of an interval,
# here one that should hold nine in ten targets. `familiarity` is the share of held-out training rows that are less
# familiar than this one; below 0.01 call a row strange.

# %%
x = np.array([0.0, 2.0, 3.0, 5.0, 6.0, 7.0])
mean, std = reg.predict(x[:, None], return_std=True)
low, high = reg.predict_interval(x[:, None], coverage=0.9)
familiarity = reg.familiarity(x[:, None])
print("  x   x³   mean   std   90 % interval   familiarity")
for row in zip(x, x**3, mean, std, low, high, familiarity, strict=True):
    print("{:3.0f} {:4.0f} {:6.1f} {:5.1f}  {:6.1f} to {:5.1f}  {:11.2f}".format(*row))

# %% [markdown]
# ## Where the uncertainty comes from
#
# `decompose` divides the standard deviation. *Aleatoric* is the noise: more data do not help. *Disagreement* is how far
# several networks are apart, and *distance* what is added far from the training rows; it is 0 among them. Variances add
# up, so the squares of the parts give the square of the whole.

# %%
grid = np.linspace(-7, 7, 281)
parts = reg.decompose(grid[:, None])
mean, std = reg.predict(grid[:, None], return_std=True)

figure, (above, below) = plt.subplots(
    2, 1, figsize=(7, 7), height_ratios=(2, 1), sharex=True, layout="constrained", num="A cubic fitted on [-4, 4]"
)
predictive_band(above, grid, mean, std, x_train=X, y_train=y, y_true=grid**3)
above.set(ylabel="y", ylim=(-400, 400))
above.legend(loc="upper left", fontsize="small")
for name in ("aleatoric", "disagreement", "distance"):
    below.plot(grid, getattr(parts, name), label=name)
below.set(xlabel="x", ylabel="std", yscale="log", ylim=(0.1, None))
below.legend(loc="upper center", fontsize="small", ncols=3)
plt.show()
