"""Conformal intervals: coverage that does not depend on the model

**What you learn:** keep some rows aside, and get intervals that hold the promised share of targets whatever the noise
is like, and how well or badly the model was trained.

The noise here is not Gaussian: it has heavy tails, and one side is longer. A Gaussian with the right standard deviation
is then wrong about the share of targets in its intervals. Conformal intervals take their width from how far the targets
of the rows kept aside really were.

**How to read the figure:** each dot is the coverage measured on many new rows. On the dashed line intervals hold what
they promise.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from density_regression import DensityRegressor

rng = np.random.default_rng(0)


def draw(n):
    """X (n, 1) in [0, 1], and y (n,) with noise that grows with x, and is skewed."""
    x = rng.random(n)
    noise = rng.gamma(0.7, 1.0, n) - 0.7
    return x[:, None], np.sin(6 * x) + (0.2 + x) * noise


X, y = draw(600)
X_new, y_new = draw(20_000)

# %% [markdown]
# ## With and without
#
# `fit(..., conformal=0.25)` keeps a quarter of the rows aside; `conformalize` does the same with rows given later. The
# promise is about all new rows together, from the same source as those aside: not about each x separately.

# %%
plain = DensityRegressor(epochs=60, random_state=0).fit(X, y)
conformal = DensityRegressor(epochs=60, random_state=0).fit(X, y, conformal=0.25)
levels = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
coverage = {}
for name, reg in {"Gaussian": plain, "conformal": conformal}.items():
    ends = [reg.predict_interval(X_new, coverage=level) for level in levels]
    coverage[name] = np.array([np.mean((low <= y_new) & (y_new <= high)) for low, high in ends])
print("promised  " + "  ".join(f"{level:.0%}" for level in levels))
for name, held in coverage.items():
    print(f"{name:9} " + "  ".join(f"{share:.0%}" for share in held))

# %% [markdown]
# With 150 rows aside the conformal coverage is itself uncertain by a few percent: the promise holds on average over the
# rows that happen to be kept aside.

# %%
figure, ax = plt.subplots(figsize=(5, 4.6), layout="constrained", num="Promised and measured coverage")
ax.plot([0.45, 1], [0.45, 1], "--", color="0.5")
for (name, held), marker in zip(coverage.items(), "sD", strict=True):
    ax.plot(levels, held, marker=marker, label=name)
ax.set(xlabel="promised coverage", ylabel="share of 20,000 new targets inside")
ax.legend(loc="upper left")
plt.show()
