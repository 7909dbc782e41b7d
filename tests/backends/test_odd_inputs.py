"""Inputs that programs rarely see, through `pliant.compile` as it is by default: sizes 0 and 1,
every kind of layout, numbers at the edge of their type, and memory that is far away."""

import pytest
import torch

import pliant
from pliant.base import events
from tests.backends.eager_twin import call, difference

pytestmark = pytest.mark.own_default

INF, NAN = float("inf"), float("nan")


def agree(function, *calls, dynamic=None, copied=True):
    """One compiled function, called with each of the arguments as eager PyTorch is; generated code
    runs each of them."""
    compiled = pliant.compile(function, dynamic=dynamic, options={"recompile_limit": 100})
    for args in calls:
        expected = call(function, [same(t) for t in args] if copied else args)
        actual = call(compiled, [same(t) for t in args] if copied else args)
        found = difference(actual, expected)
        assert found is None, f"{found} for {[(tuple(t.shape), t.stride()) for t in args]}"
    assert events.counters["programs"] and not events.counters["not_generated"]


def same(t):
    """A copy that lies in its memory as the original does."""
    memory = t.untyped_storage().clone()
    return torch.empty(0, dtype=t.dtype).set_(memory, t.storage_offset(), t.size(), t.stride())


def strided(sizes, strides, offset=0):
    return torch.linspace(-3, 3, 5000).as_strided(sizes, strides, offset)


PROGRAMS = {
    "pointwise": lambda x: (x * 2 + 1, x.exp()),
    "copies": lambda x: (x.clone(), torch.zeros_like(x), x.contiguous(), x.to(torch.float64)),
    "a row for each": lambda x: x - x.mean(-1, keepdim=True),
    "a column for each": lambda x: (x.sum(0), x / (x.abs().sum(0) + 1)),
    "all": lambda x: (x.sum(), x.square().mean()),
    "softmax": lambda x: x.softmax(-1),
    "turned": lambda x: (x.transpose(0, -1) * 3, x.transpose(0, -1).clone()),
    "joined": lambda x: torch.cat([x, x + 1], -1),
    "taken": lambda x: x[..., ::2] + 1,
    "padded": lambda x: torch.nn.functional.pad(x, (1, 2)),
    "reshaped": lambda x: (x.reshape(-1) + 1, x.unsqueeze(0) * 2),
    "written": lambda x: (x.clone().add_(1), x.clone().transpose(0, -1).mul_(2)),
    "summed up": lambda x: x.cumsum(-1),
    "folded": lambda x: (x.flatten() * 2).unflatten(0, (1, -1)),
}

SIZES = [(5, 7), (1, 7), (7, 1), (1, 1), (0, 3), (3, 0), (0, 0), (13, 31), (2, 1, 3), (2, 0, 3)]


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes(name, dynamic):
    calls = [(strided(s, torch.empty(s).stride()),) for s in SIZES]
    if name == "folded":  # -1 can't be told from nothing
        calls = [c for c in calls if c[0].numel()]
    agree(PROGRAMS[name], *calls, dynamic=dynamic)


LAYOUTS = {
    "turned": strided((4, 6), (1, 4)),
    "in steps": strided((4, 6), (24, 2), 3),
    "with gaps": strided((4, 6), (9, 1), 17),
    "one row for all": strided((4, 6), (0, 1)),
    "one column for all": strided((4, 6), (1, 0)),
    "one element for all": strided((4, 6), (0, 0), 5),
    "windows that overlap": strided((4, 6), (2, 1)),
    "a row in steps": strided((1, 6), (3, 2)),
    "a column in steps": strided((6, 1), (2, 7)),
    "one element": strided((1, 1), (5, 9), 8),
    "three dimensions": strided((3, 1, 5), (1, 2, 3)),
    "three turned": strided((3, 4, 5), (1, 15, 3)),
    "three, one inside": strided((3, 1, 5), (5, 1, 1)),
    "a row for all in the middle": strided((3, 4, 5), (5, 0, 1)),
    "channels last": strided((2, 3, 4, 5), (60, 1, 15, 3)),
    "one picture, channels last": strided((1, 3, 4, 5), (60, 1, 15, 3)),
    "one channel": strided((2, 1, 4, 5), (20, 1, 5, 1)),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, dynamic):
    """The strides of dimensions of size 1 among them."""
    x = LAYOUTS[layout]
    for name, function in PROGRAMS.items():
        compiled = pliant.compile(function, dynamic=dynamic)
        for _ in range(2):
            expected, actual = function(same(x)), compiled(same(x))
            pairs = zip(*((r if isinstance(r, tuple) else (r,)) for r in (actual, expected)))
            for ours, theirs in pairs:
                assert ours.stride() == theirs.stride(), name
                torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("first", ["turned", "in steps", "one row for all", "a row in steps"])
