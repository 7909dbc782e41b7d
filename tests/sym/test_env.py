import pytest

from pliant.base.errors import DataDependentError, ShapeConstraintError
from pliant.base.position import Position
from pliant.sym.cond import and_, eq, ge, gt, le, lt, ne
from pliant.sym.env import ShapeEnv
from pliant.sym.explain import data_dependent, provenance
from pliant.sym.expr import integer
from pliant.sym.ranges import INF, NATURAL, Range
from pliant.sym.records import Assumption, RuntimeAssert, SizeGuard

LINE = Position("model.py", 12, "forward")


def env_with(*hints, **options):
    env = ShapeEnv(where=lambda: LINE, **options)
    return env, *[env.add_input(f"L['x{i}'].size(0)", hint) for i, hint in enumerate(hints)]


def conditions(guards):
    return [str(guard.condition) for guard in guards]


def test_a_branch_takes_the_side_of_the_hint_and_leaves_a_guard():
    env, s0 = env_with(5)
    assert env.evaluate(le(s0, 30), "branch") is True
    assert env.evaluate(eq(s0, 10), "branch") is False
    assert conditions(env.guards()) == ["s0 <= 30", "s0 != 10"]
    guard = env.guards()[0]
    assert guard == SizeGuard(le(s0, 30), "branch", LINE)


def test_what_is_known_is_not_guarded():
    env, s0, s1 = env_with(5, 7)
    assert env.evaluate(ge(s0, 0), "view") is True
    assert env.evaluate(lt(s0, s1), "branch") is True
    assert env.evaluate(lt(s0, s1 + 1), "branch") is True
    assert env.evaluate(ge(s0, s1), "branch") is False
    assert conditions(env.guards()) == ["s0 < s1"]
    assert [q.reason for q in env.questions] == ["known", "hint", "known", "known"]


def test_an_equality_replaces_the_symbol_and_makes_earlier_guards_superfluous():
    env, s0, s1 = env_with(4, 9)
    assert env.evaluate(le(s0, 30), "branch") is True
    assert env.evaluate(ne(s0, 7), "branch") is True
    assert env.specialise(s0, "range") == 4
    assert env.simplify(2 * s0 + s1) is s1 + 8
    assert conditions(env.guards()) == ["s0 == 4"]
    (done,) = env.specialised.values()
    assert (done.symbol, done.value, done.asker, done.position) == (s0, 4, "range", LINE)


