import math

import pytest
import torch
from torch import nn

import pliant
from pliant.base.errors import InvalidOptionError
from pliant.base.options import Options
from pliant.dynamic.choose import Carried, Choice, DynamicPolicy, choose_number, choose_size

X = "L['x']"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for which in ("DYNAMIC", "UNBACKED"):
        monkeypatch.delenv(f"PLIANT_{which}_SOURCES", raising=False)
        monkeypatch.delenv(f"TORCH_COMPILE_{which}_SOURCES", raising=False)


def policy(dynamic=None, **options):
    return DynamicPolicy.of(dynamic, Options(**options))


def size(policy, tensor=None, dim=0, changed=False, **more):
    tensor = torch.ones(5, 20) if tensor is None else tensor
    return choose_size(policy, X, tensor, dim, changed, **more)


def told(choice):
    return choice.state, choice.why


def marked(mark, index=0, **more):
    x = torch.ones(5, 20)
    mark(x, index, **more)
    return x


@pytest.mark.parametrize(
    "dynamic, options, changed, expected",
    [
        (None, {}, False, ("static", "has not changed so far")),
        (None, {}, True, ("dynamic", "size changed from 3 to 5 (automatic dynamic)")),
        (
            None,
            {"automatic_dynamic_shapes": False},
            True,
            ("static", "automatic_dynamic_shapes is"),
        ),
        (None, {"assume_static_by_default": False}, False, ("dynamic", "assume_static_by_default")),
        (True, {}, False, ("dynamic", "dynamic=True")),
        (True, {"automatic_dynamic_shapes": False}, True, ("dynamic", "dynamic=True")),
        (False, {}, True, ("static", "dynamic=False")),
        (False, {"assume_static_by_default": False}, True, ("static", "dynamic=False")),
    ],
)
def test_policies(dynamic, options, changed, expected):
    choice = size(policy(dynamic, **options), changed=changed, before=3)
    assert choice.state == expected[0] and choice.why.startswith(expected[1])
    assert not choice.strict and choice.minimum is choice.maximum is None


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("sources", ["", X])
@pytest.mark.parametrize(
    "x, expected",
    [
        (
            marked(pliant.mark_dynamic, min=2, max=9),
            Choice("dynamic", True, 2, 9, "mark_dynamic"),
        ),
        (
            marked(pliant.maybe_mark_dynamic),
            Choice("dynamic", False, None, None, "maybe_mark_dynamic"),
        ),
        (marked(pliant.mark_static), Choice("static", False, None, None, "mark_static")),
        (
            marked(pliant.mark_unbacked, strict=True),
            Choice("unbacked", True, None, None, "mark_unbacked"),
        ),
    ],
    ids=["dynamic", "maybe", "static", "unbacked"],
)
def test_marks_are_the_strongest(dynamic, sources, x, expected):
    for changed in (False, True):
        chosen = size(policy(dynamic, dynamic_sources=sources), x, changed=changed)
        assert chosen == expected
    other = size(policy(dynamic), x, dim=1)  # the other dimension has no mark
    assert other == size(policy(dynamic), torch.ones(5, 20), dim=1)


def test_sources_win_over_policies_and_modules():
    weight = nn.Parameter(torch.ones(5, 20))
    for dynamic in (None, True, False):
        named = policy(dynamic, dynamic_sources="L['x']:0")
        assert told(size(named, weight)) == ("dynamic", "matches L['x']:0 in dynamic_sources")
        assert size(named, weight, dim=1).state == "static"
    both = policy(dynamic_sources=X, unbacked_sources=X)
    assert told(size(both)) == ("unbacked", "matches L['x'] in unbacked_sources")


def test_sources_from_the_environment(monkeypatch):
    monkeypatch.setenv("PLIANT_DYNAMIC_SOURCES", r"L\['x.*'\]")
    assert size(policy(False)).why == r"matches L\['x.*'\] in PLIANT_DYNAMIC_SOURCES"
    monkeypatch.setenv("TORCH_COMPILE_UNBACKED_SOURCES", X)
    assert size(policy(False)).state == "unbacked"
    monkeypatch.setenv("PLIANT_DYNAMIC_SOURCES", "(")
    with pytest.raises(InvalidOptionError, match="PLIANT_DYNAMIC_SOURCES"):
        policy()


