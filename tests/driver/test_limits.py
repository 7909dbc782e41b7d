"""When a function is compiled again and when no more, and what the user is told about it."""

import warnings

import pytest
import torch

import pliant
from pliant.base import events
from pliant.base.errors import PliantWarning, RecompileLimitError

X = torch.ones(3)


def compilations() -> int:
    return events.counters["compilations"]


def test_most_recent_entry_first_and_all_stay() -> None:
    compiled = pliant.compile(lambda x: x + 1, dynamic=False)
    for size in (1, 2, 3, 2, 1, 3):
        assert compiled(torch.ones(size)).tolist() == [2.0] * size
    assert compilations() == 3
    assert len(compiled.entries) == 3
    assert [entry.hits for entry in compiled.entries] == [2, 2, 2]


def test_reasons_name_the_guard_and_the_line(seen) -> None:
    def f(x, table):
        return x + table["k"]

    compiled = pliant.compile(f)
    compiled(torch.ones(3), {"k": 1})
    compiled(torch.ones(4), {"k": 1})
    compiled(torch.ones(4), {"k": 2})
    first, second = seen(events.Recompiled)
    line = f.__code__.co_firstlineno + 1
    [reason] = first.reasons
    assert reason.guard == "L['x'].size()[0] == 3, got 4"
    assert (reason.entry, reason.position.line) == (0, line)
    assert [r.guard for r in second.reasons] == [
        "L['x'].size()[0] == 3, got 4",
        "L['table']['k'] == 1, got 2",
    ]
    assert [r.entry for r in second.reasons] == [0, 1]


def test_the_log_shows_reason_and_line(capsys) -> None:
    pliant.set_logs(recompiles=True)
    compiled = pliant.compile(lambda x: x * 2)
    compiled(torch.ones(3))
    compiled(torch.ones(4))
    text = capsys.readouterr().err
    assert "compilation 0 needs L['x'].size()[0] == 3, got 4" in text
    assert "compiled = pliant.compile(lambda x: x * 2)" in text


@pytest.mark.parametrize(
    ("function", "calls", "reason"),
    [
        (lambda x: x + 1, [torch.ones(1), torch.ones(1, dtype=torch.int)],
         "L['x'].dtype == torch.float32, got torch.int32"),
        (lambda x: x + 1, [torch.ones(2, 2), torch.ones(2)], "L['x'].dim() == 2, got 1"),
        (lambda x: x + 1, [torch.ones(2, 2), torch.ones(2, 2).t()],
         "L['x'].stride()[0] == 2, got 1"),
        (lambda x: x + 1, [torch.ones(1), torch.ones(1, requires_grad=True)],
         "L['x'].requires_grad == False, got True"),
        (lambda x: X + x, [1, "a"], "L['x'] == 1, got 'a'"),
        (lambda x: X + x, [1, 1.0], "L['x'] == 1, got 1.0"),
        (lambda x: X + len(x), [[1], [1, 2]], "len(L['x']) == 1, got 2"),
        (lambda x: X + x[0], [[1], (1,)], "type(L['x']) is list, got tuple"),
        (lambda x: X + sum(x.values()), [{"a": 1}, {"b": 1}], "list(L['x']) == ['a'], got ['b']"),
        (lambda x: X + ("a" in x), [{"a": 1}, {"b": 1}], "'a' in L['x'], got no such key"),
        (lambda x: X + ("a" in x), [{"b": 1}, {"a": 1}], "'a' not in L['x'], got such a key"),
        (lambda x: X + (x is None), [None, 1], "L['x'] == None, got 1"),
        (lambda x: x(X), [torch.sin, torch.cos], "L['x'] is sin, got cos"),
    ],
)  # fmt: skip
def test_explanations(function, calls, reason, seen) -> None:
    compiled = pliant.compile(function)
    for call in calls:
        try:
            compiled(call)
        except TypeError:
            pass
    assert [r.guard for r in seen(events.Recompiled)[0].reasons] == [reason]


def test_state_is_explained(seen) -> None:
    compiled = pliant.compile(lambda x: x + 1)
    compiled(X)
    with torch.no_grad():
        compiled(X)
    [reason] = seen(events.Recompiled)[0].reasons
    assert reason.guard == "torch global state: grad_enabled == True, got False"


