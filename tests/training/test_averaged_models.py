"""Averages of weights that a whole step keeps beside its model."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

import pliant
from tests.support.training_programs import rows, trains_alike

SIZES = (4, 4, 4, 7, 3, 4)
AVERAGED = {
    "mean": lambda model: AveragedModel(model),
    "buffers too": lambda model: AveragedModel(model, use_buffers=True),
    "one by one": lambda model: AveragedModel(model, avg_fn=get_ema_avg_fn(0.9)),
    "together": lambda model: AveragedModel(
        model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True
    ),
}


def network():
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


def stepping(average_of, update):
    """Makes a step that trains, then updates the average."""

    def make(compile):
        model = network()
        average = average_of(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @compile
        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            update(average, model)
            return loss

        return step, [model, average, optimizer]

    return make


@pytest.mark.parametrize("name", AVERAGED)
def test_averaged_models(name: str) -> None:
    """With buffers, there are tensors of two dtypes in one list, which are updated by kind."""
    update = AveragedModel.update_parameters
    trains_alike(stepping(AVERAGED[name], update), rows(*SIZES), compilations=3)


@torch.no_grad()
def _by_state(average, model):
    state = model.state_dict()
    for name, value in average.state_dict().items():
        if value.dtype.is_floating_point:
            value.mul_(0.9).add_(state[name].detach(), alpha=0.1)
        else:
            value.copy_(state[name])


@torch.no_grad()
def _lerp(average, model):
    for mine, new in zip(average.parameters(), model.parameters(), strict=True):
        mine.lerp_(new, 0.1)


@torch.no_grad()
def _together(average, model):
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.1)


@pytest.mark.parametrize("update", [_by_state, _lerp, _together])
def test_averages_by_hand(update) -> None:
    trains_alike(stepping(copy.deepcopy, update), rows(*SIZES), compilations=3)


def test_views_of_parameters_behind_a_whole_step() -> None:
    """What is detached doesn't require grad, and may be written to; a view that is made under
    `no_grad` may not."""

    def make(compile):
        weight, average = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))
        buffer = torch.zeros(3)

        @compile
        def step(x):
            (weight * x).sum().backward()
            with torch.no_grad():
                hidden = average.view(3, 1)
            return weight.detach(), average.detach(), buffer.view(3, 1), hidden

        def run(x, y):
            fresh, detached, viewed, hidden = step(x[0, :3])
            detached.copy_(fresh)
            viewed += 1
            detached *= 2
            seen = [(t._is_view(), t.is_leaf) for t in (fresh, detached, viewed, hidden)]
            with pytest.raises(RuntimeError, match="created in no_grad mode"):
                hidden.add_(1)
            return seen

        return run, [weight, average, buffer]

    trains_alike(make, rows(4, 4, 4))


@pytest.mark.parametrize("foreach", [None, True])
def test_parameters_of_several_dtypes(foreach: bool | None) -> None:
    def make(compile):
        layers = nn.Linear(8, 16), nn.Linear(16, 16).to(torch.bfloat16), nn.Linear(16, 2).double()
        model = nn.ModuleList(layers)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=foreach)

        @compile
        def step(x, y):
            optimizer.zero_grad()
            hidden = layers[1](layers[0](x).bfloat16())
            loss = F.mse_loss(layers[2](hidden.double()), y.double())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1, foreach=foreach)
            optimizer.step()
            return loss

        return step, [model, optimizer]

    trains_alike(make, compilations=3, close=(3e-2, 1e-2))


def test_tensors_by_kind() -> None:
    """In the order of PyTorch's hash table, with the places that they had."""
    group = torch.utils._foreach_utils._group_tensors_by_device_and_dtype
    dtypes = [torch.float64, torch.int64, torch.float32, torch.int64, torch.bool, torch.float64]
    tensors = [torch.ones(1, dtype=dtype) for dtype in dtypes]

    def kinds(tensors, with_indices):
        groups = group([tensors, [t.clone() for t in tensors], []], with_indices)
        return [(key[1], len(lists), where) for key, (lists, where) in groups.items()]

    compiled = pliant.compile(kinds, fullgraph=True)
    for with_indices in (False, True):
        assert compiled(tensors, with_indices) == kinds(tensors, with_indices)
    with pytest.raises(RuntimeError, match="must be on the same device"):
        pliant.compile(group)([tensors, tensors[::-1]], False)
