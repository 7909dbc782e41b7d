"""Each kind of guard says everything about itself."""

import re

import pytest

from pliant.guards.kinds import GuardKind


@pytest.mark.parametrize("kind", GuardKind)
def test_the_example_of_a_kind_prints_as_its_guards_do(kind):
    pattern = re.escape(kind.value.text).replace(r"\{0\}", ".+").replace(r"\{1\}", ".+")
    assert re.fullmatch(pattern, kind.value.example)
    assert kind.value.doc


def test_kinds_print_differently():
    assert len({kind.value.text for kind in GuardKind}) == len(GuardKind)
