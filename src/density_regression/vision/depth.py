"""Depth of every pixel from one image, with its uncertainty: the method on a U-Net."""

import inspect
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from density_regression.datasets.depth import DepthFolder
from density_regression.io.store import InvalidModelError, read_model, write_model
from density_regression.nn.density import GaussianDensity
from density_regression.nn.encoders import UNet
from density_regression.nn.heads import Moments
from density_regression.nn.network import Predictor
from density_regression.nn.runtime import (
    TrainingOptions,
    device_of,
    find_device,
    full_precision,
    own_draws,
    threads,
    usual_torch,
)
from density_regression.nn.tempering import RobustTempering
from density_regression.tabular.table import split_rows
from density_regression.training.algorithm import fit_density_regression
from density_regression.training.callbacks import Callback
from density_regression.training.loop import TrainingReport
from density_regression.vision.batches import DepthBatches, depth_scaling
from density_regression.vision.encoder import Patches, WithScene
from density_regression.vision.model import SceneRegression

__all__ = ["DepthMaps", "DepthRegressor", "in_metres", "metres", "placed"]

Maps = NDArray[np.float32]

T = TypeVar("T", bound=nn.Module)


class DepthMaps(NamedTuple):
    """Mean and standard deviation of every pixel's depth in metres, (n, h, w); mean log-density of each image (n,)."""

    mean: Maps
    std: Maps
    score: Maps