# ---- limits


def test_limit(seen) -> None:
    options = {"recompile_limit": 2}
    compiled = pliant.compile(lambda x: x * x.shape[0], options=options, dynamic=False)
    with pytest.warns(PliantWarning) as caught:
        for size in (1, 2, 3, 4, 5):
            assert compiled(torch.ones(size)).tolist() == [float(size)] * size
    [warning] = caught
    text = str(warning.message)
    assert "L['x'].size()[0] was 1, 2 and is now 3" in text
    assert "config.recompile_limit" in text
    assert warning.filename == __file__
    assert compilations() == 2
    assert events.counters["limit_reached"] == 1


def test_entries_stay_in_use_beyond_the_limit() -> None:
    compiled = pliant.compile(lambda x: x + 1, options={"recompile_limit": 1}, dynamic=False)
    with pytest.warns(PliantWarning):
        for size in (1, 2, 1, 2, 1):
            compiled(torch.ones(size))
    [entry] = compiled.entries
    assert entry.hits == 3


def test_accumulated_limit() -> None:
    def f(x):
        y = x + 1
        pliant.graph_break()
        return y * 2

    compiled = pliant.compile(f, options={"accumulated_recompile_limit": 3}, dynamic=False)
    with pytest.warns(PliantWarning, match="accumulated_recompile_limit"):
        for size in (1, 2, 3, 4):
            assert compiled(torch.ones(size)).tolist() == [4.0] * size
    assert compilations() == 3


def test_fail_on_limit() -> None:
    options = {"recompile_limit": 1, "fail_on_recompile_limit_hit": True}
    compiled = pliant.compile(lambda x: x + 1, options=options, dynamic=False)
    compiled(torch.ones(1))
    for _ in range(2):
        with pytest.raises(RecompileLimitError, match=r"size\(\)\[0\] was 1 and is now 2"):
            compiled(torch.ones(2))
    assert compiled(torch.ones(1)).tolist() == [2.0]


def test_limit_of_none() -> None:
    compiled = pliant.compile(lambda x: x + 1, options={"recompile_limit": 0})
    with pytest.warns(PliantWarning):
        assert compiled(torch.ones(1)).tolist() == [2.0]
    assert compilations() == 0


def test_config_is_taken_when_compiling() -> None:
    with pliant.config.patch(recompile_limit=1):
        compiled = pliant.compile(lambda x: x + 1, dynamic=False)
    with pytest.warns(PliantWarning):
        for size in (1, 2, 3):
            compiled(torch.ones(size))
    assert compilations() == 1


def test_reset_lifts_the_limit() -> None:
    compiled = pliant.compile(lambda x: x + 1, options={"recompile_limit": 1}, dynamic=False)
    with pytest.warns(PliantWarning):
        compiled(torch.ones(1)), compiled(torch.ones(2))
    pliant.reset()
    compiled(torch.ones(2))
    assert compilations() == 1


# ---- numbers and sizes that vary become symbols, at the limit too


def test_a_float_that_varies_becomes_an_input() -> None:
    compiled = pliant.compile(lambda x, k: x * k + 1, options={"recompile_limit": 2})
    for k in (0.5, 1.5, 2.5, 3.5, -0.0):
        assert compiled(X, k).tolist() == (X * k + 1).tolist()
    assert compilations() == 2
    assert events.counters["limit_reached"] == 0


@pytest.mark.parametrize("values", [(1, 2, 3), (0.5, 1.5, 2.5), [torch.ones(n) for n in (2, 3, 4)]])
def test_one_more_compilation_at_the_limit(values) -> None:
    compiled = pliant.compile(lambda k: X.sum() * k, options={"recompile_limit": 1})
    for k in values:
        assert torch.equal(compiled(k), X.sum() * k)
    assert compilations() == 2
    assert events.counters["limit_reached"] == 0


def test_the_graph_takes_the_number() -> None:
    graphs = []

    def backend(gm, example_inputs):
        graphs.append((gm, list(example_inputs)))
        return gm.forward

    compiled = pliant.compile(lambda x, k: x * k, backend=backend, options={"recompile_limit": 1})
    compiled(X, 2)
    compiled(X, 3)
    graph, examples = graphs[-1]
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    assert names == ["l_x", "l_k"]
    assert examples[1] == 3 and type(examples[1]) is int


