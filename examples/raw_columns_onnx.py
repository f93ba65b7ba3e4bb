"""From raw columns to one ONNX file

**What you learn:** fit a table with text, dates and gaps as it is, export model and preparation together as one ONNX
graph, and run it without torch, pandas or this package.

The table is made up: flats with their size, year (sometimes missing), town, date of sale, and price. Prices are
positive, so the model works with their logarithm (`target="log"`), and no interval goes below zero.

**How to read the figure:** one line per flat, cheapest first, from the low to the high end of its 90 % interval as the
graph gives it; the dot is the true price. About one dot in ten should be outside its line.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
import pandas as pd

from density_regression import DensityRegressor

rng = np.random.default_rng(0)
n = 700
flats = pd.DataFrame(
    {
        "size": rng.gamma(9, 8, n).round(1),
        "year": rng.integers(1900, 2024, n).astype(float),
        "town": rng.choice(["Ulm", "Bonn", "Kiel"], n, p=[0.5, 0.3, 0.2]),
        "sold": (pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")).strftime("%Y-%m-%d"),
    }
)
level = flats["town"].map({"Ulm": 3000, "Bonn": 2500, "Kiel": 2000}) * (1 + (flats["year"] - 1900) / 400)
price = (level * flats["size"] * np.exp(0.15 * rng.normal(size=n))).round(-2)
flats.loc[rng.random(n) < 0.1, "year"] = np.nan
print(flats.head(3).to_string(index=False))

# %% [markdown]
# ## Fit and export
#
# Nothing is prepared by hand: columns of text, dates and gaps are recognised. A fifth of the rows is kept aside, so
# that the graph can give intervals. It has an input for each column.

# %%
reg = DensityRegressor(target="log", epochs=60, random_state=0).fit(flats[:500], price[:500], conformal=0.2)
reg.to_onnx("flats.onnx", coverage=0.9)
session = onnxruntime.InferenceSession("flats.onnx")
for part in session.get_inputs():
    print(f"input {part.name}: {part.type}")
print("outputs: " + ", ".join(part.name for part in session.get_outputs()))

# %% [markdown]
# ## Run the graph
#
# Any language with ONNX Runtime can do this. A missing number is NaN, a missing text the empty string. A town that
# training did not have is allowed: the row is then unfamiliar, and its standard deviation larger.

# %%
new = flats[500:].copy()
new.iloc[0, new.columns.get_loc("town")] = "Monaco"
feed = {name: new[name].to_numpy(object if new[name].dtype.kind not in "fi" else float) for name in new}
names = [part.name for part in session.get_outputs()]
answer = {name: output.ravel() for name, output in zip(names, session.run(None, feed), strict=True)}
mean, std = reg.predict(new, return_std=True)
print(f"largest difference from torch: {np.abs(answer['mean'] / mean - 1).max():.1e}, relative")
relative = answer["std"] / answer["mean"]
print(f"std / mean in Monaco {relative[0]:.2f}, in the other towns typically {np.median(relative[1:]):.2f}")

# %%
order = np.argsort(price[500:].to_numpy())
low, high, true = (np.asarray(part)[order] / 1000 for part in (answer["low"], answer["high"], price[500:]))
inside = (low <= true) & (true <= high)
print(f"{inside.mean():.0%} of the prices are inside their 90 % interval")
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained", num="90 % intervals of 200 flats, from the ONNX graph")
ax.vlines(np.arange(len(true)), low, high, color="#9ebfe0", linewidth=2)
ax.plot(np.flatnonzero(inside), true[inside], ".", color="#0b3c8c", label="price inside")
ax.plot(np.flatnonzero(~inside), true[~inside], "x", color="#d62728", label="price outside")
ax.set(xlabel="flats, by price", ylabel="price in thousands", yscale="log", ylim=(40, 1000))
ax.minorticks_off()
ax.set_yticks(ticks := [50, 100, 200, 500, 1000], [str(tick) for tick in ticks])
ax.legend(loc="upper left")
plt.show()
