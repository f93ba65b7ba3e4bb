"""Depth from one image, and images of another kind

**What you learn:** train a small U-Net to tell the distance of every pixel, with a standard deviation for each, and
compare images like those of training with others.

The images are made by ray casting: rooms with boxes for training, and roads under the sky, up to 80 m deep, which the
model has never seen. So tiny a network, trained for seconds, is no good depth model; it is enough to see how the
uncertainty behaves.

**How to read the figure:** a row is an image; from left to right the image, its true depth, the prediction, the error,
and the predicted standard deviation. The roads should have the larger uncertainty.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from density_regression.datasets import DepthFolder, make_scenes
from density_regression.plots import depth_panels
from density_regression.vision.depth import DepthRegressor

# %% [markdown]
# ## Train on rooms
#
# A folder has `rgb/NAME.jpg` and `depth/NAME.png`; your own pairs work alike.

# %%
rooms = make_scenes("rooms", 60, size=(32, 40), random_state=0)
model = DepthRegressor(width=8, levels=2, epochs=15, batch_size=8, learning_rate=3e-3, random_state=0, verbose=False)
model.fit(rooms)

# %% [markdown]
# ## Ask about new rooms, and about roads

# %%
folders = {
    "rooms": make_scenes("new_rooms", 8, size=(32, 40), random_state=1),
    "roads": make_scenes("roads", 8, size=(32, 40), outdoor=True, random_state=1),
}
figure, axes = plt.subplots(2, 5, figsize=(11, 5), layout="constrained", num="Depth maps of a new room and of a road")
typical = {}
for (name, folder), panels in zip(folders.items(), axes, strict=True):
    pairs = DepthFolder(folder)
    images, truth = (
        np.stack([np.asarray(part) for part in parts]) for parts in zip(*map(pairs.load, range(8)), strict=True)
    )
    maps = model.predict(images)
    typical[name] = np.median(maps.std, axis=(1, 2))
    known = truth.reshape(maps.mean.shape) > 0
    error = np.abs(maps.mean - truth.reshape(maps.mean.shape))[known]
    print(f"{name}: median error {np.median(error):.2f} m, median std {np.median(typical[name]):.2f} m")
    depth_panels(panels, np.moveaxis(images[0], 0, -1), truth[0].reshape(32, 40), maps.mean[0], maps.std[0], unit="m")
pairs_of_images = typical["roads"][:, None] > typical["rooms"]
print(f"the road has the larger uncertainty in {pairs_of_images.mean():.0%} of all pairs of a road and a room")
plt.show()
