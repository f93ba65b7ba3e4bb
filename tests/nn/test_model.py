"""The module: shapes, positions, several targets, states, errors."""

import pytest
import torch
from torch import nn
from torch.distributions import Normal

from density_regression import DensityRegression, MeanHead, TrainingOptions, fit_density_regression
from density_regression.baselines import EnsembleNetwork, GaussianNetwork, fit_baseline
from density_regression.baselines.deterministic import DeterministicNetwork
from density_regression.baselines.due import DUENetwork
from density_regression.baselines.sngp import SNGPNetwork
from density_regression.nn.encoders import MLP, WithInputs, feature_width
from density_regression.training.algorithm import fit_density
from density_regression.training.batches import cache_features
from density_regression.training.refit import refit_head
from density_regression.training.warm_start import start_head


class PerPosition(nn.Module):
    """The same linear map at every position of (batch, c, ...)."""

    def __init__(self, inputs=2, features=5):
        super().__init__()
        self.linear = nn.Linear(inputs, features)

    def forward(self, x):
        return torch.tanh(self.linear(x.movedim(1, -1))).movedim(-1, 1)


def train(model, x, y):
    batches = [(x, y)]
    features = cache_features(model, batches)
    start_head(model.head, features)
    fit_density(model, features, features)
    refit_head(model, features, features)
    return model.eval()


@pytest.mark.parametrize("shape", [(), (7,), (4, 6)])
@pytest.mark.parametrize("targets", [1, 3])
def test_positions_are_rows(shape, targets):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 2, *shape, generator=generator)
    y = torch.randn(20, targets, *shape, generator=generator)
    model = train(DensityRegression(PerPosition(), 5, targets), x, y)
    law = model(x)
    assert isinstance(law, Normal)
    assert law.mean.shape == y.shape
    assert model.log_density(x).shape == (20, *shape)
    assert model.decompose(x).epistemic.shape == y.shape
    # Position by position, as rows of a table.
    rows = x.movedim(1, -1).reshape(-1, 2)
    flat = model(rows)
    torch.testing.assert_close(flat.mean, law.mean.movedim(1, -1).reshape(-1, targets))
    torch.testing.assert_close(flat.stddev, law.stddev.movedim(1, -1).reshape(-1, targets))
    torch.testing.assert_close(model.log_density(rows), model.log_density(x).reshape(-1))


def test_before_its_density_is_fitted_it_predicts_without_one():
    model = DensityRegression(nn.Linear(2, 3), 3)
    plain = DensityRegression(model.encoder, 3, density=None, head=model.head)
    x = torch.randn(6, 2)
    torch.testing.assert_close(model(x).stddev, plain(x).stddev)
    assert (model.decompose(x).epistemic == 0).all()
    with pytest.raises(ValueError, match="no fitted density"):
        model.log_density(x)


def test_parts_add_up_to_the_whole():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(200, 2, generator=generator), torch.randn(200, 1, generator=generator)
    model = train(DensityRegression(MLP(2, (16,)), 16), x, y)
    far = torch.cat([x, 100 * x])
    aleatoric, epistemic, *_ = model.decompose(far)
    torch.testing.assert_close(aleatoric**2 + epistemic**2, model(far).variance)
    assert (epistemic[200:] > aleatoric[200:]).all()


@pytest.mark.parametrize("tempering", ["exact", "rescaled", "robust"])
def test_state_dict_goes_into_a_fresh_model(tempering):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(100, 2, generator=generator), torch.randn(100, 1, generator=generator)
    model = train(DensityRegression(MLP(2, (16,)), 16, tempering=tempering), x, y)
    fresh = DensityRegression(MLP(2, (16,)), 16, tempering=tempering)
    fresh.load_state_dict(model.state_dict())
    torch.testing.assert_close(fresh(x).mean, model(x).mean, rtol=0, atol=0)
    torch.testing.assert_close(fresh(x).stddev, model(x).stddev, rtol=0, atol=0)
    doubled = model.double()(x.double())
    assert doubled.mean.dtype == torch.float64


