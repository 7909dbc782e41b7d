"""Which serial loops can be run in parts."""

from pliant.loop.body import combine_of
from pliant.loop.define import Scan
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import Type
from pliant.ops.scans import in_each
from pliant.targets.triton.scans import scans_of

ZERO = LoopValue(Op.CONSTANT, Type.F32, constant=0.0)
X = LoopValue(Op.LOAD, Type.F32)
CARRIED = LoopValue(Op.CARRIED, Type.F32, (ZERO,))
SUM = LoopValue(Op.ADD, Type.F32, (CARRIED, X))
CARRY = LoopValue(Op.CARRY, Type.F32, (CARRIED, SUM))
ADDED = combine_of(Scan(len, len, in_each(Op.ADD)), [Type.F32])


def test_a_scan():
    (scan,) = scans_of([CARRIED, X, SUM, CARRY, LoopValue(Op.STORE, Type.F32, (SUM,))], [ADDED])
    assert (scan.carried, scan.after) == ((CARRIED,), (SUM,))


def test_a_scan_of_a_scan():
    """The inner one begins in the middle of a step of the outer one."""
    carried = LoopValue(Op.CARRIED, Type.F32, (ZERO,))
    total = LoopValue(Op.ADD, Type.F32, (carried, SUM))
    carry = LoopValue(Op.CARRY, Type.F32, (carried, total))
    outer, inner = scans_of([carried, CARRIED, X, SUM, CARRY, total, carry], [ADDED, ADDED])
    assert (outer.after, inner.after) == ((total,), (SUM,))


def test_loops_that_run_in_order():
    body = [CARRIED, X, SUM, CARRY]
    assert scans_of(body, [None]) is None  # nobody knows how two parts make one
    assert scans_of(body, []) is None
    assert scans_of([CARRIED, X, SUM], [ADDED]) is None
    assert scans_of([X], []) is None  # as a scatter has


def test_what_was_carried_is_used_beside():
    """An exclusive sum: what is stored is the state before the element."""
    store = LoopValue(Op.STORE, Type.F32, (CARRIED,))
    assert scans_of([CARRIED, X, SUM, CARRY, store], [ADDED]) is None
    assert scans_of([CARRIED, X, store, SUM, CARRY], [ADDED]) is None
    index = LoopValue(Op.AS_INDEX, Type.I64, (SUM,))
    assert scans_of([CARRIED, X, SUM, index, CARRY], [ADDED]) is None
    less = LoopValue(Op.SUB, Type.F32, (SUM, CARRIED))
    assert scans_of([CARRIED, X, SUM, CARRY, less], [ADDED]) is None
