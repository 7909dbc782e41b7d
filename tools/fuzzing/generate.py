"""A random program from a seed.

The one idea: a program is written statement by statement, and each statement is run as soon as it
is written, eagerly, on the arguments of the first call. So nearly all statements are valid, and
what every variable holds is known when the next statement is made of it.
"""

from __future__ import annotations

import contextlib
import copy
import io
import math
import random
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch

from tools.fuzzing.program import LAYOUTS, Argument, Program, Statement
from tools.fuzzing.scope import new_scope
from tools.fuzzing.table import KINDS

FLOATS = ("float32", "float32", "float32", "float32", "float64", "bfloat16", "float16")
DTYPES = (*FLOATS, "int64", "int64", "int32", "bool", "uint8", "int8", "int16")
SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33)
LARGE = (64, 100, 257)
NUMBERS = ("0", "1", "2", "-1", "3", "0.5", "-1.5", "2.0", "0.0", "-0.0", "True", "1e-3", "7")
ODD_NUMBERS = ("inf", "-inf", "nan", "1e30", "-100", "255", "2**31", "1e-45", "False", "300.5")
MOST_ELEMENTS = 20_000
PLACE = re.compile(r"\{(dt|[tfibysmxcknewdDpq])\}")
STATEMENT_KINDS = {"writes"}  # never assigned
ATTEMPTS = 6


def generate(seed: int, backend: str | None = None) -> Program:
    """The program of a seed: always the same one, for this backend if one is given."""
    program = _Generator(seed).program()
    program.backend = backend or program.backend
    return program


