"""Random programs over a random state, and random changes of that state between calls.

The state is a tree of objects, containers, tensors and numbers with sharing in it. A program looks
things up, calculates with them, writes to them, compares them by identity, breaks the graph.
Everything follows from a seed, so that the same happens on two equal states.
"""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

import pliant


class Box:
    k = 3

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def bump(self, n: int) -> Any:
        self.n = getattr(self, "n", 0) + n
        return self.n


class Special(Box):
    k = 4

    def bump(self, n: int) -> Any:
        return super().bump(n) * 2


MUTABLE = (list, dict, deque, set, Box, torch.Tensor)


def make_value(rng: random.Random, pool: list[Any], depth: int = 0) -> Any:
    """A value; `pool` holds objects made before, to be shared."""
    if pool and rng.random() < 0.3:
        return rng.choice(pool)
    deeper: dict[str, Callable[[], Any]] = {
        "list": lambda: items(3),
        "deque": lambda: deque(items(3), rng.choice([None, None, 4])),
        "tuple": lambda: tuple(items(2)),
        "dict": lambda: dict(zip(rng.sample(["a", "b", "c", 1], 4), items(3), strict=False)),
        "ordered": lambda: OrderedDict(zip(rng.sample("abc", 3), items(3), strict=False)),
        "set": lambda: set(rng.sample([1, 2, "a", None, 3.5], rng.randint(0, 3))),
        "box": lambda: rng.choice([Box, Special])(**dict(zip("abcd", [*items(2), 1]))),
    }
    plain: dict[str, Callable[[], Any]] = {
        "number": lambda: rng.choice([-1, 0, 1, 2, True, False, 0.0, -0.0, 2.5]),
        "text": lambda: rng.choice(["a", "b", None]),
        "tensor": lambda: torch.full((rng.choice([2, 2, 3]),), float(rng.randint(0, 3))),
        "view": lambda: torch.arange(4.0)[1:3],
    }

    def items(most: int) -> list[Any]:
        return [make_value(rng, pool, depth + 1) for _ in range(rng.randint(0, most))]

    kinds = {**plain, **deeper, **deeper} if depth < 3 else plain
    value = kinds[rng.choice(list(kinds))]() if depth else deeper[rng.choice(list(deeper))]()
    if isinstance(value, MUTABLE):
        pool.append(value)
    return value