def test_zero_and_one_are_not_assumed_until_somebody_asks():
    env, s0 = env_with(5)
    assert env.range(s0) == NATURAL
    assert env.known(eq(s0, 0)) is None and env.known(eq(s0, 1)) is None
    assert env.known(eq(2 * s0 // 2, s0)) is True
    assert env.guards() == []
    assert env.evaluate(eq(s0, 1), "squeeze") is False
    assert conditions(env.guards()) == ["s0 != 1"]
    assert env.known(eq(s0, 0)) is None


def test_equal_hints_share_a_symbol_unless_they_are_zero_or_one():
    env, s0, other, one, also_one, zero = env_with(5, 5, 1, 1, 0)
    assert s0 is other and one is not also_one
    assert [binding.expr for binding in env.bindings] == [s0, s0, one, also_one, zero]
    apart, x, y = env_with(5, 5, duck=False)
    assert x is not y


def test_a_number_is_not_taken_for_a_size_of_equal_hint():
    env, s0 = env_with(5)
    assert env.add_input("L['n']", 5, size_like=False) is not s0


def test_a_mark_carries_over_to_a_size_that_shares_the_symbol():
    env, s0 = env_with(5)
    assert env.add_input("L['y'].size(0)", 5, strict=True) is s0
    with pytest.raises(ShapeConstraintError):
        env.specialise(s0, "range")


def test_a_strict_symbol_may_not_become_a_constant():
    env = ShapeEnv(where=lambda: LINE)
    s0 = env.add_input("L['x'].size(0)", 5, strict=True)
    s1 = env.add_input("L['y'].size(0)", 6)
    assert env.evaluate(eq(s0 + 1, s1), "add")  # a relation is no constant
    with pytest.raises(ShapeConstraintError) as caught:
        env.evaluate(eq(s1, 6), "torch.add")
    text = str(caught.value)
    assert (
        "L['x'].size(0)" in text and "5" in text and "torch.add" in text and "model.py:12" in text
    )


def test_declared_ranges_are_guards_and_must_hold():
    env = ShapeEnv()
    s0 = env.add_input("L['x'].size(0)", 5, declared=Range(2, 64))
    assert env.known(gt(s0, 1)) is True and env.range(s0) == Range(2, 64)
    assert conditions(env.guards()) == ["s0 >= 2", "s0 <= 64"]
    with pytest.raises(ShapeConstraintError, match=r"\[8, inf\]"):
        env.add_input("L['y'].size(0)", 7, declared=Range(8, INF))


def test_without_a_hint_nobody_knows():
    env = ShapeEnv(where=lambda: LINE)
    u0 = env.add_unbacked("n", why="item()")
    question = env.ask(gt(u0, 3), "branch")
    assert question.answer is None and question.reason == "undecided" and question.effect is None
    with pytest.raises(DataDependentError) as caught:
        env.evaluate(gt(u0, 3), "branch")
    text = str(caught.value)
    for part in ("n >= 4", "u0 = n", "[-inf, inf]", "model.py:12", "pliant.check(n >= 4)"):
        assert part in text
    with pytest.raises(DataDependentError, match="the value of n"):
        env.specialise(u0, "range")
    assert isinstance(data_dependent(env, question), DataDependentError)


def test_checks_teach_and_become_assertions():
    env = ShapeEnv(where=lambda: LINE)
    u0 = env.add_unbacked("n")
    assert env.check(ge(u0, 0), "n must not be negative").answer is True
    assert env.check(lt(u0, 100)).answer is True
    assert env.range(u0) == Range(0, 99)
    assert env.evaluate(gt(u0, -1), "zeros") is True
    assert [str(a) for a in env.runtime_asserts] == [
        "assert u0 >= 0, 'n must not be negative'",
        "assert u0 <= 99, 'expected u0 <= 99'",
    ]
    assert env.check(lt(u0, 200)).effect is None  # known
    assert env.check(ge(u0, 100)).answer is False
    assert env.guards() == []


def test_an_equality_that_is_checked_substitutes():
    env, s0, s1 = env_with(5, 6, duck=False)
    u0 = env.add_unbacked("n", size_like=True)
    env.check(eq(u0, s0))
    assert env.simplify(u0 + s1) is s0 + s1
    assert env.hint(u0) == 5  # it is backed now
    assert env.evaluate(gt(u0, 3), "branch") is True
    assert conditions(env.guards()) == ["s0 >= 4"]


def test_a_check_that_fails_now_says_so_and_teaches_nothing():
    env, s0 = env_with(5)
    question = env.check(eq(s0, 7), "seven")
    assert question.answer is False and question.reason == "hint"
    assert not env.runtime_asserts and not env.replacements


def test_a_hint_that_fails_an_earlier_check_is_no_answer():
    env, s0 = env_with(0)
    u0 = env.add_unbacked("x.item()")
    for cond in (ge(u0, -s0), lt(u0, s0)):
        env.check(cond, "in range")
    assert not env.evaluate(eq(s0, 0), "test")  # as in all calls that get here
    assert not env.recorded
    with pytest.raises(DataDependentError):
        env.specialise(s0, "test")


def test_a_guard_is_not_dropped_because_of_a_later_check():
    env, s0 = env_with(5)
    env.evaluate(lt(s0, 10), "branch")  # with 10 or more, the program may never reach the check
    env.check(eq(s0, 5))
    assert conditions(env.guards()) == ["s0 <= 9"]


def squeeze(policy):
    env = ShapeEnv(policy=policy, where=lambda: LINE)
    u0 = env.add_unbacked("nonzero(m).size(0)", size_like=True)
    assert env.range(u0) == NATURAL
    assert env.size_oblivious(eq(u0, 1), "squeeze") is False
    return env, u0


def test_size_oblivious_answers_are_kept_as_assumptions():
    env, u0 = squeeze("recompile")
    assumed = Assumption(ne(u0, 1), "squeeze", "recompile", LINE, "u0 == 1", False)
    assert env.assumptions == [assumed]
    assert env.known(eq(u0, 1)) is False  # enforced, hence a fact
    assert env.size_oblivious(eq(u0, 1), "squeeze") is False and len(env.assumptions) == 1
    assert env.questions[0].reason == "assumed" and env.questions[-1].reason == "known"
    assert env.known(eq(u0, 0)) is None  # only what was assumed
    assert env.guards() == [] and env.runtime_asserts == []


def test_the_policy_error_makes_assumptions_assertions():
    env, u0 = squeeze("error")
    (check,) = env.runtime_asserts
    assert isinstance(check, RuntimeAssert) and check.condition is ne(u0, 1)
    assert "squeeze" in check.message


def test_the_policy_torch_remembers_answers_but_does_not_believe_them():
    env, u0 = squeeze("torch")
    assert env.known(eq(u0, 1)) is None and env.runtime_asserts == []
    assert env.size_oblivious(eq(u0, 1), "squeeze") is False and len(env.assumptions) == 1


def test_size_oblivious_prefers_what_is_known():
    env = ShapeEnv()
    u0 = env.add_unbacked("n", size_like=True)
    env.check(le(u0, 1))
    env.check(ge(u0, 1))
    assert env.size_oblivious(eq(u0, 1), "squeeze") is True
    plain = env.add_unbacked("k")
    with pytest.raises(DataDependentError):  # not a size: nothing is supposed about it
        env.size_oblivious(eq(plain, 1), "branch")


def test_guard_or():
    env, s0 = env_with(5)
    u0 = env.add_unbacked("n", size_like=True)
    assert env.guard_or(eq(s0, 5), False, "expand") is True  # the hint is asked first
    assert env.guard_or(eq(u0, 1), False, "contiguous", general=True) is False
    assert env.assumptions == [] and env.questions[-1].reason == "general"
    assert env.guard_or(eq(u0, 1), False, "broadcast") is False
    assert [a.condition for a in env.assumptions] == [ne(u0, 1)]
    assert env.guard_or(ge(u0, 0), False, "broadcast") is True


def test_a_default_that_contradicts_the_facts_is_not_taken():
    env = ShapeEnv()
    u0, u1 = env.add_unbacked("n"), env.add_unbacked("m")
    env.check(eq(u0 % 2, 0))
    env.check(eq(u0, 2 * u1))
    assert env.guard_or(eq(u0 % 2, 1), True, "odd") is False
    assert env.assumptions == []


def test_a_snapshot_takes_back_everything_after_it():
    env, s0 = env_with(5)
    u0 = env.add_unbacked("n")
    before = env.snapshot()
    env.evaluate(eq(s0, 5), "branch")
    env.check(ge(u0, 0))
    env.add_input("L['y']", 9)
    env.restore(before)
    assert env.guards() == [] and env.runtime_asserts == [] and env.known(ge(u0, 0)) is None
    assert env.simplify(s0) is s0 and not env.specialised and len(env.bindings) == 1
    assert str(env.add_input("L['z']", 9)) == "s1"
    env.restore(before)  # and it can be used again
    assert len(env.symbols) == 2


def test_hints_of_expressions():
    env, s0, s1 = env_with(5, 7)
    u0 = env.add_unbacked("n")
    assert env.hint(s0 * s1 - 1) == 34 and env.hint(s0 + u0) is None
    assert env.hint_or(u0 + 1, 64) == 64 and env.hint_or(s0, 64) == 5
    assert env.hint(integer(3)) == 3


def test_floats_are_guarded_by_comparison():
    env = ShapeEnv()
    f0 = env.add_float("L['p']", 0.5)
    assert env.evaluate(gt(f0, 0.25), "dropout") is True
    assert env.evaluate(gt(f0, 0.25), "dropout") is True
    assert conditions(env.guards()) == ["0.25 < f0"]


def test_a_combined_guard():
    env, s0, s1 = env_with(5, 7)
    assert env.evaluate(and_(le(s0, 9), le(s1, 9)), "branch") is True
    assert env.known(le(s1, 9)) is True
    assert conditions(env.guards()) == ["s0 <= 9 and s1 <= 9"]


def test_provenance_tells_why():
    env, s0, s1 = env_with(5, 7)
    env.note_static("L['w'].size(0)", 16, "did not change")
    env.add_unbacked("nonzero(m).size(0)", size_like=True, why="depends on data")
    env.specialise(s1, "range")
    told = {str(p.source): (p.state, str(p.expr)) for p in provenance(env, env.specialised)}
    assert told == {
        "L['w'].size(0)": ("static", "16"),
        "L['x0'].size(0)": ("dynamic", "s0"),
        "L['x1'].size(0)": ("specialised", "7"),
        "nonzero(m).size(0)": ("unbacked", "u0"),
    }
    (special,) = [p for p in provenance(env, env.specialised) if p.state == "specialised"]
    assert "range asked" in str(special) and "model.py:12" in str(special)


def test_everything_is_told_to_the_listener():
    seen = []
    env = ShapeEnv(listener=seen.append)
    s0 = env.add_input("L['x'].size(0)", 5)
    env.evaluate(eq(s0, 5), "branch")
    assert [type(record).__name__ for record in seen] == ["SymbolInfo", "Specialised", "Question"]
    assert str(seen[2]) == "branch: s0 == 5? True (hint) -> s0 == 5  (asked by branch)"


def test_a_number_used_as_a_size():
    env = ShapeEnv()
    u0 = env.add_unbacked("n")
    env.mark_size_like(u0)
    env.check(ge(u0, 0))
    assert env.range(u0) == NATURAL
    assert env.size_oblivious(eq(u0, 0), "zeros") is False


def test_only_the_unknown_part_of_a_condition_is_guarded():
    env, s0, s1 = env_with(5, 7)
    env.evaluate(le(s0, 3), "branch")
    env.evaluate(and_(ge(s0, 4), le(s1, 9)), "branch")
    assert conditions(env.guards()) == ["s0 >= 4", "s1 <= 9"]


def test_a_declared_range_holds_for_a_shared_symbol_too():
    env, s0 = env_with(5)
    assert env.add_input("L['y'].size(0)", 5, declared=Range(2, INF)) is s0
    assert conditions(env.guards()) == ["s0 >= 2"]


@pytest.mark.parametrize("small_first", [True, False])
def test_suppositions_about_sizes_do_not_depend_on_their_order(small_first):
    """A size that is known to be 0 or 1 takes nothing back of what is supposed about others."""
    env = ShapeEnv()
    sizes = [env.add_unbacked(name, size_like=True) for name in "mn"]
    small, large = sizes if small_first else reversed(sizes)
    env.check(le(small, 1))
    assert env.size_oblivious(eq(large, small), "broadcast") is False
