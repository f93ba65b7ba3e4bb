"""Weather: from the last hours to the next, with a fan

**What you learn:** turn a time series into windows, hold out whole weeks instead of random hours, forecast an hour with
its distribution, and see what happens in a heat wave that training had not.

The series is made up: two years of hourly temperatures with days, seasons and weather that lasts for days.

**How to read the figure:** the shades are 50, 80 and 95 % intervals. In the usual week the black line, the truth, stays
inside, and leaves the widest about once in 20 hours. In the heat wave the intervals widen.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from density_regression import DensityRegressor, metrics
from density_regression.plots import fan

# %% [markdown]
# ## A series

# %%
rng = np.random.default_rng(0)
hours = np.arange(2 * 365 * 24)
weather = np.zeros(len(hours))
for hour in hours[1:]:
    weather[hour] = 0.98 * weather[hour - 1] + rng.normal(0, 0.7)
season = 10 - 9 * np.cos(2 * np.pi * hours / (365.25 * 24))
day = -4 * np.cos(2 * np.pi * (hours - 3) / 24)
temperature = season + day + weather

# %% [markdown]
# ## Windows
#
# A row holds the 12 hours before, and the time of day as sine and cosine; the target is the temperature three hours
# ahead. Neighbouring windows share hours, so random rows held out would be known from their neighbours: `groups=` holds
# out whole weeks.

# %%
WIDTH, AHEAD = 12, 3


def windows(series):
    """Rows (n, WIDTH + 2), targets (n,) and the hour of each target (n,)."""
    past = np.lib.stride_tricks.sliding_window_view(series[:-AHEAD], WIDTH)
    when = np.arange(WIDTH - 1 + AHEAD, len(series))
    clock = 2 * np.pi * when / 24
    return np.column_stack([past, np.sin(clock), np.cos(clock)]), series[when], when


X, y, when = windows(temperature)
train = (when < 365 * 24) & (when % 5 == 0)  # the first year; every fifth hour is enough here
week = when // (7 * 24)
reg = DensityRegressor(epochs=40, members=4, random_state=0).fit(X[train], y[train], groups=week[train])

# %% [markdown]
# ## Two weeks of the second year
#
# One is as it comes. To the other we add up to 15 degrees for some days.

# %%
july = slice((365 + 182) * 24, (365 + 189) * 24)
hot = temperature.copy()
hot[july] += 15 * np.clip(np.sin(np.pi * np.arange(7 * 24) / (7 * 24)) * 1.5, 0, 1)

figure, axes = plt.subplots(
    2, 1, figsize=(9, 6.5), layout="constrained", num="Forecasts of a usual week and a heat wave"
)
start = np.datetime64("2023-01-01T00", "h")
for ax, (name, series) in zip(axes, {"a usual week": temperature, "a heat wave": hot}.items(), strict=True):
    X, y, when = windows(series)
    shown = (when >= july.start) & (when < july.stop)
    mean, std = reg.predict(X[shown], return_std=True)
    inside = metrics.coverage(y[shown], mean, std, level=0.95)
    strange = np.mean(reg.familiarity(X[shown]) < 0.01)
    error = metrics.rmse(y[shown], mean)
    print(
        f"{name:12}: RMSE {error:.2f}, median std {np.median(std):.2f}; 95 % hold {inside:.0%}; {strange:.0%} strange"
    )
    fan(ax, start + when[shown], mean, std, y_true=y[shown], unit="°C")
    ax.set(title=name, xlabel="", ylabel="temperature (°C)")
axes[0].legend(loc="upper left", fontsize="small", ncols=3)
plt.show()
