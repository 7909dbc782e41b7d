"""Generators: followed across `yield`, finished, closed, thrown into, handed to Python
suspended."""

import inspect

import pytest
import torch

import pliant
from tests.support.against_eager import check
from tests.support.programs import Programs, note

program = Programs()
X = torch.arange(6.0).reshape(2, 3)


def rows(x, n=3, *extra, key=1, **more):
    for i in range(n):
        yield x + i * key


def logged(x, log):
    try:
        for i in range(4):
            got = yield x * i
            log.append(("got", got if got is None else str(got)))
    except ValueError as error:
        log.append(repr(error))
        yield x - 100
    finally:
        log.append("finally")
    return x + 7


def chained(x, log):
    result = yield from logged(x, log)
    log.append("result")
    yield result
    yield from [x, x + 1]
    return result * 2


def noisy(x, log):
    y = x + 1
    note(log, "first")
    yield y
    try:
        note(log, "second")
        yield y * 2
    finally:
        note(log, "closing")


# ---- captured whole


@program(X)
def consumers(x):
    total = 0
    for row in rows(x):
        total = total + row
    first, *rest = rows(x, 4, key=2)
    a, b, c = rows(x)
    return total, sum(rows(x)), list(rows(x)), tuple(rows(x, 2)), first, rest, a, b, c


@program(X)
def expressions(x):
    return sum(x * i for i in range(3)), list(x + i for i in (1, 2)), max(i * 2 for i in range(4))


@program(X, [])
def send_and_return(x, log):
    g = logged(x, log)
    out = [next(g), g.send("a"), g.send("b"), next(g)]
    try:
        next(g)
    except StopIteration as stop:
        out.append(stop.value)
    return out, next(g, None)


@program(X, [])
def throw(x, log):
    g = logged(x, log)
    next(g)
    out = [g.throw(ValueError("thrown"))]
    for item in g:
        out.append(item)
    return out


@program(X, [])
def throw_through(x, log):
    g = logged(x, log)
    next(g)
    g.throw(KeyError("thrown"))


@program(X, [])
def throw_before_the_start(x, log):
    logged(x, log).throw(KeyError("early"))


@program(X, [])
def close(x, log):
    g = logged(x, log)
    next(g)
    g.close()
    log.append("closed")
    g.close()
    return list(g), x + 1


@program(X, [])
def close_unstarted(x, log):
    g = logged(x, log)
    g.close()
    return list(g), x + 1


@program(X)
def ignores_close(x):
    def stubborn():
        try:
            yield x
        except GeneratorExit:
            yield x + 1

    g = stubborn()
    next(g)
    g.close()


@program(X)
def send_to_unstarted(x):
    rows(x).send(3)


@program(X, [])
def yield_from(x, log):
    out = []
    g = chained(x, log)
    for item in g:
        out.append(item)
    return out


@program(X, [])
def yield_from_send_and_throw(x, log):
    g = chained(x, log)
    out = [next(g), g.send("deep"), g.throw(ValueError("deep"))]
    return out, list(g)


@program(X)
def recursive_generators(x):
    def walk(n):
        if n:
            yield x + n
            yield from walk(n - 1)
            yield from walk(n - 1)

    return list(walk(3))


@program(X)
def infinite(x):
    def naturals():
        n = 0
        while True:
            yield n
            n += 1

    return [x + n for n, _ in zip(naturals(), range(3))]


@program(X)
def two_at_once(x):
    a, b = rows(x), rows(x * 2)
    return [(p, q) for p, q in zip(a, b)], list(a), list(b)


@program(X)
def state_in_cells(x):
    count = 0

    def steps():
        nonlocal count
        for _ in range(3):
            count += 1
            yield x * count

    g = steps()
    first = next(g)
    count = 10
    return first, next(g), count


@program(X)
def generator_returned(x):
    g = rows(x)
    next(g)
    return [g], x + 1


@program(X, [])
def dropped_in_a_loop(x, log):
    for item in logged(x, log):
        x = x + item
        break
    log.append("after")
    return x


@program(X, [])
def dropped_with_its_frame(x, log):
    def use():
        g = logged(x, log)
        return next(g) + 1

    y = use()
    log.append("after")
    return y


