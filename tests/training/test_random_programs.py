"""Random training programs against eager: values, gradients, aliases, versions."""

import itertools

import pytest
import torch

import pliant
from tests.training.random_programs import INPUTS, generate

SHORT, LONG = 40, 1500


def arguments(program, n, m, seed):
    """Leaves, and what the program is called with."""
    torch.manual_seed(seed)
    shapes = {"nm": (n, m), "m": (m,), "n1": (n, 1), "mm": (m, m)}
    leaves, given = {}, {}
    for name, shape in INPUTS.items():
        t = torch.randn(shapes[shape], dtype=torch.float64)
        kind = program.kinds[name]
        leaves[name] = t.requires_grad_(kind != "constant")
        given[name] = t * 1 if kind == "computed" else t
    return leaves, given


def outcome(function, program, n, m, seed):
    """All that can be seen of a call and its backward, in order, or the error it raised."""
    leaves, given = arguments(program, n, m, seed)
    try:
        outputs = function(*given.values())
    except RuntimeError as error:
        return [("raised in the forward", type(error))]
    seen = [(f"output {at}", view_of(out)) for at, out in enumerate(outputs)]
    tensors = [*given.values(), *outputs]
    shares = [
        at
        for at, (x, y) in enumerate(itertools.combinations(tensors, 2))
        if x.untyped_storage()._cdata == y.untyped_storage()._cdata
    ]
    seen.append(("sharing of memory", shares))
    seen.append(("same objects", [[o is t for t in tensors] for o in outputs]))
    seen += [(f"input {name}", (t._version, *view_of(t))) for name, t in given.items()]
    graded = [outputs[at] for at in program.graded if outputs[at].requires_grad]
    try:
        if program.expanded:
            sum([out.sum() for out in graded], torch.zeros(())).backward() if graded else None
        else:
            torch.manual_seed(seed + 1)
            torch.autograd.backward(graded, [torch.randn_like(out) for out in graded])
    except RuntimeError as error:
        return [*seen, ("raised in the backward", type(error))]
    return seen + [
        (f"gradient of {name}", layout_of(t.grad if t.is_leaf else None))
        for name, t in leaves.items()
    ]


def view_of(out):
    return out.requires_grad, out.is_leaf, out.stride(), out.detach().clone()


def layout_of(t):
    return None if t is None else (t.stride(), t)


def same(mine, theirs):
    if isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor):
        return mine.shape == theirs.shape and torch.allclose(
            mine, theirs, rtol=1e-9, atol=1e-10, equal_nan=True
        )
    if isinstance(mine, tuple) and isinstance(theirs, tuple):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    return mine == theirs


def check(seed, dynamic):
    program = generate(seed)
    compiled = pliant.compile(program.load(), backend="llvm", dynamic=dynamic)
    eager = program.load()
    sizes = program.sizes if dynamic is None else program.sizes[:2]
    for call, (n, m) in enumerate(sizes):
        theirs = outcome(eager, program, n, m, call)
        mine = outcome(compiled, program, n, m, call)
        for (what, a), (which, b) in itertools.zip_longest(
            mine, theirs, fillvalue=("nothing", None)
        ):
            agree = what == which and same(a, b)
            assert agree, (
                f"{program}\n{program.code}\ncall {call}: {what}: {a}\neager, {which}: {b}"
            )


@pytest.mark.parametrize("dynamic", [False, None])
@pytest.mark.parametrize("part", range(4))
def test_a_few(part, dynamic):
    for seed in range(part, SHORT, 4):
        check(seed, dynamic)


@pytest.mark.long
@pytest.mark.parametrize("dynamic", [False, None])
@pytest.mark.parametrize("part", range(16))
def test_many(part, dynamic):
    for seed in range(SHORT + part, LONG, 16):
        check(seed, dynamic)
