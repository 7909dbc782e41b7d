"""Random training programs: views, writes, broadcasting, detached parts, blocks without grad."""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# Shapes: "nm" is (n, m), "m" is (m,), "n1" is (n, 1), "mn" is (m, n), "mm" is (m, m).
# Each template: what it needs by shape, the shape it makes, and the expression.
EXPRESSIONS = [
    line.split(" | ")
    for line in """\
nm | nm | torch.sin({0})
nm | nm | {0}.tanh()
nm | nm | F.gelu({0})
nm | nm | {0}.relu()
nm | nm | ({0} * {0} + 1).sqrt()
nm | nm | F.softmax({0}, -1)
nm | nm | F.layer_norm({0}, {0}.shape[1:])
nm | nm | {0}.cumsum(0)
nm | nm | F.dropout({0}, 0.3)
nm | nm | {0}.detach() * 2
nm | nm | {0}.detach()
nm | nm | {0}.clone()
nm | nm | {0}.flip(0)
nm | nm | {0}.unsqueeze(1).squeeze(1)
nm | nm | {0}.reshape(-1).view({0}.shape)
nm | nm | torch.where({0} > 0, {0}, 0.1 * {0})
nm | nm | {0}.t().contiguous().t()
nm nm | nm | {0} + {1}
nm nm | nm | {0} * {1}
nm nm | nm | {0} - 0.5 * {1}
nm nm | nm | torch.maximum({0}, {1})
nm nm | nm | torch.cat([{0}, {1}])[::2]
nm nm | nm | torch.stack([{0}, {1}]).mean(0)
nm m | nm | {0} + {1}
nm m | nm | {0} * {1}
nm n1 | nm | {0} * {1}
nm n1 | nm | {0} - {1}
nm n1 | nm | {1}.expand_as({0}) + {0}
m n1 | nm | {0} + {1}
nm mm | nm | {0} @ {1}
nm mm | nm | F.linear({0}, {1})
nm mm m | nm | F.linear({0}, {1}, {2})
nm mm | nm | {0} @ {1}.t()
nm m | nm | {0}.addcmul({1}, {1}, value=0.5)
mn | nm | {0}.t()
mn mm | nm | {0}.t() @ {1}
nm | mn | {0}.t()
nm | mn | {0}.transpose(0, 1).sigmoid()
mn mn | mn | {0} * {1}
nm | m | {0}.sum(0)
nm | m | {0}.mean(0)
nm | m | {0}[0]
nm | m | {0}.amax(0)
mm | m | {0}[0]
mm | m | {0}.diagonal()
mm | m | {0}.sum(1)
mn | m | {0}[:, 0]
m | m | {0}.exp() * 0.1
m | m | {0}.detach()
m m | m | {0} * {1}
nm | n1 | {0}.sum(1, keepdim=True)
nm | n1 | {0}[:, :1]
nm | n1 | {0}.var(1, keepdim=True)
nm m | n1 | ({0} @ {1}).unsqueeze(1)
n1 | n1 | {0}.sigmoid()
n1 | n1 | {0}.detach()
mm | mm | {0} * 0.5
mm | mm | {0}.t()
mm mm | mm | {0} @ {1}
m m | mm | torch.outer({0}, {1})
mn nm | mm | ({0} @ {1}) * 0.1""".splitlines()
]

# Writes; the first name is written to.
WRITES = [
    line.split(" | ")
    for line in """\
nm | {0}.mul_(0.5)
nm | {0}.zero_()
nm | {0}.tanh_()
nm nm | {0}.add_({1}.detach())
nm nm | {0}.add_({1})
nm nm | {0}.copy_({1})
nm m | {0} *= {1}
nm m | {0}[0] = {1}
nm m | {0}[-1].add_({1})
nm n1 | {0}[:, :1] = {1}
nm n1 | {0}.sub_({1})
nm | {0}[:, 0].mul_(2)
nm | {0}.t().mul_(0.5)
nm | {0}[{0} > 1] = 0.5
nm mn | {0}.t().add_({1})
mn mn | {0}.add_({1})
m m | {0}.add_({1})
m | {0}.clamp_(-1, 1)
n1 n1 | {0}.mul_({1})
mm m | {0}.diagonal().add_({1})""".splitlines()
]