def test_several_numbers_and_numbers_deep_inside() -> None:
    class Settings:
        lr = 0.1

    def f(x, step, settings, table):
        return x * step - settings.lr * x + x / table["scale"]

    compiled = pliant.compile(f, options={"recompile_limit": 2})
    settings = Settings()
    for step in range(1, 6):
        settings.lr = 0.1 * step
        args = (X, step, settings, {"scale": float(step)})
        assert compiled(*args).tolist() == f(*args).tolist()
    assert compilations() == 2


def test_the_type_of_the_number_still_matters() -> None:
    compiled = pliant.compile(lambda x, k: x * k, options={"recompile_limit": 1})
    ints = torch.ones(2, dtype=torch.int64)
    assert compiled(ints, 2).dtype is torch.int64
    assert compiled(ints, 3).dtype is torch.int64  # from here on an input
    with pytest.warns(PliantWarning):
        assert compiled(ints, 0.5).dtype is torch.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(ints, True).dtype is torch.int64
    assert compilations() == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x, k: torch.stack([x] * k) * k,  # how many there are
        lambda x, k: [x + i for i in range(k)][-1],  # how often
        lambda x, k: x * {1: 1, 2: 3}.get(k, k),  # a key
    ],
)
def test_a_number_that_is_needed_stays_a_constant(function) -> None:
    compiled = pliant.compile(function, options={"recompile_limit": 2})
    with pytest.warns(PliantWarning, match=r"L\['k'\] was 1, 2 and is now 3"):
        for k in (1, 2, 3, 4, 5):
            assert torch.equal(compiled(X, k), function(X, k))
    assert compilations() == 2


def test_a_number_that_is_passed_along_is_no_reason() -> None:
    compiled = pliant.compile(lambda x, k: (x * 2, k, [k]))
    for k in range(20):
        result = compiled(X, k)
        assert result[1:] == (k, [k])
    assert compilations() == 1


def test_numbers_that_are_to_be_constants() -> None:
    options = {"recompile_limit": 1, "specialize_float": True}
    compiled = pliant.compile(lambda x, k: x * k, options=options)
    with pytest.warns(PliantWarning, match=r"torch\.tensor"):
        for k in (0.5, 1.5, 2.5):
            compiled(X, k)
    assert compilations() == 1


def test_strings_that_vary() -> None:
    compiled = pliant.compile(lambda x, mode: x + len(mode), options={"recompile_limit": 2})
    with pytest.warns(PliantWarning, match=r"L\['mode'\] was 'a', 'bb' and is now 'ccc'"):
        for mode in ("a", "bb", "ccc", "dddd"):
            compiled(X, mode)
    assert compilations() == 2


@pytest.mark.parametrize("late", [False, True])
def test_error_on_recompile(late) -> None:
    def program(x, y):
        return x + y

    options = {} if late else {"error_on_recompile": True}
    compiled = pliant.compile(program, options=options)
    x = torch.ones(3)
    with pliant.config.patch(error_on_recompile=late):
        for _ in range(2):
            assert torch.equal(compiled(x, x), x + x)
        with pytest.raises(pliant.errors.RecompileError, match="error_on_recompile"):
            compiled(x, x.double())
        # Even where the program itself would fail.
        with pytest.raises(pliant.errors.RecompileError):
            compiled(x, (1, 2))
        assert torch.equal(compiled(x, x), x + x)
    if late:
        assert compiled(x, x.double()).dtype is torch.float64


def test_a_stance_that_promises_compiled_code() -> None:
    compiled = pliant.compile(lambda table: table["x"] + 1)
    with pliant.set_stance(skip_guard_eval_unsafe=True):
        assert torch.equal(compiled({"x": X}), X + 1)  # the first compilation is none too many
        assert torch.equal(compiled({"x": -X}), 1 - X)
        with pytest.raises(pliant.errors.RecompileError, match="skip_guard_eval_unsafe"):
            compiled({"x": torch.ones(2, 2)})
    assert torch.equal(compiled({"x": torch.ones(2, 2)}), torch.ones(2, 2) + 1)
