# %% [markdown]
# # The paper's demo, as a notebook
#
# **What you learn:** the method of Bui & Liu (AISTATS 2024) line by line, as in the listing of their appendix, in plain
# PyTorch; what the exact formula does to the band; and the same fit by one line of this package.
#
# This file is a notebook kept as text: VS Code, PyCharm and Spyder show its `# %%` cells, and `jupytext --to ipynb
# paper_demo.py` makes a notebook of it. It also runs as a script.
#
# **How to read the figure:** grey dots between the dashed lines are the training rows, the red line is the truth, and
# blue areas reach up to three standard deviations from the mean. A good band is narrow between the dashed lines, and
# wide enough outside to hold the red line.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.neighbors import KernelDensity
from torch import nn

from density_regression import DensityRegressor
from density_regression.datasets import make_cubic
from density_regression.plots import predictive_band

torch.manual_seed(0)

# %% [markdown]
# ## Data
#
# y = x³ + noise of standard deviation 3: trained on [-4, 4], shown on [-7, 7]. The demo of the paper takes x and y as
# they are; we divide both by their standard deviations, as networks train better on numbers of unit size.

# %%
X, y = make_cubic(n=1000, noise=3.0, random_state=0)
scale_x, scale_y = X.std(), y.std()
x, t = (torch.tensor(part, dtype=torch.float32).reshape(-1, 1) for part in (X / scale_x, y / scale_y))
grid = np.linspace(-7, 7, 281)
scaled_grid = torch.tensor(grid / scale_x, dtype=torch.float32).reshape(-1, 1)

# %% [markdown]
# ## The network
#
# A feature extractor f, and a linear regressor g with two outputs for each row: the natural parameters.

# %%
extractor = nn.Sequential(nn.Linear(1, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU())
regressor = nn.Linear(100, 2)

# %% [markdown]
# ## From natural parameters to a Gaussian (Corollary 3.2)
#
# The listing multiplies the first parameter by the density p(z) and adds log p(z) to the second:
#
# - log variance = -(log 2 + log p(z) + s)
# - mean = -2 variance p(z) m, in which p(z) cancels: the density widens the band and leaves the mean alone
#
# With log p(z) = 0 this is the network without a density, and the loss is twice the Gaussian's negative log-likelihood.


# %%
def gaussian(z, log_density):
    """Mean and log variance (n, 1) for features (n, 100) and their log-densities (n, 1)."""
    m, s = regressor(z).split(1, dim=1)
    log_variance = -(np.log(2) + log_density + s)
    # -2 exp(log variance + log density) m, written without the terms that cancel.
    return -torch.exp(-s) * m, log_variance


def train(inputs, log_density, weights, features, epochs):
    """Minimise the loss over the given weights, in batches of 128."""
    optimizer = torch.optim.Adam(weights, lr=2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs)).split(128):
            mean, log_variance = gaussian(features(inputs[rows]), log_density[rows])
            loss = (log_variance + (t[rows] - mean) ** 2 / log_variance.exp()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


@torch.no_grad()
def predict(log_density):
    """Mean and standard deviation along the grid, in the units of y."""
    mean, log_variance = gaussian(extractor(scaled_grid), log_density)
    return scale_y * mean[:, 0].numpy(), scale_y * torch.exp(log_variance[:, 0] / 2).numpy()


# %% [markdown]
# ## Step 1: pretrain extractor and regressor
#
# By maximum likelihood, without a density (Eq. 11).

# %%
none = torch.zeros(len(x), 1)
everything = [*extractor.parameters(), *regressor.parameters()]
print(f"step 1: loss {train(x, none, everything, extractor, epochs=150):.2f}")
panels = {"step 1 alone": predict(torch.zeros(len(grid), 1))}

# %% [markdown]
# ## Step 2: the density of the features
#
# A kernel density estimate with the exponential kernel and the L1 distance, as in the paper's toy.

# %%
with torch.no_grad():
    z, z_grid = extractor(x), extractor(scaled_grid)
density = KernelDensity(kernel="exponential", metric="l1").fit(z)
log_density = density.score_samples(z)
log_density_grid = density.score_samples(z_grid)
print(f"step 2: log p(z) is {log_density_grid[140]:.0f} at x = 0 and {log_density_grid[-1]:.0f} at x = 7")

# %% [markdown]
# ## Step 3: the regressor again, with the density in place
#
# The extractor stays as it is (Eq. 15). First with log p(z) as the formula has it, then as the authors' code does,
# which maps the log-densities of the training rows onto the range from 0 to 0.4.


# %%
def column(values):
    return torch.tensor(values, dtype=torch.float32).reshape(-1, 1)


after_step_1 = {name: weight.clone() for name, weight in regressor.state_dict().items()}
low, high = log_density.min(), log_density.max()
for name, change in {
    "step 3, exact": lambda values: values - high,
    "step 3, rescaled": lambda values: 0.4 * (values - low) / (high - low),
}.items():
    regressor.load_state_dict(after_step_1)
    loss = train(z, column(change(log_density)), regressor.parameters(), nn.Identity(), epochs=40)
    panels[name] = predict(column(change(log_density_grid)))
    print(f"{name}: loss {loss:.2f}")

# %% [markdown]
# Subtracting a constant from log p(z), as in the first of them, changes nothing but where the regressor starts.
#
# ## The same by this package
#
# One line does all steps. Its default differs in what made the above unsafe: the mean is linear in the features instead
# of a ratio, and the density enters by its excess over a typical row, so that the variance grows like a power of the
# distance.

# %%
reg = DensityRegressor(epochs=100, random_state=0).fit(X, y)
panels["DensityRegressor()"] = reg.predict(grid[:, None], return_std=True)
for name, (_, std) in panels.items():
    print(f"{name:18}: std {std[140]:.1f} at x = 0, {std[-1]:.3g} at x = 7")

# %%
figure, axes = plt.subplots(
    1,
    4,
    figsize=(14, 3.6),
    sharey=True,
    layout="constrained",
    num="Four bands on the cubic: step 1, exact, rescaled, default",
)
for ax, (name, (mean, std)) in zip(axes, panels.items(), strict=True):
    predictive_band(ax, grid, mean, std, x_train=X, y_train=y, y_true=grid**3)
    ax.set(title=name, xlabel="x", ylim=(-400, 400))
axes[0].legend(loc="upper left", fontsize="x-small")
plt.show()