@program(X, [])
def dropped_by_name(x, log):
    g = logged(x, log)
    next(g)
    g = None
    log.append("after")
    h = logged(x, log)
    next(h)
    del h
    log.append("end")
    return x + 1


@program(X, [])
def dropped_by_an_exception(x, log):
    try:
        for item in logged(x, log):
            raise KeyError("k")
    except KeyError:
        log.append("caught")
    return x + 1


@program(X, [])
def kept_by_another_name(x, log):
    g = logged(x, log)
    kept = [g]
    for item in g:
        break
    log.append("after")
    del g
    log.append("still")
    return next(kept[0]), kept.pop().close()


@program(X)
def already_running(x):
    def me():
        yield next(g)

    g = me()
    return next(g)


@program(X)
def is_exhausted_once(x):
    g = rows(x, 1)
    return next(g), next(g, "end"), next(g, "end"), list(g)


@program(X)
def attributes(x):
    g = rows(x)
    return iter(g) is g, g.__name__, type(g).__name__


# ---- with breaks


@program(X, [], breaks=None)
def breaks_inside(x, log):
    out = []
    for y in noisy(x, log):
        out.append(y + 1)
    return out


@program(X, [], breaks=None)
def breaks_inside_consumers(x, log):
    return sum(noisy(x, log)), list(noisy(x, log)), [y for y in noisy(x, log)], next(noisy(x, log))


@program(X, [], breaks=None)
def breaks_inside_yield_from(x, log):
    def outer():
        yield x
        yield from noisy(x * 2, log)
        note(log, "outer")
        yield x * 3

    return [y + 1 for y in outer()]


@program(X, [], breaks=None)
def suspended_at_a_break(x, log):
    g = logged(x, log)
    out = [next(g)]
    note(log, "a")
    out.append(g.send("b"))
    note(log, "c")
    out.append(g.throw(ValueError("d")))
    note(log, "e")
    return out, list(g)


@program(X, [], breaks=None)
def yield_from_suspended_at_a_break(x, log):
    g = chained(x, log)
    out = [next(g)]
    note(log, "a")
    out.append(g.send("b"))
    note(log, "c")
    return out, list(g)


@program(X, [], breaks=None)
def unstarted_at_a_break(x, log):
    g = rows(x, 2, "extra", key=5, more=1)
    note(log, "a")
    return list(g)


@program(X, [], breaks=None)
def finished_at_a_break(x, log):
    g = rows(x, 1)
    out = list(g)
    note(log, "a")
    return out, list(g), next(g, None)


@program(X, [], breaks=None)
def closed_after_a_break(x, log):
    g = logged(x, log)
    next(g)
    note(log, "a")
    g.close()
    note(log, "b")
    return list(g), x + 1


@program(X, [], breaks=None)
def nested_suspended(x, log):
    def outer():
        inner = logged(x, log)
        for item in inner:
            yield item + 1

    g = outer()
    out = [next(g)]
    note(log, "a")
    out.append(next(g))
    note(log, "b")
    return out, list(g)


@program(X, [], breaks=None)
def expression_suspended(x, log):
    g = (x * i for i in range(4))
    first = next(g)
    note(log, "a")
    return first, sum(g)


@program(X, [], breaks=None)
def cells_shared_with_a_suspended_generator(x, log):
    count = 0

    def steps():
        nonlocal count
        while count < 10:
            count += 1
            yield x * count

    g = steps()
    first = next(g)
    note(log, count)
    count = 5
    second = next(g)
    note(log, count)
    return first, second, count


@program(X, [], breaks=None)
def loop_over_a_generator_with_breaks(x, log):
    total = x
    for i, item in enumerate(logged(x, log)):
        note(log, i)
        total = total + item
    return total


@program(X, [], breaks=None)
def with_inside_a_suspended_generator(x, log):
    def steps():
        with torch.no_grad():
            yield x * 2
            yield torch.is_grad_enabled()

    g = steps()
    out = [next(g)]
    note(log, torch.is_grad_enabled())
    out.append(next(g))
    g.close()
    return out, torch.is_grad_enabled()