def make_state(rng: random.Random) -> Box:
    pool: list[Any] = []
    return Box(**{name: make_value(rng, pool) for name in "abcd"})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every object in the state with a path to it."""
    yield path, value
    if len(path) < 4:
        inner = dict(enumerate(value)) if isinstance(value, list | tuple | deque) else {}
        inner = dict(value) if isinstance(value, dict) else inner
        inner = dict(vars(value)) if isinstance(value, Box) else inner
        for key, item in inner.items():
            yield from places(item, (*path, key))


def look(value: Any, path: tuple[Any, ...]) -> Any:
    """What is at `path`, or None. Part of the programs."""
    for key in path:
        if isinstance(value, list | tuple | deque):
            if not isinstance(key, int) or key >= len(value):
                return None
            value = value[key]
        elif isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, Box) and isinstance(key, str):
            value = getattr(value, key, None)
        else:
            return None
    return value


STATEMENTS = """
v = look(s, PATH)
w = look(s, PATH)
v = look(s, PATH)
v, w = w, v
if isinstance(v, (int, float)) and not isinstance(v, bool): x = x + v
if isinstance(v, bool): x = x + (1 if v else 2)
if isinstance(v, str): out.append(v + 'x')
if v is None: x = x + 10
x = x * 2 if v is w else x - 1
if isinstance(v, torch.Tensor) and v.shape == x.shape: x = x * v
if isinstance(v, torch.Tensor): v.add_(1)
if isinstance(v, torch.Tensor): v[0] = 5; w = v[1:]
if isinstance(v, torch.Tensor): w = v.view(-1); w += 1
if isinstance(v, (list, deque)): v.append(w)
if isinstance(v, (list, deque)): v.extend([x, w])
if isinstance(v, (list, deque)) and len(v) > 1: v.reverse()
if isinstance(v, (list, deque)) and v: w = v.pop()
if isinstance(v, (list, tuple, deque)) and v: w = v[-1]
if isinstance(v, list) and v: v[0] = w; v[1:] = [w, v]
if isinstance(v, list): out.append([item for item in v if item is not w])
if isinstance(v, deque) and v: v.rotate(1); v.appendleft(w)
if isinstance(v, dict): v['new'] = w
if isinstance(v, dict): v.update(q=w, r=1); x = x + len(v)
if isinstance(v, dict): w = v.pop('q', w); out.extend(v)
if isinstance(v, dict): x = x + sum(i for i in v.values() if isinstance(i, int))
if isinstance(v, dict) and 'a' in v: del v['a']
if isinstance(v, OrderedDict) and 'b' in v: v.move_to_end('b')
if isinstance(v, set): v.add(9); v.discard('a'); out.append(sorted(v, key=str))
if isinstance(v, Box): v.z = w
if isinstance(v, Box): x = x + v.bump(1) + v.k
if isinstance(v, Box) and hasattr(v, 'z'): del v.z
if isinstance(v, Box): out.append(sorted(vars(v)))
s.link = v
s.pair = (v, w)
out.append((v, w))
v = [v, w]
v = {'v': v, 'w': w}
v = Box(a=v, b=w)
v = (lambda a, b=v: [a, b])(w)
COUNT[0] += 1; out.append(COUNT[0])
TABLE['g'] = v; w = TABLE.get('h', w)
x = x + item_or(v, 'a', out)
x = torch.where(x > 0, x, -x)
x = x.clone(); x[0] = 1
graph_break()
graph_break()
for i in range(2): v = [v, i]; x = x + i
with torch.no_grad(): x = x * 1.5
if float(x.sum()) > 3: x = x - 2
""".strip().splitlines()


def item_or(value: Any, key: Any, out: list[Any]) -> Any:
    """Part of the programs: exceptions that are handled."""
    try:
        found = value[key]
        return found + 0
    except (KeyError, IndexError, AttributeError, TypeError) as error:
        out.append(type(error))
        return 100
    finally:
        out.append("finally")


def make_program(rng: random.Random, state: Box) -> str:
    paths = [path for path, _ in places(state)]
    chosen = rng.choices(STATEMENTS, k=rng.randint(4, 16))
    body = [line.replace("PATH", repr(rng.choice(paths))) for line in chosen]
    lines = ["def f(s, x):", "out = []", "v = w = None", *body, "return x, out, v"]
    return "\n    ".join(lines) + "\n"


def load(source: str) -> dict[str, Any]:
    """The globals of a program, `f` among them."""
    scope = {
        "Box": Box, "OrderedDict": OrderedDict, "deque": deque, "torch": torch, "look": look,
        "item_or": item_or, "graph_break": pliant.graph_break, "COUNT": [0], "TABLE": {"h": 1},
    }  # fmt: skip
    exec(compile(source, "<random program>", "exec"), scope)
    return scope


def change(rng: random.Random, state: Box) -> None:
    """Something happens between two calls."""
    everything = [value for _, value in places(state)]
    pool = [value for value in everything if isinstance(value, MUTABLE)]
    for value in rng.choices(pool, k=2):
        new = make_value(rng, pool, depth=2)
        if isinstance(value, list | deque):
            value.append(new) if not value or rng.random() < 0.5 else value.pop()
        elif isinstance(value, dict):
            value[rng.choice("abc")] = new
        elif isinstance(value, set):
            value.add(rng.choice([1, 5, "a"]))
        elif isinstance(value, Box):
            setattr(value, rng.choice("abcd"), new)
            value.__class__ = rng.choice([type(value), type(value), Box, Special])
        else:
            value.mul_(2)