def test_parts_of_modules_are_static_unless_they_change():
    weight, buffer = nn.Parameter(torch.ones(5, 20)), torch.ones(5, 20)
    for dynamic in (None, True):
        assert told(size(policy(dynamic), weight)) == ("static", "a parameter of a module")
        found = size(policy(dynamic), buffer, module_part="buffer")
        assert told(found) == ("static", "a buffer of a module")
        assert size(policy(dynamic), weight, changed=True).state == "dynamic"
    assert size(policy(False), weight, changed=True).state == "static"
    fixed = policy(True, automatic_dynamic_shapes=False)
    assert size(fixed, weight, changed=True).why == "a parameter of a module"


# ---- numbers


def number(policy, value=3, changed=False, **more):
    return told(choose_number(policy, "L['n']", value, changed, **more))


@pytest.mark.parametrize("value", [3, 0, 1, -2, 2**62, 0.5, -1e30])
def test_numbers(value):
    assert number(policy(), value) == ("static", "has not changed so far")
    found = number(policy(), value, True, before=7)
    assert found == ("dynamic", f"value changed from 7 to {value} (automatic dynamic)")
    assert number(policy(True), value) == ("dynamic", "dynamic=True")
    assert number(policy(False), value, True) == ("static", "dynamic=False")
    assert number(policy(True), value, module_part="attribute")[1] == "an attribute of a module"
    assert number(policy(dynamic_sources="L['n']", specialize_int=True), value)[0] == "dynamic"


@pytest.mark.parametrize("value, option", [(3, "specialize_int"), (0.5, "specialize_float")])
def test_specialised_numbers(value, option):
    for dynamic in (None, True):
        chosen = number(policy(dynamic, **{option: True}), value, True)
        assert chosen == ("static", f"the option {option} is on")
    other = 0.5 if value == 3 else 3
    assert number(policy(True, **{option: True}), other)[0] == "dynamic"


@pytest.mark.parametrize("value", [True, False, math.nan, -math.inf, 2**63, -(10**400), 2j, "text"])
def test_what_is_never_a_symbol(value):
    for some in (policy(True), policy(dynamic_sources=".*")):
        assert number(some, value, True)[0] == "static"


def test_unbacked_numbers():
    named = policy(unbacked_sources="L['n']")
    assert number(named, 3)[0] == "unbacked"
    assert number(named, 0.5)[0] == "dynamic"  # only integers can be unknown


# ---- marks that carry over


def carried(some, **tensors):
    found = Carried(some)
    for name, tensor in tensors.items():
        found.note(f"L['{name}']", tensor)
    return found


@pytest.mark.parametrize("dynamic", [None, False])
def test_a_size_equal_to_a_marked_one(dynamic):
    some, x, y = policy(dynamic), marked(pliant.mark_dynamic), torch.ones(5, 20)
    equal = carried(some, y=y, x=x)
    choice = choose_size(some, "L['y']", y, 0, False, carried=equal)
    assert choice == Choice("dynamic", False, None, None, "equal to the marked L['x'].size()[0]")
    assert choose_size(some, "L['y']", y, 1, False, carried=equal).state == "static"
    assert choose_size(some, "L['x']", x, 0, False, carried=equal).strict


def test_what_is_not_carried():
    some, x = policy(), torch.ones(5, 5)
    pliant.mark_dynamic(x, 0)
    equal = carried(some, x=x)
    # not to the other dimension of the same tensor, nor to a parameter, nor over another mark
    assert choose_size(some, "L['x']", x, 1, False, carried=equal).state == "static"
    weight = nn.Parameter(torch.ones(5, 5))
    assert choose_size(some, "L['w']", weight, 0, False, carried=equal).state == "static"
    fixed = marked(pliant.mark_static)
    assert choose_size(some, "L['y']", fixed, 0, False, carried=equal).why == "mark_static"


def test_size_one_is_not_carried_but_zero_is():
    some = policy()
    for extent, state in ((1, "static"), (0, "dynamic")):
        x, y = torch.ones(extent, 3), torch.ones(extent, 3)
        pliant.mark_dynamic(x, 0)
        found = choose_size(some, "L['y']", y, 0, False, carried=carried(some, x=x, y=y))
        assert found.state == state


def test_sources_carry_over_and_static_marks_do_not():
    named, y = policy(False, dynamic_sources="L['x']:0"), torch.ones(5, 20)
    equal = carried(named, x=torch.ones(5, 20), y=y)
    assert choose_size(named, "L['y']", y, 0, False, carried=equal).state == "dynamic"
    assert choose_size(named, "L['y']", y, 1, False, carried=equal).state == "static"
    some = policy()
    equal = carried(some, x=marked(pliant.mark_static))
    assert choose_size(some, "L['y']", y, 0, False, carried=equal).state == "static"