INPUTS = {"a": "nm", "b": "nm", "c": "m", "d": "n1", "w": "mm", "buffer": "m", "state": "nm"}


@dataclass
class Program:
    """`code` defines `program`; `kinds` says of each input "leaf", "constant" or "computed" (it
    requires grad and has a history); `graded` which outputs get a gradient, `expanded` whether of
    one number."""

    code: str
    kinds: dict[str, str]
    graded: list[int]
    expanded: bool
    seed: int
    sizes: list[tuple[int, int]]

    def load(self) -> Callable[..., Any]:
        import torch
        import torch.nn.functional as F

        name = f"<training program {self.seed}>"
        linecache.cache[name] = (len(self.code), None, self.code.splitlines(True), name)
        scope: dict[str, Any] = {"torch": torch, "F": F}
        exec(compile(self.code, name, "exec"), scope)
        return scope["program"]


@dataclass
class _Generator:
    rng: random.Random
    names: dict[str, list[str]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    writable: set[str] = field(default_factory=set)
    count: int = 0

    def statements(self, count: int, indent: str) -> None:
        for _ in range(count):
            choice = self.rng.random()
            if choice < 0.2:
                self.write(indent)
            elif choice < 0.27 and indent == "    ":
                self.block()
            else:
                self.expression(indent)

    def pick(self, shapes: str, writes: bool = False) -> list[str] | None:
        chosen: list[str] = []
        for at, shape in enumerate(shapes.split()):
            names = self.names.get(shape, [])
            if writes and at == 0:
                names = [n for n in names if n in self.writable]
            if not names:
                return None
            recent = names[-3:] if self.rng.random() < 0.6 else names
            chosen.append(self.rng.choice(recent))
        return chosen

    def expression(self, indent: str) -> None:
        needs, shape, text = self.rng.choice(EXPRESSIONS)
        names = self.pick(needs)
        if names is None:
            return
        new = f"v{self.count}"
        self.count += 1
        self.lines.append(f"{indent}{new} = {text.format(*names)}")
        self.names.setdefault(shape, []).append(new)
        self.writable.add(new)

    def write(self, indent: str) -> None:
        needs, text = self.rng.choice(WRITES)
        names = self.pick(needs, writes=True)
        if names is not None:
            self.lines.append(indent + text.format(*names))

    def block(self) -> None:
        head = self.rng.choice(["with torch.no_grad():", "if a.shape[0] > 4:"])
        self.lines.append(f"    {head}")
        visible = {shape: list(names) for shape, names in self.names.items()}
        self.lines.append("        pass")
        self.statements(self.rng.randint(1, 3), "        ")
        if head.startswith("if"):  # what only one branch made isn't there in the other
            self.names = visible


def generate(seed: int) -> Program:
    rng = random.Random(seed)
    generator = _Generator(rng)
    kinds = {name: rng.choice(["leaf", "leaf", "constant"]) for name in INPUTS}
    kinds["w"] = "leaf"
    kinds["buffer"] = "constant"
    kinds["state"] = rng.choice(["constant", "computed"])
    for name, shape in INPUTS.items():
        generator.names.setdefault(shape, []).append(name)
    generator.writable |= {"buffer"} | ({"state"} if rng.random() < 0.3 else set())
    generator.statements(rng.randint(4, 14), "    ")
    own = [n for names in generator.names.values() for n in names if n.startswith("v")]
    outputs = rng.sample(own, min(len(own), rng.randint(1, 4))) or ["a"]
    if rng.random() < 0.1:
        outputs.append(rng.choice(list(INPUTS)))
    returned = ", ".join(outputs)
    head = f"def program({', '.join(INPUTS)}):"
    code = "\n".join([head, *generator.lines, f"    return {returned},"]) + "\n"
    graded = [at for at in range(len(outputs)) if rng.random() < 0.7] or [0]
    sizes = [(3, 4), (3, 4), (rng.randint(2, 7), 4), (rng.randint(5, 9), 4)]
    return Program(code, kinds, graded, rng.random() < 0.3, seed, sizes)
