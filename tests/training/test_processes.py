"""One model fitted by several processes: the same as by one, and what is told when they do not fit together."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from density_regression import DensityRegressor, TrainingOptions, fit_density_regression
from density_regression.datasets import make_scenes
from density_regression.nn.batch_norm import over_processes
from density_regression.nn.heads import MeanHead
from density_regression.nn.processes import ALONE, LostProcessError, Processes, join, lost_processes
from density_regression.nn.runtime import device_of
from density_regression.training.batches import Batches, TensorBatches
from density_regression.training.distillation import Lessons, _LessonLoss
from density_regression.training.pretraining import NegativeLogLikelihood
from density_regression.training.shares import Shares, agree_on
from density_regression.training.teacher import Teacher, _TeacherLoss
from training import fits_in_processes
from training.helpers import batches, generator, network, wave

needs_gloo = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="torch.distributed with gloo is not available",
)


@pytest.fixture(scope="module")
def fits(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    """The same fits by one process, and as each of two has them."""
    folder = tmp_path_factory.mktemp("processes")
    scenes = make_scenes(folder / "scenes", 13, size=(16, 16))
    started = fits_in_processes.start([fits_in_processes.__file__, str(scenes), str(folder)])
    try:
        one = fits_in_processes.fits(1, scenes)
        for process in started:
            _, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors
    finally:
        for process in started:
            process.kill()
            process.wait(30)
    return [one, *(torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2))]


@needs_gloo
@pytest.mark.parametrize("kind", ["table", "own encoder", "depth"])
def test_two_processes_fit_the_model_of_one(kind: str, fits: list[dict[str, dict[str, Tensor]]]) -> None:
    one, first, second = (fit[kind] for fit in fits)
    assert one.keys() == first.keys() == second.keys()
    assert len(one) > 5
    for name, expected in one.items():
        assert torch.equal(first[name], second[name]), name
        size = expected.double().abs().max().item() if expected.numel() else 0.0
        torch.testing.assert_close(first[name].double(), expected.double(), rtol=0, atol=1e-4 * max(size, 1.0))


def _taught() -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return network(head=MeanHead(16, disagreement=True)).double()


def _rows(n: int = 23) -> tuple[Tensor, Tensor, Tensor]:
    x, y = (part.double() for part in wave(n))
    weight = torch.rand(n, generator=generator(3), dtype=torch.float64)
    weight[::4] = 0.0
    return x, y, weight


def _likelihood() -> tuple[nn.Module, Batches]:
    return NegativeLogLikelihood(network().double()), TensorBatches(*_rows(), 9, generator())


def _teacher() -> tuple[nn.Module, Batches]:
    teacher = Teacher.of(_taught(), 3, 0)
    x, y, weight = _rows()
    drawn = torch.rand(23, 3, generator=generator(1), dtype=torch.float64)
    shuffles = [generator(i) for i in range(3)]
    return _TeacherLoss(teacher), TensorBatches(x, torch.cat([y, drawn], 1), weight, 9, shuffles)


def _lessons() -> tuple[nn.Module, Batches]:
    model = _taught()
    # Two training rows and two that are made up: some of five processes get none of the former.
    train = TensorBatches(*_rows(), 2, generator())
    return _LessonLoss(model), Lessons(Teacher.of(model, 3, 0).eval(), train, 0, torch.device("cpu"))


@pytest.mark.parametrize("size", [2, 3, 5, 12])
@pytest.mark.parametrize("case", [_likelihood, _teacher, _lessons])
def test_losses_and_gradients_of_parts_average_to_those_of_the_batch(
    case: Callable[[], tuple[nn.Module, Batches]], size: int
) -> None:
    objective, given = case()
    for batch in itertools.islice(given, 6):
        whole = objective(*batch)
        expected = _gradients(whole, objective)
        losses, gradients = [], []
        for rank in range(size):
            part = Shares(objective, given, Processes(rank, size)).of(*batch)
            losses.append(part.scaled(objective(*part[:3])))
            gradients.append(_gradients(losses[-1], objective))
        torch.testing.assert_close(torch.stack(losses).mean(), whole)
        for own, gradient in zip(zip(*gradients, strict=True), expected, strict=True):
            torch.testing.assert_close(torch.stack(own).mean(0), gradient)


def _gradients(loss: Tensor, module: nn.Module) -> list[Tensor]:
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    found = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(w) if gradient is None else gradient for w, gradient in zip(weights, found, strict=True)]


def test_a_single_process_takes_the_whole_batch() -> None:
    batch = _rows()
    part = Shares(nn.Identity(), [batch], ALONE).of(*batch)
    assert all(one is other for one, other in zip(part[:3], batch, strict=True))
    assert part.factor is None
    assert ALONE.from_first(lambda: 5) == 5
    assert torch.equal(ALONE.sum(batch[0]), batch[0])


class _Threads(Processes):
    """Processes that are threads of this one."""

    def __init__(self, rank: int, size: int, shared: list[Any], barrier: threading.Barrier) -> None:
        super().__init__(rank, size)
        self._shared, self._barrier = shared, barrier

    def sum(self, value: Tensor) -> Tensor:
        self._shared[self.rank] = value.detach()
        self._barrier.wait(60)
        total: Tensor = torch.stack(list(self._shared)).sum(0)
        self._barrier.wait(60)
        return total


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_over_processes_is_that_of_the_whole_batch(momentum: float | None) -> None:
    x = 3 + 2 * torch.randn(7, 4, 3, 2, generator=generator(0), dtype=torch.float64)
    norm = nn.BatchNorm2d(4, momentum=momentum, dtype=torch.float64)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2.0, generator=generator(1))
    reference, inputs = copy.deepcopy(norm), x.clone().requires_grad_()
    for _ in range(2):
        expected = reference(inputs)
    expected.pow(3).sum().backward()
    shared: list[Any] = [None, None]
    barrier = threading.Barrier(2)
    found: list[Any] = [None, None]

    def run(rank: int) -> None:
        own, processes = copy.deepcopy(norm), _Threads(rank, 2, shared, barrier)
        part = processes.take(x).clone().requires_grad_()
        with over_processes(own, processes):
            for _ in range(2):
                output = own(part)
            output.pow(3).sum().backward()
        assert "forward" not in vars(own)
        found[rank] = (output.detach(), part.grad, own.weight.grad, own)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for rank, (output, gradient, of_weight, own) in enumerate(found):
        torch.testing.assert_close(output, expected.detach()[rank::2])
        assert inputs.grad is not None
        torch.testing.assert_close(gradient, inputs.grad[rank::2])
        for name, value in own.state_dict().items():
            torch.testing.assert_close(value, reference.state_dict()[name])
        assert of_weight is not None
        torch.testing.assert_close(own.eval()(x), copy.deepcopy(reference).eval()(x))
    assert reference.weight.grad is not None
    torch.testing.assert_close(found[0][2] + found[1][2], reference.weight.grad)


def test_several_processes_must_have_been_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    X, y = (part.numpy() for part in wave(50))
    with pytest.raises(ValueError, match=r"devices=2 need 2 processes.* by torchrun --nproc-per-node 2"):
        DensityRegressor(epochs=1, devices=2, random_state=0).fit(X, y[:, 0])
    with pytest.raises(ValueError, match=r"num_nodes=3 need 6 .*--nnodes 3 --nproc-per-node 2"):
        fit_density_regression(network(), [wave(50)], options=TrainingOptions(epochs=1, devices=2, num_nodes=3))
    started = {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1"}
    for name, value in (started | {"MASTER_PORT": "1"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r"8 were started, 4 on this one: give devices=4 and num_nodes=2"):
        join(4, 1)
    assert join(1, 1) is ALONE


@pytest.mark.parametrize(("name", "value"), [("devices", 0), ("num_nodes", -1), ("devices", 1.5), ("num_nodes", None)])
def test_bad_numbers_of_devices(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        TrainingOptions(**{name: value})
    with pytest.raises(ValueError, match=name):
        DensityRegressor(epochs=1, **{name: value}).fit(*(part.numpy() for part in wave(50)))


def test_each_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert device_of(TrainingOptions(device="cuda", devices=4)) == torch.device("cuda", 3)
    assert device_of(TrainingOptions(device="cuda")) == torch.device("cuda")
    assert device_of(TrainingOptions(devices=4)) == torch.device("cpu")
    with pytest.raises(ValueError, match=r'device must be "cuda" for devices=2'):
        device_of(TrainingOptions(device="cuda:1", devices=2))


class _Telling(Processes):
    """The second of two processes, which is told so many batches by the first."""

    def __init__(self, batches: int) -> None:
        super().__init__(1, 2)
        self._batches = batches

    def from_first(self, compute: Callable[[], Any]) -> Any:
        return self._batches


def test_processes_have_the_same_batches() -> None:
    agree_on(batches(*wave(), 40), 5, _Telling(5))
    with pytest.raises(ValueError, match="Process 2 has 5 batches, but the first has 6"):
        agree_on(batches(*wave(), 40), 5, _Telling(6))
    rows = TensorDataset(*wave())
    loader: DataLoader[Any] = DataLoader(rows, 40, sampler=DistributedSampler(rows, 2, 1))
    with pytest.raises(ValueError, match="DistributedSampler, but each process takes its rows"):
        agree_on(loader, 3, _Telling(3))
    agree_on(loader, 3, ALONE)


GONE = "[pair.cc:534] Connection closed by peer [127.0.0.1]:1234\nmore"


@pytest.mark.parametrize(
    ("processes", "error", "expected"),
    [
        (
            Processes(0, 2),
            RuntimeError(GONE),
            pytest.raises(LostProcessError, match=r"Process 1 of 2 .*from what .*ck"),
        ),
        (Processes(0, 2), RuntimeError("a matrix is singular"), pytest.raises(RuntimeError, match=r"^a matrix")),
        (ALONE, RuntimeError(GONE), pytest.raises(RuntimeError, match=r"^\[pair")),
        (Processes(0, 2), None, nullcontext()),
    ],
)
def test_a_lost_process_is_named(processes: Processes, error: Exception | None, expected: Any) -> None:
    def raise_it() -> Iterator[None]:
        if error is not None:
            raise error
        yield

    with expected as found, lost_processes(processes, Path("ck")):
        list(raise_it())
    if found is not None and processes.size > 1:
        assert "\n" not in str(found.value)
