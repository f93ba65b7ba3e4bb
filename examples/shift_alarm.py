"""A shift, and an alarm that notices

**What you learn:** watch the rows that a model is asked about, and be told when they are no longer like those of
training, with a stated rate of false alarms.

The table is made up: four measurements of a machine, and the load to predict. After 600 rows in use one sensor begins
to drift, a little more with each row. Nobody tells the model.

**How to read the figure:** above, each dot is a row, and its height is its familiarity; as long as nothing changes they
spread evenly. Below is the evidence for a change, as a share of what the alarm needs: it rings at 1, and then begins
anew.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from density_regression import DensityRegressor
from density_regression.serve import Alarm

rng = np.random.default_rng(0)


def machine(n):
    """A table of n rows, and the load (n,)."""
    speed = rng.normal(50, 8, n)
    temperature = 20 + 0.6 * speed + rng.normal(0, 2, n)
    pressure = 3 + 0.02 * speed + rng.normal(0, 0.2, n)
    vibration = rng.gamma(4, 0.3, n)
    load = 0.1 * speed * pressure + 2 * vibration + rng.normal(0, 1, n)
    columns = {"temperature": temperature, "pressure": pressure, "vibration": vibration, "speed": speed}
    return pd.DataFrame(columns), load


X, y = machine(500)
reg = DensityRegressor(epochs=60, random_state=0).fit(X, y)

# %% [markdown]
# ## The alarm
#
# It compares each new row with the rows held out in training: on average at most one false alarm in 10,000 rows.
# `update` takes rows in their order, as many at once as there are, and returns new alarms.

# %%
alarm = Alarm.for_model(reg, false_alarms_per=10_000)
stream, load = machine(1000)
stream.loc[600:, "pressure"] += np.linspace(0, 2.0, 400)  # the drift
evidence = []
for row in range(len(stream)):
    for report in alarm.update(stream[row : row + 1]):
        print(report)
    evidence.append(alarm.evidence()["inputs"])

# %% [markdown]
# The report says when it rang, since about when rows have been different, and which columns have moved. What the drift
# does to the predictions we only know later, when the targets arrive:

# %%
mean, std = reg.predict(stream, return_std=True)
for name, rows in {"before the drift": slice(0, 600), "at its end": slice(900, 1000)}.items():
    error = np.sqrt(np.mean((load[rows] - mean[rows]) ** 2))
    print(f"{name}: RMSE {error:.2f}, median std {np.median(std[rows]):.2f}")

# %%
figure, (above, below) = plt.subplots(
    2, 1, figsize=(8, 5.5), sharex=True, layout="constrained", num="Familiarity of each row, and evidence for a change"
)
above.plot(reg.familiarity(stream), ".", markersize=3, color="#0b3c8c")
above.set(ylabel="familiarity")
below.plot(evidence, color="#0b3c8c", linewidth=1)
below.axhline(1, color="0.5", linestyle=":")
below.set(xlabel="row", ylabel="evidence / needed", ylim=(0, 1.5))
for ax in (above, below):
    ax.axvline(600, color="0.5", linestyle="--", label="the drift begins")
    ax.axvline(alarm.reports[0].row, color="#d62728", label="the alarm rings")
below.legend(loc="upper left", fontsize="small")
plt.show()
