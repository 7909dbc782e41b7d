"""C functions and methods called with too many, too few or misnamed arguments raise what Python
raises, inside the graph's program."""

import pytest
import torch

from tests.support.against_eager import check

X = torch.arange(3.0)


class Dictionary(dict):
    pass


class Items(list):
    pass


class Tags(set):
    pass


CALLS = [
    "Dictionary(a=x).clear(1)", "Dictionary().get()", "{}.pop()", "{}.items(1)", "{}.setdefault()",
    "{}.update(1, 2)", "dict.fromkeys()", "dict.get(3)", "Items([x]).append()", "[].append(1, x)",
    "[x].index()", "[].insert(1)", "[].pop(1, 2)", "[].sort(1)", "list.append(1, 2)", "[].extend()",
    "Tags().copy(1)", "frozenset().copy(x)", "{1}.isdisjoint()", "{1}.add()", "{1}.pop(1)",
    "(1, x).count()", "'a'.upper(1)", "'a'.join()", "(1).bit_length(3)", "len()", "len(x, 2)",
    "isinstance(x)", "iter()", "next()", "abs()", "hash()", "sum()", "getattr(x)",
    "setattr(x, 'a')", "pow(1)", "round()", "divmod(1)", "all()", "max()", "sorted()",
    "sorted([1], foo=1)", "zip(1)",
    "reversed()", "range()", "enumerate()", "list(1, 2)", "set(1, 2)", "int(1, 2, 3)",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_python_says_what_is_wrong(call):
    function = eval(f"lambda x: (x + 1, {call})")  # the names are of this module
    check(function, X)

    def caught(x):
        try:
            function(x)
        except TypeError as error:
            return x + 1, str(error)

    check(caught, X, graphs=1)
