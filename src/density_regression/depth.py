"""Depth of every pixel from one image, with its uncertainty: the method on a U-Net."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any, Final, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader

from density_regression.callbacks import Callback
from density_regression.datasets.depth import DepthFolder
from density_regression.density import GaussianDensity, RobustTempering
from density_regression.encoders import Patches, UNet, WithScene
from density_regression.head import Moments
from density_regression.loop import (
    TrainingOptions,
    TrainingReport,
    find_device,
    full_precision,
    own_draws,
    usual_torch,
)
from density_regression.network import Predictor
from density_regression.persistence import InvalidModelError, read_model, write_model
from density_regression.predicting import threads
from density_regression.scene import SceneRegression
from density_regression.tables import split_rows
from density_regression.training import fit_density_regression

__all__ = ["DepthBatches", "DepthMaps", "DepthRegressor", "metres", "placed"]

Maps = NDArray[np.float32]

T = TypeVar("T", bound=nn.Module)

MOST_HELD: Final = 2**27
"""Most pixels of images that are held on the device, at 7 bytes each."""


class DepthMaps(NamedTuple):
    """Mean and standard deviation of every pixel's depth in metres, (n, h, w); mean log-density of each image (n,)."""

    mean: Maps
    std: Maps
    score: Maps


class DepthBatches:
    """Batches of a `DepthFolder` with depth in standard deviations of the training depths, for any training here.

    Images that fit there are held on the device, and varied there, a batch at a time: several times faster than one
    by one in a `DataLoader`, which takes the others.

    Parameters
    ----------
    folder : DepthFolder
        The pairs.
    center, scale : float
        Mean and standard deviation of the training depths, in metres.
    batch_size : int
        Images in a batch.
    seed : int, optional
        Shuffle the images, anew each time; without it they come in order.
    device : torch.device, optional
        Where to hold them.
    workers : int
        Processes that prepare images, where they are not held.
    """

    def __init__(
        self,
        folder: DepthFolder,
        center: float,
        scale: float,
        batch_size: int,
        *,
        seed: int | None = None,
        device: torch.device | None = None,
        workers: int = 0,
    ) -> None:
        self.folder = folder
        self.center = center
        self.scale = scale
        self._generator = None if seed is None else torch.Generator().manual_seed(seed)
        self._size = min(batch_size, len(folder))
        self._held: tuple[Tensor, Tensor] | None = None
        self._loader: DataLoader[Any] | None = None
        if folder.cache and folder.crop is None and len(folder) * folder.size[0] * folder.size[1] <= MOST_HELD:
            images, depths = zip(*map(folder.load, range(len(folder))), strict=True)
            self._held = (torch.stack(images).to(device), torch.stack(depths)[:, None].to(device))
        else:
            self._loader = DataLoader(
                folder,
                self._size,
                shuffle=seed is not None,
                generator=self._generator,
                num_workers=workers,
                persistent_workers=workers > 0,
                drop_last=seed is not None,
            )

    def __len__(self) -> int:
        # A last batch of an image or two would make its batch norm a poor one.
        return len(self.folder) // self._size if self._generator is not None else -(-len(self.folder) // self._size)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for x, y, weight in self._held_batches(*self._held) if self._held is not None else self._loader or ():
            yield x, (y - self.center) / self.scale, weight

    def _held_batches(self, images: Tensor, depths: Tensor) -> Iterator[tuple[Tensor, ...]]:
        order = torch.arange(len(images))
        if self._generator is not None:
            order = torch.randperm(len(images), generator=self._generator)
        for index in order.to(images.device).split(self._size)[: len(self)]:
            x, y = images[index] / 255, depths[index]
            if self.folder.augment:
                x, y = _varied(x, y)
            yield x, y, (y[:, 0] > 0).float()


