import copy
import io

import pytest
import torch
import torch._dynamo

import pliant
from pliant.base.errors import InvalidMarkError, UserError
from pliant.dynamic.marks import NO_MARKS, Mark, marks_of

DYNAMIC = Mark("dynamic", strict=True)


def test_no_marks():
    assert marks_of(torch.ones(2)) is NO_MARKS
    decorated = torch.ones(2)
    decorated.note = "a user's attribute"
    assert marks_of(decorated) is NO_MARKS
    assert marks_of(torch.nn.Parameter(torch.ones(2))) is NO_MARKS


def test_each_function():
    x = torch.ones(2, 3, 4, 5)
    pliant.mark_dynamic(x, 0, min=2, max=8)
    pliant.maybe_mark_dynamic(x, 1)
    pliant.mark_static(x, 2)
    pliant.mark_unbacked(x, 3, strict=True)
    assert marks_of(x) == {
        0: Mark("dynamic", 2, 8, strict=True),
        1: Mark("maybe"),
        2: Mark("static"),
        3: Mark("unbacked", strict=True),
    }


@pytest.mark.parametrize("index", [[0, 2], (0, 2), [0, -1], (-3, -1)])
def test_several_dimensions_and_from_the_end(index):
    x = torch.ones(2, 3, 4)
    pliant.mark_dynamic(x, index)
    assert marks_of(x) == {0: DYNAMIC, 2: DYNAMIC}


def test_an_empty_list_of_dimensions_marks_nothing():
    x = torch.ones(2)
    pliant.mark_dynamic(x, [])
    assert marks_of(x) is NO_MARKS


def test_all_dimensions_are_static_but_those_that_are_marked():
    before, after = torch.ones(2, 3), torch.ones(2, 3)
    pliant.mark_static(before)
    pliant.mark_dynamic(before, 0)
    pliant.mark_dynamic(after, 0)
    pliant.mark_static(after)
    for x in (before, after):
        assert [marks_of(x)[dim].kind for dim in (0, 1)] == ["dynamic", "static"]


def test_a_tensor_without_dimensions():
    x = torch.tensor(1.0)
    pliant.mark_static(x)
    assert marks_of(x) is NO_MARKS
    with pytest.raises(InvalidMarkError, match="no dimension 0 in a tensor of 0 dimensions"):
        pliant.mark_dynamic(x, 0)


def test_marks_add_up():
    x = torch.ones(6, 3)
    pliant.maybe_mark_dynamic(x, 0)
    pliant.mark_dynamic(x, 0, min=2)
    pliant.mark_dynamic(x, 0, min=1, max=9)
    pliant.maybe_mark_dynamic(x, 0)
    assert marks_of(x) == {0: Mark("dynamic", 2, 9, strict=True)}
    pliant.mark_unbacked(x, 0)
    assert marks_of(x) == {0: Mark("unbacked", 2, 9, strict=True)}


WRONG = {
    "not a tensor": (lambda x: pliant.mark_dynamic([1, 2], 0), "was given a list"),
    "a class": (lambda x: pliant.mark_static(torch.nn.Linear), "was given the class Linear"),
    "no such dimension": (lambda x: pliant.mark_dynamic(x, 2), "there is no dimension 2"),
    "no such dimension, among others": (
        lambda x: pliant.mark_dynamic(x, [1, -3]),
        "there is no dimension -3",
    ),
    "not an index": (lambda x: pliant.mark_dynamic(x, "0"), "'0' is not the index"),
    "a bool": (lambda x: pliant.mark_dynamic(x, True), "True is not the index"),
    "no index": (lambda x: pliant.mark_dynamic(x, None), "None is not the index"),
    "an empty range": (lambda x: pliant.mark_dynamic(x, 1, min=5, max=4), "at least 5 and at most"),
    "a negative bound": (lambda x: pliant.mark_dynamic(x, 1, min=-1), "min can't be -1"),
    "a bound that isn't a number": (lambda x: pliant.mark_dynamic(x, 1, max=2.0), "max can't be"),
    "ranges that don't meet": (lambda x: pliant.mark_dynamic(x, 0, min=9), "at least 9 and at"),
    "dynamic, now static": (lambda x: pliant.mark_static(x, 0), "already marked as dynamic"),
    "static among others": (lambda x: pliant.mark_static(x, [1, 0]), "already marked as dynamic"),
}


