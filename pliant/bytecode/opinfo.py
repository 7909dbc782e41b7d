"""What a table of opcodes consists of, and the opcodes that Python 3.11 and 3.12 share.

The one idea: an opcode is a row of data. What it takes from the stack, what it leaves there, where
it can go next and what its argument means are read by the decoder, by the analyses and by the
assembler of resume functions; none of them knows an opcode by heart.

``pops`` says how far down an opcode reaches and ``pushes`` what lies there afterwards, so that
``SWAP 2`` takes two entries and leaves two. The difference is the effect on the stack's depth.

``meaning`` says the same in Python, where one expression or statement can: ``-{0}``. That is how
the instruction is written in residual code, and what capture follows if it has no faster handler.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from pliant.base.values import dataclass, replace
from pliant.bytecode.semantics import match_class

Count = int | Callable[[int], int]
Jumps = Literal["always", "maybe"] | None
Meaning = str | Callable[..., object]
Part = tuple[str, int | None]
"""An instruction that another one stands for: its opcode and its argument."""


class Operand(enum.Enum):
    """What the argument of an opcode means, and so what ``Instruction.value`` is."""

    NONE = "no argument: None"
    NUMBER = "a count or flags: the number itself"
    CONST = "an index into the constants: the constant"
    NAME = "an index into the names: the name"
    GLOBAL = "a name, and whether NULL is pushed first: (name, push_null)"
    ATTR = "a name, and whether it is loaded as a method: (name, as_method)"
    SUPER_ATTR = "a name and two flags: (name, as_method, two_arguments)"
    LOCAL = "a variable in a slot of the frame (local, cell or free): its name"
    COMPARE = "a comparison: its operator as text"
    BINARY = "a binary or in-place operation: its operator as text"
    IS = "'is' or 'is not'"
    IN = "'in' or 'not in'"
    CONVERSION = "a function from anything to text: str, repr or ascii"
    COMMON_CONSTANT = "a constant of the interpreter's own: the object"
    SPECIAL = "a special method: its name"
    FORMAT = "(conversion function or None, whether a format specification is on the stack)"
    INTRINSIC_1 = "the name of an interpreter function of one argument"
    INTRINSIC_2 = "the name of an interpreter function of two arguments"
    JUMP = "where to jump: the index of the target instruction"


class Role(enum.Flag):
    """What an opcode does, where more than its own handler depends on it. ``tables.opcodes_with``
    gives the opcodes of the running Python that have a role."""

    # Variables. Writing to a cell needs the cell, so for the slot that is a read.
    READS_LOCAL = enum.auto()  # needs the present content of a slot
    WRITES_LOCAL = enum.auto()  # after it the former content of a slot no longer matters
    PLAIN_LOCAL = enum.auto()  # uses a slot as a variable that is in no cell
    MAKES_CELL = enum.auto()
    WRITES_CELL = enum.auto()
    LOADS_CONST = enum.auto()
    LOADS_GLOBAL = enum.auto()
    LOADS_NAME = enum.auto()
    WRITES_GLOBAL = enum.auto()
    WRITES_NAME = enum.auto()
    IMPORTS = enum.auto()
    DEFINES_FUNCTION = enum.auto()
    DEFINES_CLASS = enum.auto()
    # Objects and the stack.
    WRITES_OBJECT = enum.auto()  # an attribute or an item
    DISCARDS = enum.auto()  # the top of the stack
    # Calls.
    NAMES_KEYWORDS = enum.auto()  # ahead of the call
    TAKES_KEYWORDS = enum.auto()  # calls, with the names of the keywords on top of the stack
    PREPARES_CALL = enum.auto()
    CALLS = enum.auto()
    TESTS_TRUTH = enum.auto()  # what follows needs a bool
    # Control flow. (Jumps are in ``OpInfo.jumps``.)
    STARTS = enum.auto()  # the frame is set up, or resumed after a yield
    RETURNS = enum.auto()
    ITERATES = enum.auto()
    ENDS_LOOP = enum.auto()  # takes the exhausted iterator off the stack
    YIELDS = enum.auto()
    DELEGATES = enum.auto()  # one step of `yield from` or `await`
    ENDS_DELEGATION = enum.auto()  # takes the exhausted inner iterator off the stack
    # Exceptions.
    RAISES = enum.auto()
    RERAISES = enum.auto()
    LOADS_ASSERTION_ERROR = enum.auto()
    ENTERS_HANDLER = enum.auto()
    MATCHES_EXCEPTION = enum.auto()
    LEAVES_HANDLER = enum.auto()
    LEAVES_WITH = enum.auto()  # calls `__exit__` because of an exception


NO_ROLE = Role(0)


@dataclass(frozen=True, slots=True)
class OpInfo:
    """One opcode: its stack effect, its control flow and the meaning of its argument.

    Where the stack differs when the jump is taken, ``jump_pops`` and ``jump_pushes`` say how.
    ``terminal`` opcodes never continue with the next instruction and do not jump either.
    ``caches`` is the number of two-byte cache entries that follow it in the code. ``parts`` are the
    instructions that are decoded in its place, for an argument. ``meaning`` is Python source over
    the entries it takes (``{0}`` is the deepest, ``{all}`` are all of them) and what its argument
    means (``{value}``): an expression if it leaves an entry, else a statement. It can be a function
    of the entries and the argument instead (``semantics.py``). ``roles`` are for
    code that looks for instructions of a kind: a new Python version is a table, and nothing else.
    """

    pops: Count
    pushes: Count
    operand: Operand = Operand.NONE
    jumps: Jumps = None
    jump_pops: Count | None = None
    jump_pushes: Count | None = None
    backward: bool = False
    terminal: bool = False
    caches: int = 0
    parts: Callable[[int], tuple[Part, ...]] | None = None
    meaning: Meaning | None = None
    roles: Role = NO_ROLE

    @property
    def falls_through(self) -> bool:
        """Whether execution can continue with the next instruction."""
        return not self.terminal and self.jumps != "always"

    def with_caches(self, caches: int) -> OpInfo:
        """The same with another number of cache entries."""
        return replace(self, caches=caches)

    def source(self, operands: Sequence[str], value: str) -> str:
        """The meaning over these expressions, with the argument written as `value`."""
        assert isinstance(self.meaning, str)
        return self.meaning.format(*operands, all=", ".join(operands), value=value)

    def stack(self, arg: int | None, jump: bool = False) -> tuple[int, int]:
        """How many entries are taken and left, for this argument, when jumping or not."""
        pops, pushes = self.pops, self.pushes
        if jump:
            pops = pops if self.jump_pops is None else self.jump_pops
            pushes = pushes if self.jump_pushes is None else self.jump_pushes
        number = arg or 0
        return (
            pops if isinstance(pops, int) else pops(number),
            pushes if isinstance(pushes, int) else pushes(number),
        )

    def effect(self, arg: int | None, jump: bool = False) -> int:
        """By how much the stack grows."""
        pops, pushes = self.stack(arg, jump)
        return pushes - pops


def arg_plus(extra: int) -> Callable[[int], int]:
    """The argument plus a constant, as a number of stack entries."""
    return lambda arg: arg + extra


def low_bit_plus(extra: int) -> Callable[[int], int]:
    """The lowest bit of the argument plus a constant, as a number of stack entries."""
    return lambda arg: (arg & 1) + extra


ARG = arg_plus(0)


def _number(pops: Count, pushes: Count, roles: Role = NO_ROLE, caches: int = 0) -> OpInfo:
    return OpInfo(pops, pushes, Operand.NUMBER, caches=caches, roles=roles)


def _built(pops: Count, meaning: Meaning) -> OpInfo:
    return OpInfo(pops, 1, Operand.NUMBER, meaning=meaning)


def _name(pops: Count, pushes: Count, roles: Role = NO_ROLE) -> OpInfo:
    return OpInfo(pops, pushes, Operand.NAME, roles=roles)


def _local(pops: Count, pushes: Count, roles: Role = Role.READS_LOCAL) -> OpInfo:
    return OpInfo(pops, pushes, Operand.LOCAL, roles=roles)


def branch(pops: Count, pushes: Count, *, backward: bool = False) -> OpInfo:
    """A jump that may be taken, with the same effect either way."""
    return OpInfo(pops, pushes, Operand.JUMP, jumps="maybe", backward=backward)


_ALWAYS = OpInfo(0, 0, Operand.JUMP, jumps="always")
ALWAYS_BACK = OpInfo(0, 0, Operand.JUMP, jumps="always", backward=True)

_STACK: dict[str, OpInfo] = {
    "NOP": OpInfo(0, 0),
    "CACHE": OpInfo(0, 0),
    "EXTENDED_ARG": _number(0, 0),
    "RESUME": _number(0, 0, Role.STARTS),
    "POP_TOP": OpInfo(1, 0, roles=Role.DISCARDS),
    "PUSH_NULL": OpInfo(0, 1),
    "SWAP": _number(ARG, ARG),
    "COPY": _number(ARG, arg_plus(1)),
}

_OPERATORS: dict[str, OpInfo] = {
    "UNARY_NEGATIVE": OpInfo(1, 1, meaning="-{0}"),
    "UNARY_NOT": OpInfo(1, 1, meaning="not {0}"),
    "UNARY_INVERT": OpInfo(1, 1, meaning="~{0}"),
    "STORE_SUBSCR": OpInfo(3, 0, caches=1, meaning="{1}[{2}] = {0}", roles=Role.WRITES_OBJECT),
    "DELETE_SUBSCR": OpInfo(2, 0, meaning="del {0}[{1}]", roles=Role.WRITES_OBJECT),
    "BINARY_OP": OpInfo(2, 1, Operand.BINARY, caches=1),
    "IS_OP": OpInfo(2, 1, Operand.IS, meaning="{0} {value} {1}"),
    "CONTAINS_OP": OpInfo(2, 1, Operand.IN, meaning="{0} {value} {1}"),
    "GET_LEN": OpInfo(1, 2),
    "GET_ITER": OpInfo(1, 1, meaning="iter({0})"),
    "GET_YIELD_FROM_ITER": OpInfo(1, 1),
    "FORMAT_VALUE": OpInfo(lambda arg: 2 if arg & 4 else 1, 1, Operand.FORMAT),
}

_BUILDERS: dict[str, OpInfo] = {
    "BUILD_TUPLE": _number(ARG, 1),
    "BUILD_LIST": _number(ARG, 1),
    "BUILD_SET": _built(ARG, "set([{all}])"),  # braces around nothing are a dictionary
    "BUILD_MAP": _number(lambda arg: 2 * arg, 1),
    "BUILD_CONST_KEY_MAP": _number(arg_plus(1), 1),
    "BUILD_STRING": _built(ARG, "''.join([{all}])"),  # `f'{x:}'` has an empty one
    "BUILD_SLICE": _built(lambda arg: 3 if arg == 3 else 2, "slice({all})"),
    # The container lies `arg` below what is added to it and stays there.
    "LIST_APPEND": _number(arg_plus(1), ARG),
    "SET_ADD": _number(arg_plus(1), ARG),
    "MAP_ADD": _number(arg_plus(2), ARG),
    "LIST_EXTEND": _number(arg_plus(1), ARG),
    "SET_UPDATE": _number(arg_plus(1), ARG),
    "DICT_UPDATE": _number(arg_plus(1), ARG),
    "DICT_MERGE": _number(arg_plus(1), ARG),
    "UNPACK_SEQUENCE": _number(1, ARG, caches=1),
    "UNPACK_EX": _number(1, lambda arg: (arg & 0xFF) + (arg >> 8) + 1),
}

_VARIABLES: dict[str, OpInfo] = {
    "LOAD_CONST": OpInfo(0, 1, Operand.CONST, roles=Role.LOADS_CONST),
    "LOAD_FAST": _local(0, 1, Role.READS_LOCAL | Role.PLAIN_LOCAL),
    "STORE_FAST": _local(1, 0, Role.WRITES_LOCAL | Role.PLAIN_LOCAL),
    "DELETE_FAST": _local(0, 0, Role.READS_LOCAL | Role.WRITES_LOCAL | Role.PLAIN_LOCAL),
    "LOAD_CLOSURE": _local(0, 1),
    "LOAD_DEREF": _local(0, 1),
    "STORE_DEREF": _local(1, 0, Role.READS_LOCAL | Role.WRITES_CELL),
    "DELETE_DEREF": _local(0, 0, Role.READS_LOCAL | Role.WRITES_CELL),
    "MAKE_CELL": _local(0, 0, Role.READS_LOCAL | Role.MAKES_CELL),
    "COPY_FREE_VARS": _number(0, 0),
    "LOAD_NAME": _name(0, 1, Role.LOADS_NAME),
    "STORE_NAME": _name(1, 0, Role.WRITES_NAME),
    "DELETE_NAME": _name(0, 0, Role.WRITES_NAME),
    "STORE_GLOBAL": _name(1, 0, Role.WRITES_GLOBAL),
    "DELETE_GLOBAL": _name(0, 0, Role.WRITES_GLOBAL),
    "STORE_ATTR": OpInfo(
        2, 0, Operand.NAME, caches=4, meaning="{1}.{value} = {0}", roles=Role.WRITES_OBJECT
    ),
    "DELETE_ATTR": OpInfo(1, 0, Operand.NAME, meaning="del {0}.{value}", roles=Role.WRITES_OBJECT),
    "IMPORT_NAME": _name(2, 1, Role.IMPORTS),
    "IMPORT_FROM": _name(1, 2),
    "SETUP_ANNOTATIONS": OpInfo(0, 0),
    "LOAD_BUILD_CLASS": OpInfo(0, 1, roles=Role.DEFINES_CLASS),
    "LOAD_ASSERTION_ERROR": OpInfo(0, 1, roles=Role.LOADS_ASSERTION_ERROR),
}

_CALLS: dict[str, OpInfo] = {
    "KW_NAMES": OpInfo(0, 0, Operand.CONST, roles=Role.NAMES_KEYWORDS),
    "CALL_FUNCTION_EX": _number(low_bit_plus(3), 1),
    "MAKE_FUNCTION": _number(lambda arg: 1 + (arg & 0xF).bit_count(), 1, Role.DEFINES_FUNCTION),
    "RETURN_VALUE": OpInfo(1, 0, terminal=True, roles=Role.RETURNS),
}

_JUMPS: dict[str, OpInfo] = {
    "JUMP_FORWARD": _ALWAYS,
    "JUMP_BACKWARD": ALWAYS_BACK,
    "JUMP_BACKWARD_NO_INTERRUPT": ALWAYS_BACK,
}

_EXCEPTIONS: dict[str, OpInfo] = {
    "PUSH_EXC_INFO": OpInfo(1, 2, roles=Role.ENTERS_HANDLER),
    "POP_EXCEPT": OpInfo(1, 0, roles=Role.LEAVES_HANDLER),
    "CHECK_EXC_MATCH": OpInfo(2, 2, roles=Role.MATCHES_EXCEPTION),
    "CHECK_EG_MATCH": OpInfo(2, 2, roles=Role.MATCHES_EXCEPTION),
    "RAISE_VARARGS": OpInfo(ARG, 0, Operand.NUMBER, terminal=True, roles=Role.RAISES),
    "RERAISE": OpInfo(arg_plus(1), ARG, Operand.NUMBER, terminal=True, roles=Role.RERAISES),
    "BEFORE_WITH": OpInfo(1, 2),
    "WITH_EXCEPT_START": OpInfo(4, 5, roles=Role.LEAVES_WITH),
}

_PATTERNS: dict[str, OpInfo] = {
    "MATCH_CLASS": _built(3, match_class),
    "MATCH_MAPPING": OpInfo(1, 2),
    "MATCH_SEQUENCE": OpInfo(1, 2),
    "MATCH_KEYS": OpInfo(2, 3),
}

_COROUTINES: dict[str, OpInfo] = {
    "GET_AWAITABLE": _number(1, 1),
    "GET_AITER": OpInfo(1, 1),
    "GET_ANEXT": OpInfo(1, 2),
    "BEFORE_ASYNC_WITH": OpInfo(1, 2),
    "END_ASYNC_FOR": OpInfo(2, 0),
}

SHARED: Mapping[str, OpInfo] = {
    **_STACK,
    **_OPERATORS,
    **_BUILDERS,
    **_VARIABLES,
    **_CALLS,
    **_JUMPS,
    **_EXCEPTIONS,
    **_PATTERNS,
    **_COROUTINES,
}
"""Opcodes that are the same in Python 3.11 and 3.12."""