class _Generator:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.letters = dict(zip("ABC", self.sizes()))
        self.scope: dict[str, Any] = {}
        self.count = 0
        self.forms: list[tuple[Argument, list[str | int]]] = []
        self.odd = self.rng.random() < 0.25  # special values and numbers in this program
        self.only = self._kinds()

    def sizes(self) -> list[int]:
        rng = self.rng
        sizes = [rng.choice(SIZES[3:] if rng.random() < 0.8 else SIZES) for _ in "ABC"]
        if rng.random() < 0.1:
            sizes[rng.randrange(3)] = rng.choice(LARGE)
        return sizes

    def _kinds(self) -> dict[str, int]:
        """Each program prefers some kinds, so that they meet."""
        weights = {kind: weight for kind, (weight, _) in KINDS.items()}
        for kind in self.rng.sample(list(weights), 5):
            weights[kind] *= self.rng.choice([0, 3])
        return weights

    def program(self) -> Program:
        rng = self.rng
        call = self.arguments()
        while not self.possible(call):
            self.forms.clear()
            call = self.arguments()
        program = Program(self.seed, [], [call])
        program.dynamic = rng.choice([None, None, None, True, True, False])
        program.backend = rng.choice(["llvm", "llvm", "llvm", "eager"])
        program.grad = rng.random() < 0.5
        program.threads = 1 if rng.random() < 0.9 else 3
        self.scope = new_scope()
        with quiet(), torch.set_grad_enabled(program.grad):
            torch.manual_seed(0)
            self.run("\n".join(f"{a.name} = {a.source()}" for a in call))
            body = self.block(rng.randint(2, 12), depth=0)
        body.append(self.returned())
        program.body = body
        others = [self.other_call(call) for _ in range(rng.randint(1, 4))]
        program.calls += [other for other in others if self.possible(other)]
        if rng.random() < 0.3:
            program.calls.append(copy.deepcopy(call))
        return program

    # ----------------------------------------------------------------------------------------------
    # Arguments

    def arguments(self) -> list[Argument]:
        rng = self.rng
        made: list[Argument] = []
        for name in "abcd"[: rng.randint(1, 4)]:
            made.append(self.argument(name, made))
        made += [self.number(name) for name in "nr" if rng.random() < 0.3]
        if rng.random() < 0.4:
            made.append(Argument("items", "code", f"[{', '.join(self.some_names(made))}]"))
            made.append(Argument("table", "code", f"{{'k': {self.some_names(made)[0]}}}"))
            made.append(Argument("box", "code", f"Box(value={self.some_names(made)[0]}, count=0)"))
        return made

    def some_names(self, made: list[Argument]) -> list[str]:
        tensors = [a.name for a in made if a.name in "abcd"]
        return self.rng.choices(tensors, k=self.rng.randint(1, 3))

    def argument(self, name: str, made: list[Argument]) -> Argument:
        rng = self.rng
        if made and rng.random() < 0.15:
            return Argument(name, "code", self.alias(made))
        dims = rng.choices([*"AAABBC", 1, 2, 3], k=rng.choice([0, 1, 1, 2, 2, 2, 3, 3, 4]))
        if self.forms and rng.random() < 0.5:  # likely to broadcast with another one
            other = rng.choice(self.forms)[1]
            dims = [1 if rng.random() < 0.15 else d for d in other[rng.choice([0, 0, 0, 1]) :]]
        dtype = rng.choice(DTYPES)
        form = Argument(name, "tensor", dtype=dtype, seed=rng.randrange(19))
        form.layout = "plain" if rng.random() < 0.6 else rng.choice(LAYOUTS)
        form.values = rng.choice(["small", "small", "random", "index"])
        if self.odd and rng.random() < 0.6:
            form.values = "special"
        form.requires_grad = "float" in dtype and rng.random() < 0.05
        form.shape = [self.letters[d] if isinstance(d, str) else d for d in dims]
        self.forms.append((form, dims))
        return form

    def alias(self, made: list[Argument]) -> str:
        other = self.rng.choice([a.name for a in made if a.name in "abcd"])
        views = (
            "{}",
            "{}",
            "{}[1:]",
            "{}[:-1]",
            "{}.view({}.shape)",
            "{}.T",
            "{}[::2]",
            "{}[..., :1]",
        )
        return self.rng.choice(views).replace("{}", other)

    def number(self, name: str) -> Argument:
        rng = self.rng
        values = [str(rng.choice(SIZES)), str(rng.choice(SIZES))] if name == "n" else NUMBERS
        return Argument(name, "code", rng.choice(values))

    def other_call(self, first: list[Argument]) -> list[Argument]:
        """The same call with other sizes, values, dtypes, layouts or aliases."""
        rng = self.rng
        letters = dict(self.letters)
        for letter in letters:
            if rng.random() < 0.5:
                letters[letter] = rng.choice([*SIZES, *letters.values()])
        dims_of = {form.name: dims for form, dims in self.forms}
        call = copy.deepcopy(first)
        for index, argument in enumerate(call):
            if argument.kind == "code":
                if argument.name in "nr" and rng.random() < 0.5:
                    call[index] = self.number(argument.name)
                elif argument.name in "bcd" and rng.random() < 0.3:
                    argument.code = self.alias(call[:index])
                continue
            dims = dims_of[argument.name]
            argument.shape = [letters[d] if isinstance(d, str) else d for d in dims]
            argument.seed = rng.randrange(19)
            self.vary(argument)
            if index and rng.random() < 0.08:
                call[index] = Argument(argument.name, "code", self.alias(call[:index]))
        return call

    def possible(self, call: list[Argument]) -> bool:
        """Whether the arguments can be made: not every tensor has every view."""
        if any(math.prod(argument.shape) > MOST_ELEMENTS for argument in call):
            return False
        try:
            exec("\n".join(f"{a.name} = {a.source()}" for a in call), new_scope())
        except Exception:
            return False
        return True

    def vary(self, argument: Argument) -> None:
        rng = self.rng
        if rng.random() < 0.08:
            argument.dtype = rng.choice(DTYPES)
            argument.requires_grad = False
        if rng.random() < 0.1:
            argument.layout = rng.choice(["plain", *LAYOUTS])
        if rng.random() < 0.15:
            argument.values = rng.choice(["special" if self.odd else "small", "zeros", "random"])

    # ----------------------------------------------------------------------------------------------
    # Statements

    def block(self, length: int, depth: int) -> list[Statement]:
        statements: list[Statement] = []
        for _ in range(length):
            made = self.statement(depth)
            if made is not None:
                statements.append(made)
        return statements

    def statement(self, depth: int) -> Statement | None:
        if depth < 2 and self.rng.random() < 0.09:
            return self.compound(depth)
        for _ in range(ATTEMPTS):
            kind = self.rng.choices(list(self.only), list(self.only.values()))[0]
            text = self.line(kind)
            if text is None:
                continue
            error = self.run(text)
            keep_error = 0.3 if kind == "raises" else 0.002
            if error is None or (depth == 0 and self.rng.random() < keep_error):
                return text
            if self.rng.random() < 0.02:
                return [["try:", [text]], ["except Exception as error:", ["caught = type(error)"]]]
        return None

    def line(self, kind: str) -> str | None:
        template = self.rng.choice(KINDS[kind][1])
        filled = _Places(self).fill(template)
        if filled is None:
            return None
        if kind in STATEMENT_KINDS or re.search(r"(?<![=!<>])=(?!=)[^()]*$", filled.split("(")[0]):
            return filled
        if self.rng.random() < 0.06:
            return filled  # its result is unused
        if self.rng.random() < 0.1 and (names := self.tensors()):
            return f"{self.rng.choice(names)} = {filled}"
        self.count += 1
        return f"v{self.count} = {filled}"

    def compound(self, depth: int) -> Statement | None:
        """A loop, a branch, an exception handler, a context, or a function."""
        rng = self.rng
        head = rng.choice(COMPOUNDS)
        heads = [_Places(self).fill(part) for part in head]
        if None in heads:
            return None
        clauses: list[list[Any]] = []
        for text in heads:
            length = rng.randint(1, 3)
            scope = dict(self.scope)
            body = self.block(length, depth + 1)
            if text.startswith("else") or text.startswith("except"):
                self.scope = scope  # as if it were not taken
            clauses.append([text, body])
        if heads[0].startswith("def "):
            names = self.tensors() or ["None"]
            clauses[0][1].append(f"return {rng.choice(names)}")
            result = f"v{self.count + 1} = inner()"
            self.count += 1
            return [["if True:", [clauses, result]]]
        return clauses

    def returned(self) -> str:
        rng = self.rng
        names = [n for n in self.visible() if n not in ("items", "table", "box")]
        if not names or rng.random() < 0.03:
            return "return None"
        locals_first = [n for n in names if n.startswith("v")] or names
        chosen = rng.sample(locals_first, min(len(locals_first), rng.randint(1, 6)))
        if rng.random() < 0.15:
            chosen.append(rng.choice(names))
        if rng.random() < 0.1:
            return f"return {{{', '.join(f'{n!r}: {n}' for n in chosen)}}}"
        return f"return {', '.join(chosen)}"

    def run(self, text: str) -> Exception | None:
        """Run a statement on the variables so far; what it raised."""
        try:
            exec(compile(text, "<fuzz>", "exec"), self.scope)
        except Exception as error:
            return error
        for name, value in list(self.scope.items()):
            if isinstance(value, torch.Tensor) and value.numel() > MOST_ELEMENTS:
                del self.scope[name]
                return ValueError("too large")
        return None

    # ----------------------------------------------------------------------------------------------
    # Variables

    def visible(self) -> list[str]:
        return [name for name in self.scope if re.fullmatch(r"[abcdnr]|v\d+|items|table|box", name)]

    def tensors(self, accept: Callable[[torch.Tensor], bool] = lambda t: True) -> list[str]:
        names = [n for n in self.visible() if isinstance(self.scope[n], torch.Tensor)]
        return [n for n in names if accept(self.scope[n])]