class DepthRegressor:
    """Depth of every pixel from one image, narrow where the image is like those in training, and wide elsewhere.

    A U-Net gives every pixel its features; a Gaussian on them and one on what the whole image is made of give the
    density; a linear head gives mean and noise. Depth is predicted in metres, as a Gaussian: the logarithm of
    depth would be fitted a little better, but the mean of a log-normal grows like exp(variance / 2), and explodes
    just where the variance is meant to say that nothing is known. Pixels without depth count for nothing.

    Parameters
    ----------
    width, levels : int
        Of the U-Net; see `UNet`.
    epochs : int
        Most passes over the images in step 1.
    batch_size : int
        Images in a batch.
    learning_rate, weight_decay, average, smoothness
        See `TrainingOptions`.
    dims : int
        Directions of the pixels' features that the density looks at.
    reach : float
        How far from the training data a prediction is still trusted, in spreads of the log-density, beyond the
        first half of one.
    validation_fraction : float
        Share of the images held out for early stopping, the density's level and the overall scale.
    device : str
        "cpu", "cuda", or "auto" for a GPU if there is one.
    precision : str
        Of step 1; "auto" is "bf16-mixed" on a GPU.
    compile : bool
        Whether to compile step 1.
    workers : int
        Processes that prepare images.
    random_state : int
        Seed of everything random.
    checkpoint_dir : path, optional
        Keep the state after each step there; a fit that was interrupted goes on from it.
    callbacks : list of Callback, optional
        Told the losses after each epoch, as `density_regression.Callback` describes.
    verbose : bool
        Show a progress bar, if there is a terminal to show it on.

    Attributes
    ----------
    model_ : SceneRegression
        The trained module.
    center_, scale_ : float
        Mean and standard deviation of the training depths, in metres.
    report_ : TrainingReport
        Seconds of each step, and the training and held-out losses over epochs.
    """

    def __init__(
        self,
        *,
        width: int = 32,
        levels: int = 4,
        epochs: int = 60,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        average: float = 8.0,
        smoothness: float = 0.03,
        dims: int = 4,
        reach: float = 0.5,
        validation_fraction: float = 0.1,
        device: str = "auto",
        precision: str = "auto",
        compile: bool = False,
        workers: int = 0,
        random_state: int = 0,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callback] | None = None,
        verbose: bool = True,
    ) -> None:
        self.width = width
        self.levels = levels
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.average = average
        self.smoothness = smoothness
        self.dims = dims
        self.reach = reach
        self.validation_fraction = validation_fraction
        self.device = device
        self.precision = precision
        self.compile = compile
        self.workers = workers
        self.random_state = random_state
        self.checkpoint_dir = checkpoint_dir
        self.callbacks = callbacks
        self.verbose = verbose

    model_: SceneRegression
    center_: float
    scale_: float
    report_: TrainingReport
    fitted_params_: dict[str, Any]

    def fit(self, folder: str | os.PathLike[str] | DepthFolder) -> Self:
        """Train on a folder of `rgb` and `depth` pairs.

        Parameters
        ----------
        folder : path or DepthFolder
            The pairs; a path is read by `DepthFolder`.
        """
        pairs = folder if isinstance(folder, DepthFolder) else DepthFolder(folder)
        with own_draws(), usual_torch(), threads(None):
            train, held_out = self.prepare(pairs)
            scaling = train.center, train.scale
            torch.manual_seed(self.random_state)
            model = placed(self.build(), self.device)
            report = fit_density_regression(
                model,
                train,
                held_out,
                unvaried=self._batches(train.folder.subset(range(len(train.folder)), augment=False), scaling),
                options=self.options(),
                checkpoint_dir=self.checkpoint_dir,
                fingerprint="" if self.checkpoint_dir is None else f"{self._params()} {pairs.checksum()}",
                callbacks=self.callbacks or (),
                scale_targets=False,
                verbose=self.verbose,
            )
            model.eval()
            model.fold()
        # Only now: a fit that is interrupted leaves what an earlier one has learnt.
        self.model_, self.report_, self.fitted_params_ = model, report, self._params()
        self.center_, self.scale_ = scaling
        return self

    def prepare(self, pairs: DepthFolder) -> tuple[DepthBatches, DepthBatches]:
        """Hold some of the images out, and scale depth by the others: batches to train on, and held-out ones."""
        if len(pairs) < 3:
            raise ValueError(f"At least 3 images are needed, one of them held out; {pairs.folder} has {len(pairs)}.")
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie between 0 and 1, got {self.validation_fraction}.")
        height, width = pairs.size
        most = min(height, width).bit_length() - 1
        if self.levels > most:
            raise ValueError(
                f"levels must be at most {most} for images of {height} x {width} pixels, which each level halves; "
                f"got {self.levels}."
            )
        fraction = max(self.validation_fraction, 1 / len(pairs))
        kept, aside = split_rows(len(pairs), fraction, self.random_state)
        scaling = _depth_scaling(pairs.subset(kept))
        train = self._batches(pairs.subset(kept, augment=True), scaling, seed=self.random_state)
        return train, self._batches(pairs.subset(aside, augment=False), scaling)

    def options(self) -> TrainingOptions:
        """How step 1 is trained."""
        precision = self.precision
        if precision == "auto":
            precision = "bf16-mixed" if find_device(self.device).type == "cuda" else "32-true"
        return TrainingOptions(
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            patience=None,
            average=self.average,
            smoothness=self.smoothness,
            device=self.device,
            precision=precision,
            compile=self.compile,
            seed=self.random_state,
        )

    def predict(self, images: Tensor | NDArray[Any]) -> DepthMaps:
        """Depth of every pixel of images (n, 3, h, w) or (3, h, w), uint8 or from 0 to 1; of any size."""
        self._check_fitted()
        x = as_images(images)
        device = next(self.model_.parameters()).device
        parts = []
        with full_precision(), threads(None), torch.inference_mode():
            for batch in (part.to(device) for part in x.split(self.batch_size)):
                pixels = self.model_.pixels(batch)
                mean, std = in_metres(Moments(*pixels[:2]), self.center_, self.scale_)
                parts.append([part.cpu().numpy() for part in (mean, std, pixels.log_density.mean((1, 2)))])
        return DepthMaps(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted model to a folder (safetensors and JSON), whole or not at all."""
        self._check_fitted()
        config = {
            "estimator": type(self).__name__,
            "version": version("density-regression"),
            "torch": torch.__version__,
            "params": self.fitted_params_,
            "scaling": [self.center_, self.scale_],
            "seconds": self.report_.seconds,
        }
        write_model(folder, config, self.model_.state_dict())

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, device: str = "auto") -> Self:
        """Read back what `save` wrote; runs no code from the folder."""
        config, tensors = read_model(folder)
        if config.get("estimator") != cls.__name__:
            raise InvalidModelError(f"{folder} holds a {config.get('estimator')}, not a {cls.__name__}.")
        try:
            self = cls(**config["params"], device=device)
            self.center_, self.scale_ = (float(value) for value in config["scaling"])
            with usual_torch():
                self.model_ = self.build()
                self.model_.load_state_dict(tensors)
                self.model_.fold()
            self.fitted_params_ = self._params()
            self.report_ = TrainingReport({step: float(value) for step, value in config["seconds"].items()})
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise InvalidModelError(f"{folder} does not hold a depth model of this version: {error}") from error
        placed(self.model_, device).eval()
        return self

    def build(self) -> SceneRegression:
        """The module, as it is before any training."""
        return SceneRegression(
            WithScene(UNet(width=self.width, levels=self.levels), Patches(seed=self.random_state)),
            self.width,
            density=GaussianDensity(max_dims=self.dims),
            # What images of one kind differ by tells little of errors; beyond that, as a linear model's would grow.
            tempering=RobustTempering(exponent=1.0, reach=self.reach, start=0.5),
        )

    def _batches(self, folder: DepthFolder, scaling: tuple[float, float], seed: int | None = None) -> DepthBatches:
        device = find_device(self.device)
        workers = self.workers if seed is not None else 0
        return DepthBatches(folder, *scaling, self.batch_size, seed=seed, device=device, workers=workers)

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise ValueError("This model is not fitted yet: call fit first.")

    def _params(self) -> dict[str, Any]:
        """Settings that say what the model is, not where it was made."""
        apart = ("device", "checkpoint_dir", "callbacks", "verbose", "workers", "compile", "precision")
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters if name not in apart}


def placed(model: T, device: str) -> T:
    """A model of images on its device; on a GPU with channels last, as its convolutions want them."""
    model.to(find_device(device))
    if find_device(device).type == "cuda":
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def metres(model: Predictor, x: Tensor, center: float, scale: float) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (n, h, w), in metres, of a model that predicts scaled depth."""
    return in_metres(model.moments(x), center, scale)


def in_metres(moments: Moments, center: float, scale: float) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (n, h, w), in metres, from moments (n, 1, h, w) of scaled depth."""
    mean, log_std = moments
    return center + scale * mean[:, 0].float(), scale * log_std[:, 0].float().exp()


def _depth_scaling(folder: DepthFolder) -> tuple[float, float]:
    """Mean and standard deviation of the known depths, in metres."""
    total, squares, count = 0.0, 0.0, 0
    for i in range(len(folder)):
        depth = folder.load(i)[1]
        depth = depth[depth > 0].double()
        total, squares, count = total + depth.sum().item(), squares + depth.square().sum().item(), count + len(depth)
    center = total / count
    return center, max(squares / count - center**2, 1e-12) ** 0.5


def as_images(images: Tensor | NDArray[Any]) -> Tensor:
    """Images (n, 3, h, w), float32 from 0 to 1, of what a user may give."""
    # Of an array a copy: it may be read-only, as Pillow's are, or run backwards, as OpenCV's do once they are RGB.
    x = images if isinstance(images, Tensor) else torch.from_numpy(np.array(images))
    shape = tuple(x.shape)
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    x = x[None] if x.ndim == 3 else x
    if x.ndim != 4 or x.shape[1] != 3 or x.numel() == 0:
        raise ValueError(f"Expected images of shape (n, 3, h, w) or (3, h, w), got {shape}.")
    if not x.isfinite().all() or x.min() < 0 or x.max() > 1:
        raise ValueError("Images must be uint8, or numbers from 0 to 1.")
    return x


def _varied(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Images (n, 3, h, w) and depths (n, 1, h, w), cut, mirrored or not, of other colours and contrast.

    An eighth is cut off at random, from all images of a batch at one place, so that they stay of one size.
    """
    height, width = (side - side // 8 for side in x.shape[2:])
    top, left = (int(torch.randint(side // 8 + 1, ())) for side in x.shape[2:])
    x, y = (part[..., top : top + height, left : left + width] for part in (x, y))
    mirrored, contrast = torch.rand(2, len(x), 1, 1, 1).to(x.device)
    colours = torch.rand(len(x), x.shape[1], 1, 1).to(x.device)
    x, y = (torch.where(mirrored < 0.5, part.flip(-1), part) for part in (x, y))
    mean = x.mean((1, 2, 3), keepdim=True)
    return ((0.8 + 0.4 * colours) * (mean + (0.8 + 0.4 * contrast) * (x - mean))).clamp(0, 1), y
