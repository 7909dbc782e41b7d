"""Binding of arguments to parameters, against `inspect.signature(...).bind`."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant._native import Dispatcher

FUNCTIONS = [
    lambda: 0,
    lambda a: 0,
    lambda a, b=10: 0,
    lambda a, b=10, c=20: 0,
    lambda a, /, b: 0,
    lambda a, b=1, /, c=2, *, d=3: 0,
    lambda *args: 0,
    lambda **kwargs: 0,
    lambda a, *args, b, **kwargs: 0,
    lambda a=1, *args, b=2, **kwargs: 0,
    lambda a, /, **kwargs: 0,
    lambda *, a, b=2: 0,
    lambda a, b, /, c, d=4, *args, e, f=6, **kwargs: 0,
]


def bound_by_inspect(function, args, kwargs):
    """The parameters in the order of `co_varnames`, or None if the call is an error."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return tuple(bound.arguments[name] for name in code.co_varnames[:count])


def bound_by_dispatcher(function, args, kwargs):
    seen = []
    dispatcher = Dispatcher(function, lambda dispatcher, values: seen.append(values))
    try:
        assert dispatcher(*args, **kwargs) == 0
    except TypeError as error:
        with pytest.raises(TypeError) as expected:
            function(*args, **kwargs)
        assert str(error) == str(expected.value)
        assert not seen
        return None
    return seen[0]


@given(
    st.sampled_from(FUNCTIONS),
    st.lists(st.integers(), max_size=6).map(tuple),
    st.dictionaries(st.sampled_from("abcdefz"), st.integers(), max_size=5),
)
def test_binding_agrees_with_inspect(function, args, kwargs):
    assert bound_by_dispatcher(function, args, kwargs) == bound_by_inspect(function, args, kwargs)


def test_keyword_names_need_not_be_interned():
    name = "".join(["long_", "name"])
    assert bound_by_dispatcher(lambda long_name: 0, (), {name: 1}) == (1,)
    assert bound_by_dispatcher(lambda **kwargs: 0, (), {name: 1}) == ({"long_name": 1},)


def test_keywords_that_are_not_strings_are_python_s_error():
    with pytest.raises(TypeError, match="keywords must be strings"):
        Dispatcher(lambda **kwargs: 0)(**{1: 2})


def test_defaults_are_read_on_each_call():
    def function(a=1, *, b=2):
        return 0

    assert bound_by_dispatcher(function, (), {}) == (1, 2)
    function.__defaults__ = (3,)
    function.__kwdefaults__["b"] = 4
    assert bound_by_dispatcher(function, (), {}) == (3, 4)
    function.__defaults__ = function.__kwdefaults__ = None
    assert bound_by_dispatcher(function, (), {}) is None


def test_very_many_parameters():
    names = [f"p{i}" for i in range(100)]
    function = eval(f"lambda {', '.join(names)}: 0")
    assert bound_by_dispatcher(function, range(100), {}) == tuple(range(100))
    assert bound_by_dispatcher(function, (), {name: 1 for name in names}) == (1,) * 100
