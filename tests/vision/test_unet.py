"""The U-Net: shapes, size, sides that do not divide, errors."""

import pytest
import torch
from torch.nn import functional as F

from density_regression.nn.encoders import UNet


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (8, 8), (10, 14)])
@pytest.mark.parametrize(("width", "levels"), [(4, 1), (3, 2), (2, 3)])
def test_shapes_and_gradients(size: tuple[int, int], width: int, levels: int) -> None:
    encoder = UNet(channels=2, width=width, levels=levels)
    z = encoder(torch.rand(3, 2, *size))
    assert z.shape == (3, width, *size)
    z.square().sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_number_of_parameters() -> None:
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in UNet().parameters()) == 7_763_008


@pytest.mark.parametrize("size", [(5, 8), (8, 7), (9, 13)])
def test_other_sides_are_padded(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    encoder = UNet(width=4, levels=2).eval()
    height, width = size
    x = torch.rand(2, 3, height, width)
    padded = F.pad(x, (0, -width % 4, 0, -height % 4), mode="replicate")
    assert padded.shape[2] % 4 == padded.shape[3] % 4 == 0
    torch.testing.assert_close(encoder(x), encoder(padded)[..., :height, :width])


def test_every_level_is_seen() -> None:
    """A pixel changes features far away through the deepest level, and near ones most."""
    torch.manual_seed(0)
    encoder = UNet(width=4, levels=3).eval()
    x = torch.rand(1, 3, 48, 48)
    other = x.clone()
    other[..., 24, 24] += 1
    moved = (encoder(other) - encoder(x)).abs().sum((0, 1)).detach()
    assert moved[24, 24] > 100 * moved[24, 40]
    assert moved[24, 40] > 0


def test_dropout_is_for_training() -> None:
    torch.manual_seed(0)
    encoder = UNet(width=4, levels=2, dropout=0.5)
    x = torch.rand(2, 3, 8, 8)
    assert not torch.equal(encoder(x), encoder(x))
    encoder.eval()
    assert torch.equal(encoder(x), encoder(x))
    assert encoder.state_dict().keys() == UNet(width=4, levels=2).state_dict().keys()


@pytest.mark.parametrize("argument", ["channels", "width", "levels"])
def test_bad_numbers(argument: str) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        UNet(**{argument: 0})


@pytest.mark.parametrize("size", [{"levels": 9}, {"levels": 10**12}, {"width": 10**9}, {"width": 512, "levels": 4}])
def test_no_more_channels_than_a_memory_holds(size: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"width \* 2 \*\* levels channels, which must be at most 4096"):
        UNet(**size)


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_bad_dropout(dropout: float) -> None:
    with pytest.raises(ValueError, match="dropout must be"):
        UNet(dropout=dropout)