@pytest.mark.parametrize("wrong, message", WRONG.values(), ids=WRONG)
def test_a_wrong_mark_changes_nothing(wrong, message):
    x = torch.ones(4, 3)
    pliant.mark_dynamic(x, 0, max=8)
    with pytest.raises(InvalidMarkError, match=message) as caught:
        wrong(x)
    assert isinstance(caught.value, UserError) and "what to do: " in str(caught.value)
    assert marks_of(x) == {0: Mark("dynamic", None, 8, strict=True)}


@pytest.mark.parametrize("other", [pliant.mark_dynamic, pliant.maybe_mark_dynamic])
def test_static_then_dynamic(other):
    x = torch.ones(4)
    pliant.mark_static(x, 0)
    with pytest.raises(InvalidMarkError, match="already marked as static"):
        other(x, 0)


def test_marks_belong_to_the_tensor_object():
    x = torch.ones(4, 3)
    pliant.mark_dynamic(x, 0)
    assert marks_of(x + 1) is marks_of(x.view(4, 3)) is marks_of(x.detach()) is NO_MARKS
    assert marks_of(copy.deepcopy(x)) == marks_of(x)
    pliant.mark_dynamic(x, 1)  # and a copy made earlier doesn't hear of it
    again = copy.deepcopy(x)
    pliant.mark_unbacked(x, 0)
    assert marks_of(again)[0] == DYNAMIC


def test_a_marked_tensor_can_be_saved_and_loaded():
    x = torch.ones(4, 3)
    pliant.mark_dynamic(x, 0, min=2)
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    assert marks_of(torch.load(file, weights_only=True)) == marks_of(x)


# ---- PyTorch's own functions

TORCH = {
    "mark_dynamic": (lambda x: torch._dynamo.mark_dynamic(x, 0), DYNAMIC),
    "mark_dynamic with a range": (
        lambda x: torch._dynamo.mark_dynamic(x, [0], min=2, max=64),
        Mark("dynamic", 2, 64, strict=True),
    ),
    "maybe_mark_dynamic": (lambda x: torch._dynamo.maybe_mark_dynamic(x, 0), Mark("maybe")),
    "mark_static": (lambda x: torch._dynamo.mark_static(x, 0), Mark("static")),
    "mark_unbacked": (
        lambda x: torch._dynamo.decorators.mark_unbacked(x, 0),
        Mark("unbacked"),
    ),
    "strict mark_unbacked": (
        lambda x: torch._dynamo.decorators.mark_unbacked(x, 0, strict=True),
        Mark("unbacked", strict=True),
    ),
    "from the end": (lambda x: torch._dynamo.mark_dynamic(x, -2), DYNAMIC),
}


@pytest.mark.parametrize("mark, expected", TORCH.values(), ids=TORCH)
def test_marks_of_torch(mark, expected):
    x = torch.ones(4, 3)
    mark(x)
    assert marks_of(x) == {0: expected}


def test_marks_of_torch_static_is_the_weakest():
    x = torch.ones(4, 3)
    torch._dynamo.mark_static(x)
    torch._dynamo.mark_dynamic(x, 1)
    assert marks_of(x) == {0: Mark("static"), 1: DYNAMIC}


def test_marks_of_torch_for_a_dimension_that_is_not_there():
    x = torch.ones(4)
    torch._dynamo.mark_dynamic(x, 3)
    assert not marks_of(x)


def test_own_marks_win():
    x = torch.ones(4, 3)
    torch._dynamo.mark_static(x)
    pliant.mark_dynamic(x, 0, max=9)
    assert marks_of(x) == {0: Mark("dynamic", None, 9, strict=True), 1: Mark("static")}


# ---- does an entry serve a marked tensor?


def marked(kind):
    x = torch.ones(4, 3)
    functions = {
        "dynamic": pliant.mark_dynamic,
        "maybe": pliant.maybe_mark_dynamic,
        "static": pliant.mark_static,
        "unbacked": pliant.mark_unbacked,
    }
    if kind is not None:
        functions[kind](x, 0)
    return x