def test_layouts_of_two(first, dynamic):
    x = LAYOUTS[first]
    for y in (strided((6,), (2,)), strided((4, 1), (3, 1)), strided((1, 6), (1, 1)), x):
        agree(lambda x, y: (x + y, torch.where(x > y, x, y), y * x), (x, y), dynamic=dynamic)


NUMBERS = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-310, -1e-310, 5e-324, 1e308, -1e308, 0.5, 2.5]
NUMBERS += [1e-40, -1e-40, 1e-45, 3e38, -3e38, 65504.0, 1e-7, -2.5, 3.5]

AT_THE_EDGE = [
    lambda x: (x + x, x - x, x * x, x / x, x * 0.5, x * 3),
    lambda x: (x.abs(), -x, x.sign(), x.relu(), x.clamp(-1, 1), x.isnan(), x.isinf(), x.signbit()),
    lambda x: (x.sqrt(), x.rsqrt(), x.reciprocal(), x.square(), x.floor(), x.ceil(), x.round()),
    lambda x: (x.exp(), x.log(), x.sigmoid(), x.tanh(), x.log1p(), x.expm1(), x.erf()),
    lambda x: (x.sin(), x.cos(), x.atan()),
    lambda x: (x % 1.5, torch.fmod(x, 1.5), x // 2, torch.remainder(x, x.flip(0).round())),
    lambda x: (x == x, x < x.flip(0), torch.maximum(x, x.flip(0)), torch.fmin(x, x.flip(0))),
    lambda x: (x.max(), x.min(), x.amax(0), x.argmax(), x.argmin(), x.any(), x.all()),
    lambda x: (x.nan_to_num(), x.softmax(0), x.logsumexp(0), x.nansum()),
    lambda x: (x.pow(2), x.pow(0.5), x.pow(-1), x.copysign(x.flip(0))),
    lambda x: (x.float(), x.double(), x.half(), x.bfloat16(), x.bool()),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", AT_THE_EDGE, ids=range(len(AT_THE_EDGE)))
def test_numbers_at_the_edge(function, dtype):
    x = torch.tensor(NUMBERS, dtype=torch.float64).to(dtype)
    for y in (x, x[::2], x.repeat(7)):
        agree(function, (y,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiny_numbers_are_not_flushed_to_zero(dtype):
    tiny = torch.finfo(dtype).smallest_normal
    x = torch.tensor([tiny / 2, tiny / 1024, -tiny / 4, 0.0] * 9, dtype=dtype)
    y = pliant.compile(lambda x: x * 0.5 + x)(x)
    assert torch.equal(y, x * 0.5 + x) and y.count_nonzero() == 27


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integers_overflow(dtype):
    info = torch.iinfo(dtype)
    x = torch.tensor([info.min, info.max, info.min + 1, 0, 1, info.max // 2] * 7).to(dtype)
    agree(lambda x: (x + x, x * x, -x, x.abs(), x - 1, x * 3, x << 1, x >> 1, ~x), (x,))
    agree(lambda x: (x.sum(), x.prod(), x.cumsum(0), x.square(), x.max(), x.argmin()), (x,))
    y = torch.where(x == 0, 1, x)  # noqa: B023
    agree(lambda x, y: (x // y, x % y, torch.fmod(x, y)), (x[1:], y.abs()[1:].clamp(min=1)))


@pytest.mark.cpu_only("no error on a GPU")
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x // y,
        lambda x, y: x % y,
        lambda x, y: torch.fmod(x, y),
        lambda x, y: torch.div(x, y, rounding_mode="trunc") + 1,
        lambda x, y: (x + 1).remainder(y).sum(),
    ],
)
def test_an_integer_divided_by_zero(function, dtype):
    """Eager's exception if there is a 0 anywhere, and the right numbers before and after."""
    x = torch.arange(1, 40, dtype=torch.int64).to(dtype)
    good, bad = torch.full_like(x, 3), torch.full_like(x, 3)
    bad[37] = 0
    agree(function, (x, good), (x, bad), (x, good), dynamic=True)
    assert isinstance(call(pliant.compile(function), [x, bad]).error, RuntimeError)


def test_tensors_without_dimensions():
    def function(x, y):
        return x + y, x * 2, x.sum(), x.reshape(1), x.expand(3) + 1, torch.stack([x, y]), y.clone()

    for dynamic in (None, True):
        agree(function, (torch.tensor(1.5), torch.tensor(-0.0)), dynamic=dynamic)
    agree(lambda x, y: (x + y, y - x), (torch.tensor(2), torch.randn(3, 4)))
    agree(lambda x, y: (x + y, y - x), (torch.tensor(2.5, dtype=torch.float64), torch.arange(4)))


def far_apart(count, stride):
    """Elements that lie in a memory of gigabytes, most of which is never touched."""
    x = torch.empty((count - 1) * stride + 1, dtype=torch.int8).as_strided((count,), (stride,))
    x.copy_(torch.arange(1, count + 1))
    return x


@pytest.mark.parametrize("dynamic", [None, True])
def test_memory_beyond_what_32_bits_can_say(dynamic):
    x = far_apart(3, 2**31 // 2 + 7)

    def function(x):
        x[2:].add_(5)
        return x * 2, x.sum(), x[1:] + x[:-1], x.flip(0), x[2]

    expected = [t.clone() for t in function(x)]
    x.copy_(torch.tensor([1, 2, 3]))
    actual = pliant.compile(function, dynamic=dynamic)(x)
    for ours, theirs in zip(actual, expected, strict=True):
        assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()
    assert actual[4].storage_offset() == 2**31 + 14
    assert events.counters["programs"]


@pytest.mark.parametrize("dynamic", [None, True])
def test_more_elements_than_32_bits_can_count(dynamic):
    """None of which has memory of its own."""
    x = torch.tensor([3], dtype=torch.int8).expand(2**31 + 3)
    compiled = pliant.compile(
        lambda x: (x[2**31 :] * 2, x[-1] + 1, x.shape[0] + 1), dynamic=dynamic
    )
    part, last, count = compiled(x)
    assert (part.tolist(), last.item(), count) == ([6, 6, 6], 4, 2**31 + 4)


LARGER = {
    "integers": (lambda x: x.view(torch.int32).zero_(), torch.int16),
    "complex numbers": (lambda x: torch.view_as_complex(x).zero_(), torch.float32),
}


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("name", LARGER)
def test_larger_elements_begin_where_they_may(name, dynamic):
    """Also where nothing but the error would tell that there was such a view."""
    clear, dtype = LARGER[name]

    def function(x):
        clear(x)

    compiled = pliant.compile(function, dynamic=dynamic)
    memory = torch.ones(12, dtype=dtype)
    for start in (0, 2, 1, 4, 3):
        args = [memory[start : start + 4].view(2, 2)]
        expected = call(function, list(map(same, args)))
        assert difference(call(compiled, list(map(same, args))), expected) is None


@pytest.mark.parametrize("dynamic", [None, True])
def test_random_numbers_like_a_tensor_that_happens_to_be_empty(dynamic):
    compiled = pliant.compile(lambda x: torch.rand_like(x.float()), dynamic=dynamic)
    for sizes in ((3, 4), (0, 0), (0, 4), (4, 0)):
        x = torch.ones(sizes, dtype=torch.int64)
        assert compiled(x).stride() == torch.rand_like(x.float()).stride()


HUGE = {
    "filled": lambda n: torch.full((n,), 3).sum(),
    "counted": lambda n: torch.arange(n).sum(),
    "in two dimensions": lambda n: (torch.zeros(n, n) + 1).sum(),
}


@pytest.mark.parametrize("name", HUGE)
def test_sizes_in_the_data_for_which_there_is_no_memory(name):
    """Nor is any needed where only a sum is left: it isn't computed, as eager PyTorch refuses."""

    def function(x):
        return HUGE[name](x.item())

    compiled = pliant.compile(function)
    for size in (3, 1 << 50, (1 << 63) - 2, 5, -5):
        args = [torch.tensor(size)]
        assert difference(call(compiled, args), call(function, args)) is None


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_where_views_of_tensors_begin_that_happen_to_be_empty(dynamic):
    """Strides of an empty tensor count sizes of 0 as 1, and so does the place of its views."""

    def function(x):
        return x[1:].storage_offset(), x[1:] + 1

    compiled = pliant.compile(function, dynamic=dynamic)
    for sizes in ((3, 4), (1, 0), (2, 0), (5, 6), (1, 7)):
        x = torch.ones(sizes)
        assert compiled(x)[0] == function(x)[0]


@pytest.mark.parametrize("sizes", [(2, 1, 2), (2, 2, 1), (1, 2, 2), (1, 1, 3), (2, 3, 2)])
def test_strides_of_stacked_tensors(sizes):
    """Where a size is 1, memory may count as channels-last."""
    for order in ((0, 1, 2), (0, 2, 1), (2, 0, 1), (2, 1, 0)):
        x = torch.ones(sizes).permute(order)
        for dim in range(4):

            def function(x, dim=dim):
                return torch.stack([x, x], dim)

            compiled = pliant.compile(function, dynamic=False)
            assert compiled(x).stride() == function(x).stride()