@dataclass(kw_only=True, eq=False, repr=False)
class DepthRegressor:
    """Depth of every pixel from one image, as a Gaussian that widens for images unlike those in training.

    A U-Net computes features of every pixel. The density is a Gaussian on these times one on a description of the whole
    image (`WithScene`); a linear head gives mean and noise. Depth is modelled in metres, not as its logarithm: the mean
    of a log-normal grows like exp(variance / 2), and explodes where the variance is large. Pixels without depth have
    weight zero.

    Parameters
    ----------
    width, levels : int
        Of the U-Net; see `UNet`.
    epochs, batch_size, learning_rate, weight_decay, average, smoothness, compile
        Of step 1; see `TrainingOptions`.
    dims : int
        Principal directions of the pixels' features that the density models.
    reach : float
        Length scale on which the variance grows with distance, in spreads of the log-density, beyond the first half
        of one.
    validation_fraction : float
        Share of the images held out for early stopping, the density's level and the overall scale.
    device, random_state, checkpoint_dir, callbacks, verbose
        See `DeepRegressor`.
    devices, num_nodes : int
        Processes on each machine, and machines, that train the U-Net together; see `TrainingOptions`.
    precision : str
        Precision of step 1; "auto" is "bf16-mixed" on a GPU.
    workers : int
        Processes that prepare images.

    Attributes
    ----------
    model_ : SceneRegression
        The trained module.
    center_, scale_ : float
        Mean and standard deviation of the training depths, in metres.
    report_ : TrainingReport
        Seconds of each step, and the training and held-out losses over epochs.

    Examples
    --------
    >>> from density_regression.datasets import DepthFolder, make_scenes
    >>> folder = DepthFolder(make_scenes("rooms", 6, size=(16, 24)))
    >>> reg = DepthRegressor(width=8, levels=2, epochs=1, batch_size=2, device="cpu", verbose=False).fit(folder)
    >>> maps = reg.predict(folder[0][0])
    >>> maps.mean.shape, maps.std.shape, maps.score.shape
    ((1, 16, 24), (1, 16, 24), (1,))
    """

    width: int = 32
    levels: int = 4
    epochs: int = 60
    batch_size: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    average: float = 8.0
    smoothness: float = 0.03
    dims: int = 4
    reach: float = 0.5
    validation_fraction: float = 0.1
    device: str = "auto"
    devices: int = 1
    num_nodes: int = 1
    precision: str = "auto"
    compile: bool = False
    workers: int = 0
    random_state: int = 0
    checkpoint_dir: str | os.PathLike[str] | None = None
    callbacks: Sequence[Callback] | None = None
    verbose: bool = True
    model_: SceneRegression = field(init=False)
    center_: float = field(init=False)
    scale_: float = field(init=False)
    report_: TrainingReport = field(init=False)
    fitted_params_: dict[str, Any] = field(init=False)

    def fit(self, folder: str | os.PathLike[str] | DepthFolder) -> Self:
        """Train on a folder of `rgb` and `depth` pairs; a path is read by `DepthFolder`."""
        pairs = folder if isinstance(folder, DepthFolder) else DepthFolder(folder)
        with own_draws(), usual_torch(), threads(None):
            train, held_out = self.prepare(pairs)
            scaling = train.center, train.scale
            torch.manual_seed(self.random_state)
            model = placed(self.build(), str(device_of(self.options())))
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
        # Set last, so that an interrupted fit leaves an earlier one as it was.
        self.model_, self.report_, self.fitted_params_ = model, report, self._params()
        self.center_, self.scale_ = scaling
        return self

    def prepare(self, pairs: DepthFolder) -> tuple[DepthBatches, DepthBatches]:
        """Split the images: training batches and held-out batches, both scaled by the training depths."""
        if len(pairs) < 3:
            raise ValueError(f"At least 3 images are needed, one of them held out; {pairs.folder} has {len(pairs)}.")
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie between 0 and 1, got {self.validation_fraction}.")
        most = min(pairs.size).bit_length() - 1
        if self.levels > most:
            raise ValueError(
                f"levels must be at most {most} for images of {pairs.size[0]} x {pairs.size[1]} pixels, which each "
                f"level halves; got {self.levels}."
            )
        kept, aside = split_rows(len(pairs), max(self.validation_fraction, 1 / len(pairs)), self.random_state)
        scaling = depth_scaling(pairs.subset(kept))
        train = self._batches(pairs.subset(kept, augment=True), scaling, seed=self.random_state)
        return train, self._batches(pairs.subset(aside, augment=False), scaling)

    def options(self) -> TrainingOptions:
        """Training options of step 1."""
        precision = self.precision
        if precision == "auto":
            precision = "bf16-mixed" if find_device(self.device).type == "cuda" else "32-true"
        names = ("epochs", "learning_rate", "weight_decay", "average", "smoothness", "device", "compile")
        shared: dict[str, Any] = {name: getattr(self, name) for name in (*names, "devices", "num_nodes")}
        return TrainingOptions(**shared, patience=None, precision=precision, seed=self.random_state)

    def predict(self, images: Tensor | NDArray[Any]) -> DepthMaps:
        """Depth of every pixel of images (n, 3, h, w) or (3, h, w) of any size, uint8 or numbers from 0 to 1."""
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
        """The untrained module."""
        return SceneRegression(
            WithScene(UNet(width=self.width, levels=self.levels), Patches(seed=self.random_state)),
            self.width,
            density=GaussianDensity(max_dims=self.dims),
            # From half a spread on, where images differ by more than those of one kind, as a linear model's variance.
            tempering=RobustTempering(exponent=1.0, reach=self.reach, start=0.5),
        )

    def _batches(self, folder: DepthFolder, scaling: tuple[float, float], seed: int | None = None) -> DepthBatches:
        device = device_of(self.options())
        workers = self.workers if seed is not None else 0
        return DepthBatches(folder, *scaling, self.batch_size, seed=seed, device=device, workers=workers)

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise ValueError("This model is not fitted yet: call fit first.")

    def _params(self) -> dict[str, Any]:
        """Parameters that define the model, without those of the machine and the run."""
        machine = ("device", "devices", "num_nodes", "workers", "compile", "precision")
        excluded = (*machine, "checkpoint_dir", "callbacks", "verbose")
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters if name not in excluded}


def placed(model: T, device: str) -> T:
    """Move a model of images to its device; on a GPU in channels-last format, which is faster for convolutions."""
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


def as_images(images: Tensor | NDArray[Any]) -> Tensor:
    """Convert images, an array or tensor, to float32 of shape (n, 3, h, w), from 0 to 1."""
    # A copy, as torch takes neither read-only arrays (Pillow) nor negative strides (OpenCV after BGR to RGB).
    x = images if isinstance(images, Tensor) else torch.from_numpy(np.array(images))
    shape = tuple(x.shape)
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    x = x[None] if x.ndim == 3 else x
    if x.ndim != 4 or x.shape[1] != 3 or x.numel() == 0:
        raise ValueError(f"Expected images of shape (n, 3, h, w) or (3, h, w), got {shape}.")
    if not x.isfinite().all() or x.min() < 0 or x.max() > 1:
        raise ValueError("Images must be uint8, or numbers from 0 to 1.")
    return x
