"""Diabetes: are the intervals right on a real table?

**What you learn:** check a model on rows that it has not seen. Do its 90 % intervals hold 90 % of the targets? Are
errors larger where the standard deviation is? Which rows are strange?

The table comes with scikit-learn: 442 patients, ten measurements each, and a score of the disease a year later.

**How to read the figure:** on the left, a curve along the diagonal means that each quantile is as often exceeded as it
should be; the grey range is what luck alone may do with so few rows. On the right, each bar is an interval, ordered by
the true value; crosses are targets outside theirs.
"""

# %%
import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from density_regression import DensityRegressor, metrics
from density_regression.plots import calibration_curve, ordered_intervals

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
reg = DensityRegressor(random_state=0).fit(X_train, y_train)

# %% [markdown]
# ## How good, and how honest
#
# RMSE judges the mean alone. CRPS and NLL judge the whole distribution: a smaller standard deviation is rewarded only
# if the errors are smaller too. Coverage says what share of the targets the intervals hold.

# %%
mean, std = reg.predict(X_test, return_std=True)
print(f"RMSE {metrics.rmse(y_test, mean):.1f}, of a constant {y_test.std():.1f}")
print(f"CRPS {metrics.crps(y_test, mean, std):.1f}, NLL {metrics.nll(y_test, mean, std):.2f}")
for level in (0.5, 0.8, 0.9):
    print(f"{level:.0%} intervals hold {metrics.coverage(y_test, mean, std, level=level):.0%} of {len(y_test)} targets")

# %% [markdown]
# ## Strange rows
#
# We change one patient's record so that it cannot be right: a body mass index far above all others. The mean looks
# harmless. The standard deviation and the familiarity do not.

# %%
wrong = X_test.iloc[[0, 0]].copy()
wrong.iloc[1, wrong.columns.get_loc("bmi")] = 1.0  # the largest in training is 0.17
for label, row in zip(("as it is", "wrong BMI"), range(2), strict=True):
    (one,), (spread,) = reg.predict(wrong.iloc[[row]], return_std=True)
    print(f"{label:9}: {one:.0f} ± {spread:.0f}, familiarity {reg.familiarity(wrong.iloc[[row]])[0]:.2f}")

# %%
figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4.4), layout="constrained", num="Calibration curve and 95 % intervals of 111 patients"
)
calibration_curve(left, y_test, mean, std, label="test rows", band=0.95)
left.legend(loc="upper left", fontsize="small")
ordered_intervals(right, y_test, mean, std, level=0.95)
plt.show()
