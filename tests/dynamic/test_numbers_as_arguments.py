"""Numbers that a program is given, as sizes, dimensions, places and amounts: one compiled function,
called with one number after the other, gives what eager PyTorch gives, errors included."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import pliant

NUMBERS = (2, -1, 0, 1, 3, -2, 5, -7, 7)
TENSORS = {
    "rows": torch.arange(24.0).view(4, 6),
    "columns": torch.arange(24.0).view(4, 6).t(),
    "empty": torch.zeros(0, 3),
}
PROGRAMS = {
    "view": lambda x, n: x.view(n, -1),
    "view2": lambda x, n: x.view(-1, n),
    "reshape": lambda x, n: x.t().reshape(n, -1),
    "view1": lambda x, n: x.view(n),
    "expand": lambda x, n: x[:1].expand(n, 6),
    "expand2": lambda x, n: x.expand(n, 4, 6),
    "expand3": lambda x, n: x.expand(4, n),
    "narrow": lambda x, n: x.narrow(0, n, 1),
    "narrow2": lambda x, n: x.narrow(0, 0, n),
    "select": lambda x, n: x.select(0, n),
    "select in": lambda x, n: x.select(n, 0),
    "item": lambda x, n: x[n],
    "slice": lambda x, n: x[n:],
    "slice2": lambda x, n: x[:n],
    "slice3": lambda x, n: x[::n],
    "slice4": lambda x, n: x[n : n + 2],
    "unsqueeze": lambda x, n: x.unsqueeze(n),
    "squeeze": lambda x, n: x[:1].squeeze(n),
    "transpose": lambda x, n: x.transpose(0, n),
    "permute": lambda x, n: x.permute(n, 0),
    "movedim": lambda x, n: x.movedim(0, n),
    "sum": lambda x, n: x.sum(n),
    "softmax": lambda x, n: x.softmax(n),
    "cumsum": lambda x, n: x.cumsum(n),
    "amax": lambda x, n: x.amax(n),
    "sort": lambda x, n: x.sort(n),
    "argmax": lambda x, n: x.argmax(n),
    "cat": lambda x, n: torch.cat([x, x], n),
    "stack": lambda x, n: torch.stack([x, x], n),
    "flip": lambda x, n: x.flip(n),
    "roll": lambda x, n: x.roll(n),
    "roll2": lambda x, n: x.roll(1, n),
    "var": lambda x, n: x.var(n),
    "mean": lambda x, n: x.mean(n),
    "any": lambda x, n: (x > 3).any(n),
    "logsumexp": lambda x, n: x.logsumexp(n),
    "topk": lambda x, n: x.topk(n),
    "kthvalue": lambda x, n: x.kthvalue(n),
    "chunk": lambda x, n: x.chunk(n),
    "split": lambda x, n: x.split(n),
    "tensor_split": lambda x, n: x.tensor_split(n),
    "unfold": lambda x, n: x.unfold(0, n, 1),
    "unfold2": lambda x, n: x.unfold(0, 2, n),
    "diag": lambda x, n: x.diagonal(n),
    "tril": lambda x, n: x.tril(n),
    "pad": lambda x, n: F.pad(x, (n, n)),
    "pad2": lambda x, n: F.pad(x, (1, n)),
    "zeros": lambda x, n: torch.zeros(n),
    "arange": lambda x, n: torch.arange(n),
    "arange2": lambda x, n: torch.arange(0, 6, n),
    "full": lambda x, n: torch.full((2,), n),
    "eye": lambda x, n: torch.eye(n),
    "linspace": lambda x, n: torch.linspace(0, 1, n),
    "repeat": lambda x, n: x.repeat(n, 1),
    "repeat_interleave": lambda x, n: x.repeat_interleave(n, 0),
    "tile": lambda x, n: x.tile(n),
    "one_hot": lambda x, n: F.one_hot(torch.tensor([0, 1]), n),
    "pow": lambda x, n: x**n,
    "integer pow": lambda x, n: x.long() ** n,
    "floordiv": lambda x, n: x.long() // n,
    "mod": lambda x, n: x.long() % n,
    "shift": lambda x, n: x.long() << n,
    "div": lambda x, n: x / n,
    "clamp": lambda x, n: x.clamp(n, 3),
    "unflatten": lambda x, n: x.unflatten(1, (n, 2)),
    "unflatten2": lambda x, n: x.unflatten(1, (-1, n)),
    "flatten": lambda x, n: x.flatten(n),
    "as_strided": lambda x, n: x.as_strided((2, 2), (n, 1)),
    "as_strided2": lambda x, n: x.as_strided((n, 2), (6, 1)),
    "index_select": lambda x, n: x.index_select(0, torch.tensor([n])),
    "gather": lambda x, n: x.gather(n, torch.zeros(1, 1, dtype=torch.long)),
    "pool": lambda x, n: F.max_pool1d(x, n),
    "avg_pool": lambda x, n: F.avg_pool1d(x, n),
    "adaptive pool": lambda x, n: F.adaptive_avg_pool1d(x, n),
    "interp": lambda x, n: F.interpolate(x[None], size=n),
    "glu": lambda x, n: F.glu(x, n),
    "norm": lambda x, n: x.norm(dim=n),
    "normp": lambda x, n: x.norm(p=n),
    "rot90": lambda x, n: x.rot90(n),
    "group_norm": lambda x, n: F.group_norm(x, n),
    "conv": lambda x, n: F.conv1d(x[None], torch.ones(2, 4, 1), stride=n),
    "conv padding": lambda x, n: F.conv1d(x[None], torch.ones(2, 4, 1), padding=n),
    "pixel": lambda x, n: F.pixel_shuffle(x[None, :, None], n),
    "triu_indices": lambda x, n: torch.triu_indices(n, 3),
    "index_fill": lambda x, n: x.clone().index_fill(0, torch.tensor([n]), 9.0),
    "take": lambda x, n: x.take(torch.tensor([n])),
    "vander": lambda x, n: torch.vander(x[0], n),
    "diff": lambda x, n: x.diff(n),
    "histc": lambda x, n: torch.histc(x, n),
    "bincount": lambda x, n: torch.bincount(torch.tensor([1, 2]), minlength=n),
}


def outcome(function, x, n):
    """The error (some list C++ functions below their first line), or the results as a list."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = function(x, n)
    except pliant.errors.PliantError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return list(result) if isinstance(result, list | tuple) else [result]


def looks(results):
    """Sizes and dtypes, and strides where they matter: of what has no sizes of 0 or 1."""
    return [
        (t.dtype, t.shape, t.stride() if all(size > 1 for size in t.shape) else None)
        for t in results
    ]


@pytest.mark.parametrize("tensor", TENSORS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_number_after_the_other(name: str, tensor: str) -> None:
    program, x = PROGRAMS[name], TENSORS[tensor]
    compiled = pliant.compile(program, backend="llvm", dynamic=True)
    for n in NUMBERS:
        mine, eager = outcome(compiled, x, n), outcome(program, x, n)
        if isinstance(eager, str) or isinstance(mine, str):
            assert mine == eager
            continue
        assert looks(mine) == looks(eager)
        torch.testing.assert_close(mine, eager, equal_nan=True)
