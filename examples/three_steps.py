# %% [markdown]
# # Three steps: Algorithm 1 by hand
#
# **What you learn:** how the method is put together. An encoder f, a head g, and a density p(z) between them; what each
# of the three steps of the paper's Algorithm 1 does to them; and which functions of this package do it.
#
# The data are the paper's toy, a cubic with noise: we train on [-4, 4] and look at [-7, 7].
# `DensityRegressor(...).fit(X, y)` does all of this in one line. Here we do it on torch tensors, and look at each step.
#
# **How to read the figure:** the band should be narrow between the dashed lines, where the training rows are, and wide
# enough outside to hold the red line.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from density_regression import DensityRegression
from density_regression.baselines import DeepEnsembleRegressor
from density_regression.datasets import make_cubic
from density_regression.nn.runtime import TrainingOptions
from density_regression.plots import predictive_band
from density_regression.training.algorithm import fit_density, fit_density_regression, pretrain
from density_regression.training.batches import TensorBatches, cache_features
from density_regression.training.refit import refit_head

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
# ## The model, as in the paper
#
# Any module may be the encoder. The head is linear in the features z and gives two natural parameters, m and s; from
# them mean = -m e^-s and log variance = -(log 2 + log p(z) + s) (Eq. 8). The density multiplies the precision and
# leaves the mean alone. `tempering="exact"` takes log p(z) as it is.


# %%
def build(head: str, tempering: str) -> DensityRegression:
    """A network with two layers of 100 units, and a mixture of Gaussians as the density of its features."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(1, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU())
    return DensityRegression(encoder, features=100, head=head, density="mixture", tempering=tempering)


paper = build(head="natural", tempering="exact")
grid = np.linspace(-7, 7, 281)
scaled_grid = torch.tensor(grid / scale_x, dtype=torch.float32).reshape(-1, 1)


def predict(model: DensityRegression) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation along the grid, in the target's units."""
    with torch.no_grad():
        normal = model(scaled_grid)
    return scale_y * normal.mean[:, 0].numpy(), scale_y * normal.stddev[:, 0].numpy()


# %% [markdown]
# ## Step 1: the network
#
# Encoder and head by maximum likelihood, as if there were no density. This is an ordinary Gaussian network: nothing
# tells it that x = 7 is unlike anything it has seen.

# %%
options = TrainingOptions(epochs=120)
losses = pretrain(paper, train, held_out, options)
after_step_1 = predict(paper)
print(f"step 1: held-out NLL {min(losses.held_out):.3f} after {len(losses.held_out)} epochs (scaled units)")

# %% [markdown]
# ## Step 2: the density of the features
#
# The encoder stays as it is and runs once over the data; a mixture of Gaussians learns where its features lie. Far from
# the training range log p(z) falls.

# %%
features, held_out_features = cache_features(paper, train), cache_features(paper, held_out)
fit_density(paper, features, held_out_features)
with torch.no_grad():
    log_density = paper.log_density(scaled_grid).numpy()
print(f"step 2: log p(z) is {log_density[140]:.1f} at x = 0 and {log_density[-1]:.1f} at x = 7")

# %% [markdown]
# ## Step 3: the head again
#
# With the density in place the head is fitted once more; encoder and density stay as they are. The log variance now
# grows by as much as log p(z) falls: the band does not open, it explodes.

# %%
refit_head(paper, features, held_out_features)
as_in_the_paper = predict(paper)

# %% [markdown]
# ## Our default: the same steps, another head and a tempered density
#
# The head gives the mean itself, not a ratio of natural parameters, and `tempering="robust"` lets the variance grow
# like a power of the distance instead of exponentially. `fit_density_regression` runs the three steps in one call.
# `DensityRegressor` adds a fourth: it learns from hidden rows how fast the variance should grow (`learn_reach`).

# %%
default = build(head="mean", tempering="robust")
fit_density_regression(
    default, train, held_out, options=TrainingOptions(epochs=120), scale_targets=False, verbose=False
)
by_default = predict(default)
panels = {"after step 1": after_step_1, "as in the paper": as_in_the_paper, "our default": by_default}
growth = {name: std[-1] / std[140] for name, (_, std) in panels.items()}
print("std(7) / std(0): " + ", ".join(f"{name} {ratio:.3g}" for name, ratio in growth.items()))

# %% [markdown]
# ## What it looks like, beside five networks
#
# Every rival has the same interface, so a Deep Ensemble is one line. It needs five networks to be unsure.

# %%
ensemble = DeepEnsembleRegressor(epochs=120, random_state=0, verbose=False).fit(X, y)
panels["Deep Ensemble of five"] = ensemble.predict(grid[:, None], return_std=True)
figure, axes = plt.subplots(
    1,
    4,
    figsize=(14, 3.6),
    sharey=True,
    layout="constrained",
    num="Bands after step 1, as in the paper, ours, five networks",
)
for ax, (title, (mean, std)) in zip(axes, panels.items(), strict=True):
    predictive_band(ax, grid, mean, std, x_train=X, y_train=y, y_true=grid**3)
    ax.set(title=title, xlabel="x", ylim=(-400, 400))
axes[0].legend(loc="upper left", fontsize="small")
plt.show()