def test_default_compiles_and_exports_without_a_graph_break():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(100, 2, generator=generator), torch.randn(100, 1, generator=generator)
    model = train(DensityRegression(MLP(2, (16,)), 16), x, y)

    class Moments(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return tuple(self.model.moments(x))

    compiled = torch.compile(Moments(), fullgraph=True, backend="eager")
    for fast, own in zip(compiled(x), model.moments(x), strict=True):
        torch.testing.assert_close(fast, own)
    program = torch.export.export(Moments(), (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
    for exported, own in zip(program.module()(x[:30]), model.moments(x[:30]), strict=True):
        torch.testing.assert_close(exported, own)


def test_gradients_reach_encoder_and_head_in_step_one():
    model = DensityRegression(MLP(2, (8,)), 8, 2)
    model(torch.randn(30, 2)).log_prob(torch.randn(30, 2)).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"density": "gauss"}, "density must be one of"),
        ({"head": "natur"}, "head must be one of"),
        ({"tempering": "none"}, "tempering must be one of"),
        ({"features": 0}, "at least 1"),
        ({"targets": 0}, "at least 1"),
        ({"head": MeanHead(2, 1), "targets": 2}, "The head reads 2 features for 1 target"),
        ({"head": MeanHead(3, 1)}, "The head reads 3 features for 1 target"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        DensityRegression(**{"encoder": nn.Identity(), "features": 2} | arguments)


@pytest.mark.parametrize("width", [2, 4])
def test_wrong_width_is_said(width):
    with pytest.raises(ValueError, match="Set features= to its width"):
        DensityRegression(nn.Identity(), 3)(torch.zeros(5, width))


def test_an_encoder_of_several_results_is_told():
    with pytest.raises(ValueError, match="The encoder returned a tuple; expected one tensor"):
        DensityRegression(nn.LSTM(3, 3), 3)(torch.zeros(5, 3))


class OtherPrecision(nn.Module):
    """An encoder whose features are in a precision of their own."""

    def __init__(self, dtype):
        super().__init__()
        self.linear = nn.Linear(2, 5).to(dtype)

    def forward(self, x):
        return torch.tanh(self.linear(x.to(self.linear.weight.dtype)))


NETWORKS = {
    "ours": DensityRegression,
    "deterministic": DeterministicNetwork,
    "gaussian": GaussianNetwork,
    "ensemble": lambda encoder, features: EnsembleNetwork([GaussianNetwork(encoder, features)]),
    "SNGP": SNGPNetwork,
    "DUE": DUENetwork,
}


@pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS.keys())
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_an_encoder_may_have_another_precision(build, dtype):
    model = build(OtherPrecision(dtype), 5)
    generator = torch.Generator().manual_seed(0)
    rows = (torch.randn(60, 2, generator=generator), torch.randn(60, 1, generator=generator))
    fit = fit_density_regression if isinstance(model, DensityRegression) else fit_baseline
    fit(model, [rows], [rows], options=TrainingOptions(epochs=2), verbose=False)
    law = model(rows[0])
    assert law.mean.isfinite().all()
    assert law.stddev.isfinite().all()


def results(model, x):
    known = [] if model.density is None else [model.log_density(x)]
    return [*model.moments(x), *model.decompose(x), *known]


@pytest.mark.parametrize("density", ["mixture", "kernel", None])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_under_autocast_the_encoder_alone_is_in_half_precision(density, dtype):
    model = DensityRegression(nn.Linear(2, 5), 5, density=density)
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    fit_density_regression(model, [(x, x[:, :1])], options=TrainingOptions(epochs=2), verbose=False)
    far = torch.cat([x, 1e3 * x, 1e30 * x])
    with torch.autocast("cpu", dtype=dtype):
        z = model.encoder(far)
        found = results(model, far)
    assert z.dtype == dtype
    # What full precision makes of the same features.
    model.encoder.forward = lambda x: z
    for part, other in zip(found, results(model, far), strict=True):
        assert part.isfinite().all()
        assert torch.equal(part, other)


def test_a_model_in_double_precision_stays_in_it():
    model = DensityRegression(nn.Linear(2, 3), 3).double()
    assert model.encode(torch.zeros(4, 2, dtype=torch.float64)).dtype == torch.float64


def test_feature_width_leaves_the_encoder_as_it_was():
    encoder = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6))
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    assert feature_width(encoder, torch.randn(4, 3)) == 6
    assert encoder.training
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    with pytest.raises(ValueError, match="must return features"):
        feature_width(nn.Flatten(0), torch.randn(4, 3))


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_the_width_of_an_mlp_is_what_it_gives(columns):
    x = torch.randn(4, columns)
    changed = MLP(columns, (5, 6)).append(nn.Linear(6, 2)).append(nn.Unflatten(1, (1, 2)))
    for encoder in (MLP(columns, (5, 6)), WithInputs(MLP(columns, (5, 6))), WithInputs(nn.Linear(columns, 3)), changed):
        assert feature_width(encoder, x) == encoder(x).shape[1]
    with pytest.raises(ValueError, match="does not take inputs"):
        feature_width(MLP(columns + 1, (5, 6)), x)


@pytest.mark.parametrize("hidden", [(), (0,), (5, -1)])
def test_layers_must_have_a_width(hidden):
    with pytest.raises(ValueError, match="hidden"):
        MLP(2, hidden)


def test_an_encoder_of_another_width_is_named():
    encoder = nn.Linear(3, 4)
    with pytest.raises(ValueError, match=r"does not take inputs of shape \(5, 2\)"):
        feature_width(encoder, torch.zeros(5, 2))
    assert encoder.training
