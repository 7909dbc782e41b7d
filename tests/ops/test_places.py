"""Rules applied to what other rules give: what is outside is neither loaded nor a fault."""

import pytest
import torch

from pliant.base.operators import record_of
from pliant.loop.body import FLAG
from pliant.loop.define import Definition
from pliant.ops.indexed_tensor import in_memory
from pliant.ops.lowering import Lowering, Meta, type_of
from tests.ops.harness import exprs, run_definitions
from tests.ops.moving import some

aten = torch.ops.aten


class Steps:
    """Calls operators twice: eagerly, and by their rules one on top of the other."""

    def __init__(self):
        self.low, self.memory = Lowering(), {FLAG: torch.zeros((), dtype=torch.int64)}
        self.indexed_tensors = {}

    def indexed(self, x):
        if isinstance(x, list):
            return [self.indexed(one) for one in x]
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in self.indexed_tensors:
            name = f"in{len(self.memory)}"
            definition = Definition(name, exprs(x.size()), exprs(x.stride()), type_of(x.dtype))
            self.memory[definition] = x
            self.indexed_tensors[id(x)] = x, in_memory(definition)
        return self.indexed_tensors[id(x)][1]

    def __call__(self, func, *args):
        result = func(*args)
        self.low.results = (Meta(exprs(result.size()), exprs(result.stride()), result.dtype),)
        found = record_of(str(func)).lowering(self.low, *map(self.indexed, args))
        self.indexed_tensors[id(result)] = result, found
        return result

    def check(self, *results):
        """The results are the same, and nobody has to raise."""
        stored = [self.low.realize(self.indexed(x), exprs(x.stride())).memory.of for x in results]
        run_definitions(self.low.definitions, stored, self.memory, {})
        assert not self.memory[FLAG].item()
        for x, definition in zip(results, stored):
            assert torch.equal(self.memory[definition], x)


def test_padding_of_joined_and_turned():
    do = Steps()
    joined = do(aten.cat.default, [some(3, 5), some(3, 9)], 1)
    rolled = do(aten.roll.default, joined, [4], [1])
    padded = do(aten.constant_pad_nd.default, rolled, [2, 3, 1, 1], 7.0)
    do.check(do(aten.flip.default, padded, [0, 1]))


def test_a_lookup_in_a_piece_is_no_fault_outside_of_it():
    do = Steps()
    index, table = torch.tensor([2, 0, 1]), some(3, 4)
    found = do(aten.embedding.default, table, index)
    joined = do(aten.cat.default, [some(2, 4), found, some(1, 4)])
    do.check(do(aten.constant_pad_nd.default, joined, [1, 1, 5, 5]))


def test_windows_over_what_is_computed():
    do = Steps()
    up = do(aten.upsample_nearest2d.default, some(1, 2, 4, 4), [8, 8])
    padded = do(aten.constant_pad_nd.default, up, [1, 2, 0, 1], 0.5)
    pooled = do(aten.max_pool2d.default, padded, [3, 3], [2, 2], [1, 1])
    do.check(pooled, padded)


def test_a_write_to_all_of_a_tensor_that_the_same_kernel_makes():
    do = Steps()
    base, new = some(4, 6), do(aten.tril.default, some(4, 6))
    doubled = do(aten.slice_scatter.default, base, new, 1, 0, 6)
    again = do(aten.slice_scatter.default, doubled, do(aten.triu.default, new), 0, 0, 4, 1)
    do.check(new, doubled, again)


@pytest.mark.parametrize("levels", [3, 12])
def test_deep_chains_stay_small(levels):
    """Each level reads the one below it twice."""
    do = Steps()
    x = some(4, 6)
    for _ in range(levels):
        x = do(aten.add.Tensor, x, x)
        x = do(aten.constant_pad_nd.default, x, [1, 0])
        x = do(aten.mul.Tensor, x, x)
    do.check(x)
