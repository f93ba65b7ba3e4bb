# %% [markdown]
# # Density-Regression in three steps
#
# The algorithm of the paper (`alg:algorithm`) with nothing hidden: an encoder f, a head g, a density p(z) between them.
# The data are the paper's toy, a cubic with noise: we train on [-4, 4] and look at [-7, 7].
#
# `DensityRegressor(...).fit(X, y)` does all of this in one line. Here we do it by hand, on torch tensors, and look at
# each step. This file is a notebook in plain text: open it in an editor that knows `# %%` cells, or run it.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from density_regression import DensityRegression, MixtureDensity
from density_regression.baselines import DeepEnsembleRegressor
from density_regression.datasets import make_cubic
from density_regression.plots import predictive_band
from density_regression.training import (
    TensorBatches,
    TrainingOptions,
    cache_features,
    fit_density,
    pretrain,
    refit_head,
)

torch.manual_seed(0)

# %% [markdown]
# ## Data
#
# Networks like numbers of unit size, so inputs and targets are scaled, by the training rows alone. Some rows are held
# out: they say when to stop, and how wide the answers must be. Rows that a network was trained on cannot say that.

# %%
X, y = make_cubic(n=1000, noise=3.0, random_state=0)
scale_x, scale_y = X[:850].std(), y[:850].std()
x, t = (torch.tensor(part, dtype=torch.float32).reshape(-1, 1) for part in (X / scale_x, y / scale_y))
weight = torch.ones(len(x))
train = TensorBatches(x[:850], t[:850], weight[:850], batch_size=32, generator=torch.Generator().manual_seed(0))
held_out = TensorBatches(x[850:], t[850:], weight[850:], batch_size=150)

# %% [markdown]
# ## The model
#
# Any module may be the encoder. The head is linear in the features z and gives two natural parameters, m and s; from
# them mean = -m e^-s and log variance = -(log 2 + log p(z) + s). The density multiplies the precision and leaves the
# mean alone.

# %%
encoder = nn.Sequential(nn.Linear(1, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU())
model = DensityRegression(encoder, features=100, density=MixtureDensity())

grid = np.linspace(-7, 7, 281)
scaled_grid = torch.tensor(grid / scale_x, dtype=torch.float32).reshape(-1, 1)


def predict() -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation along the grid, in the target's units."""
    with torch.no_grad():
        normal = model(scaled_grid)
    return scale_y * normal.mean[:, 0].numpy(), scale_y * normal.stddev[:, 0].numpy()


# %% [markdown]
# ## Step 1: the network
#
# Encoder and head by maximum likelihood, as if there were no density. This is an ordinary Gaussian network, and it is
# as sure of itself at x = 7, where it has never been, as at x = 4.

# %%
losses = pretrain(model, train, held_out, TrainingOptions(epochs=200))
after_step_1 = predict()
print(f"step 1: held-out NLL {min(losses):.3f} after {len(losses)} epochs (scaled units)")

# %% [markdown]
# ## Step 2: the density of the features
#
# The encoder stays as it is and runs once over the data; a mixture of Gaussians learns where its features lie. Far from
# the training range log p(z) falls.

# %%
features = cache_features(model, train)
held_out_features = cache_features(model, held_out)
fit_density(model, features, held_out_features)
with torch.no_grad():
    log_density = model.log_density(scaled_grid).numpy()
print(f"step 2: log p(z) is {log_density[140]:.1f} at x = 0 and {log_density[-1]:.1f} at x = 7")

# %% [markdown]
# ## Step 3: the head again
#
# With the density in place the head is fitted once more; encoder and density stay as they are.

# %%
refit_head(model, features, held_out_features)
after_step_3 = predict()
growth = {name: std[-1] / std[140] for name, (_, std) in (("step 1", after_step_1), ("step 3", after_step_3))}
print("std(7) / std(0): " + ", ".join(f"{name} {ratio:.1f}" for name, ratio in growth.items()))

# %% [markdown]
# ## What it looks like, beside five networks
#
# Every rival has the same interface, so a Deep Ensemble is one line. It needs five networks to be unsure.

# %%
ensemble = DeepEnsembleRegressor(epochs=200, random_state=0, verbose=False).fit(X, y)
panels = {
    "after step 1": after_step_1,
    "after step 3": after_step_3,
    "Deep Ensemble of five": ensemble.predict(grid[:, None], return_std=True),
}
figure, axes = plt.subplots(1, 3, figsize=(13, 4), sharey=True, layout="constrained")
for ax, (title, (mean, std)) in zip(axes, panels.items(), strict=True):
    predictive_band(ax, grid, mean, std, x_train=X, y_train=y, y_true=grid**3)
    ax.set(title=title, xlabel="x", ylim=(-400, 400))
axes[0].legend(loc="upper left", fontsize="small")
plt.show()