COMPOUNDS = [
    ["for step in range({k}):"],
    ["for step in range({t}.shape[{d}]):"],
    ["for v in ({t}, {t}):"],
    ["for v in {t}:"],
    ["if {t}.shape[{d}] > {k}:", "else:"],
    ["if {t}.dim() == 2:", "else:"],
    ["if {n} > {k}:"],
    ["if {t}.numel() == 0:", "else:"],
    ["if {t}.sum() > {c}:", "else:"],
    ["if bool({b}.any()):", "else:"],
    ["if ({t} == {t}).all():", "else:"],
    ["try:", "except Exception as error:"],
    ["try:", "except (RuntimeError, IndexError):"],
    ["try:", "finally:"],
    ["with torch.no_grad():"],
    ["with torch.enable_grad():"],
    ["while SEEN.append({n}) or len(SEEN) % 3:"],
    ["def inner():"],
    ["if {t}.is_floating_point():"],
    ["if {t}.shape[0] == {n}:", "else:"],
]


class _Places:
    """Fills the places of one template. The first tensor decides about the others."""

    def __init__(self, generator: _Generator) -> None:
        self.of = generator
        self.rng = generator.rng
        self.first: str | None = None
        self.numbers: dict[str, str] = {}

    def fill(self, template: str) -> str | None:
        out, at = [], 0
        for match in PLACE.finditer(template):
            text = self.place(match.group(1))
            if text is None:
                return None
            out += [template[at : match.start()], text]
            at = match.end()
        return "".join([*out, template[at:]])

    def place(self, kind: str) -> str | None:
        return getattr(self, f"_{kind}")()

    def tensor(self, accept: Callable[[torch.Tensor], bool]) -> str | None:
        names = self.of.tensors(accept)
        if not names:
            return None
        # recent ones are preferred: chains get longer, and fused
        name = self.rng.choice(names[-4:] if self.rng.random() < 0.6 else names)
        if self.first is None:
            self.first = name
        return name

    @property
    def known(self) -> torch.Tensor:
        return self.of.scope[self.first] if self.first else torch.zeros(())

    def _t(self) -> str | None:
        if self.first is not None and self.rng.random() < 0.4:
            return self.first
        return self.tensor(lambda t: True)

    def _w(self) -> str | None:
        return self._same_first() or self.tensor(lambda t: True)

    def _same_first(self) -> str | None:
        """Templates that write name the same tensor several times."""
        if getattr(self, "written", None) is None:
            self.written = self.tensor(lambda t: True)
        return self.written

    def _f(self) -> str | None:
        if self.first is not None and self.known.is_floating_point() and self.rng.random() < 0.5:
            return self.first
        return self.tensor(torch.is_floating_point) or self._cast("float32")

    def _cast(self, dtype: str) -> str | None:
        name = self.tensor(lambda t: True)
        return None if name is None else f"{name}.to(torch.{dtype})"

    def _i(self) -> str | None:
        whole = (torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16)
        return self.tensor(lambda t: t.dtype in whole) or self._cast("int64")

    def _b(self) -> str | None:
        name = self.tensor(lambda t: t.dtype is torch.bool)
        if name is None and (other := self.tensor(lambda t: True)):
            return f"({other} > {self._c()})"
        return name

    def _y(self) -> str | None:
        if self.rng.random() < 0.25:
            return self._c()
        shape = self.known.shape
        return self.tensor(lambda t: _broadcast(t.shape, shape)) or self._c()

    def _s(self) -> str | None:
        known = self.known
        fit = self.of.tensors(lambda t: t.shape == known.shape)
        if not fit:
            return None
        name = self.rng.choice(fit)
        if self.of.scope[name].dtype != known.dtype and self.rng.random() < 0.8:
            return f"{name}.to({known.dtype})"
        return name

    def _m(self) -> str | None:
        shape = self.known.shape
        fit = self.of.tensors(lambda t: t.dtype is torch.bool and t.shape == shape)
        if fit and self.rng.random() < 0.7:
            return self.rng.choice(fit)
        same = self.of.tensors(lambda t: _broadcast(t.shape, shape))
        operator = self.rng.choice(["> 0", "< 1", "!= 0", "== 1", "> 0.3", f"<= {self._c()}"])
        return f"({self.rng.choice(same)} {operator})" if same else None

    def _x(self) -> str | None:
        fit = self.of.tensors(lambda t: t.dtype is torch.int64 and 0 < t.numel() < 100)
        if fit and self.rng.random() < 0.6:
            return self.rng.choice(fit)
        size = self.known.shape[0] if self.known.dim() else 1
        items = [self.rng.choice([0, 0, 1, -1, size - 1, 2]) for _ in range(self.rng.randint(0, 3))]
        return self.rng.choice(
            [f"torch.tensor({items}, dtype=torch.int64)", f"torch.arange({self._n()})"]
        )

    def _c(self) -> str:
        if self.of.odd and self.rng.random() < 0.3:
            return self.rng.choice(ODD_NUMBERS)
        if "r" in self.of.scope and self.rng.random() < 0.2:
            return "r"
        return self.rng.choice(NUMBERS)

    def _k(self) -> str:
        return self.numbers.setdefault("k", str(self.rng.choice([0, 1, 1, 2, 2, 3])))

    def _n(self) -> str:
        options = [n for n in self.of.visible() if type(self.of.scope[n]) is int]
        options = [n for n in options if 0 <= self.of.scope[n] <= 100]
        sized = self.of.tensors(lambda t: t.dim() > 0)
        if sized:
            name = self.rng.choice(sized)
            dim = self.rng.randrange(self.of.scope[name].dim())
            options += [f"{name}.shape[{dim}]", f"{name}.size({dim - 1})", f"len({name})"]
        return self.rng.choice([*options, self._k()])

    def _d(self) -> str:
        dim = max(self.known.dim(), 1)
        if "d" not in self.numbers:
            self.numbers["d"] = str(self.rng.randrange(-dim, dim))
        return self.numbers["d"]

    def _e(self) -> str:
        return str(self.rng.randrange(max(self.known.dim(), 1)))

    def _D(self) -> str:
        dims = list(range(max(self.known.dim(), 1)))
        some = tuple(self.rng.sample(dims, self.rng.randint(1, len(dims))))
        return self.rng.choice([str(some), str(some), str(some[0]), "()"])

    def _p(self) -> str:
        dims = list(range(self.known.dim()))
        self.rng.shuffle(dims)
        return str(tuple(dims))

    def _q(self) -> str:
        return self.rng.choice(["True", "False"])

    def _dt(self) -> str:
        return f"torch.{self.rng.choice(DTYPES)}"


def _broadcast(a: torch.Size, b: torch.Size) -> bool:
    return all(m == n or m == 1 or n == 1 for m, n in zip(a[::-1], b[::-1]))


@contextlib.contextmanager
def quiet() -> Any:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