@program(X, [], breaks=None)
def handler_inside_a_suspended_generator(x, log):
    def steps():
        try:
            raise ValueError("v")
        except ValueError as error:
            yield str(error)
            yield x + 1
            raise

    g = steps()
    out = [next(g)]
    note(log, "a")
    out.append(next(g))
    try:
        next(g)
    except ValueError as error:
        out.append(repr(error))
    return out


def counting(x, log):
    try:
        for i in range(5):
            got = yield x + i
            log.append(("sent", got is None))
    finally:
        log.append("closed")


@program(X, [], breaks=None)
def generator_suspended(x, log):
    rows = counting(x, log)
    first = next(rows)
    note(log, "between")
    second = next(rows)
    note(log, "again")
    third = rows.send(3)
    rows.close()
    return first, second, third, list(rows)


@program(X, [], breaks=None)
def generator_in_a_loop(x, log):
    total = x
    for i, row in enumerate(counting(x, log)):
        total = total + row
        note(log, i)
        if i == 2:
            break
    return total


@program(X, [], breaks=None)
def generator_not_started(x, log):
    rows = counting(x, log)
    note(log, "before")
    return list(rows)


@program(X, [], breaks=None)
def two_names_of_one_generator(x, log):
    rows = counting(x, log)
    same = rows
    next(rows)
    note(log, "a")
    next(same)
    pairs = list(zip(rows, same))
    return pairs, rows is same


@pytest.mark.parametrize(("function", "args", "expected"), program.cases)
def test_same_as_eager(function, args, expected):
    check(function, *args, **expected)


def a_compiled_generator_function(x, log):
    yield x + 1
    log.append("between")
    yield x + 2


def test_generator_function_itself():
    log = []
    made = pliant.compile(a_compiled_generator_function)(X, log)
    assert torch.equal(next(made), X + 1)
    assert log == []
    assert torch.equal(next(made), X + 2)
    assert log == ["between"]


# ---- what is thrown, and how it ends


def test_forms_of_throw():
    def items(log):
        while True:
            try:
                yield len(log)
            except (ValueError, KeyError) as error:
                log.append((type(error).__name__, error.args))

    def function(x):
        log = []
        generator = items(log)
        next(generator)
        generator.throw(ValueError)
        generator.throw(ValueError("instance"))
        generator.throw(ValueError, "text")
        generator.throw(ValueError, ("several", 2))
        generator.throw(KeyError, KeyError("key"))
        for wrong in (3, int):
            try:
                generator.throw(wrong)
            except TypeError as error:
                log.append(str(error))
        return x + len(log), log

    check(function, X)


def test_close_and_throw_run_finally_blocks():
    def returns_in_finally(log):
        try:
            yield 1
        finally:
            log.append("finally")
            return 5  # noqa: B012

    def yields_in_finally(log):
        try:
            yield 1
        finally:
            log.append("finally")
            yield 2
            log.append("after")

    def delegates(log):
        try:
            yield from yields_in_finally(log)
        finally:
            log.append("outer")

    def function(x):
        log = []
        generator = returns_in_finally(log)
        next(generator)
        log.append(generator.close())
        generator = returns_in_finally(log)
        next(generator)
        try:
            generator.throw(ValueError)
        except StopIteration as stop:
            log.append(stop.value)
        for make in (yields_in_finally, delegates):
            generator = make(log)
            next(generator)
            log.append(generator.throw(KeyError("thrown")))
            try:
                next(generator)
            except KeyError as error:
                log.append(error.args)
            generator = make(log)
            next(generator)
            try:
                generator.close()
            except RuntimeError as error:
                log.append(str(error))
        return x + len(log), log

    check(function, X)


def test_states():
    def program(x):
        def rows():
            yield inspect.getgeneratorstate(generator), generator.gi_suspended
            yield x

        generator = rows()
        states = [inspect.getgeneratorstate(generator), generator.gi_suspended]
        states += [next(generator), inspect.getgeneratorstate(generator), generator.gi_suspended]
        result = next(generator)
        generator.close()
        return result, states, inspect.getgeneratorstate(generator), generator.gi_suspended

    check(program, X)
