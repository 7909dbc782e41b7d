"""`ignore_logging_functions`: what compiled code doesn't call."""

import logging

import pytest
import torch

import pliant
from pliant.base.errors import InvalidOptionError

X = torch.ones(2)
calls: list[str] = []
logger = logging.getLogger("pliant.tests.ignored")


def function(text):
    calls.append(text)
    return text


class Sink:
    def note(self, text):
        calls.append(text)
        return text


first, second = Sink(), Sink()


def program(x):
    results = function("function"), first.note("first"), second.note("second")
    print("printed")
    logger.error("logged")
    return x * 2, results


IGNORED = {function, first.note, print, logger.error}


@pytest.mark.parametrize("as_option", [False, True])
def test_functions_and_methods_of_one_object(as_option, capsys, caplog) -> None:
    calls.clear()
    options = {"ignore_logging_functions": IGNORED} if as_option else {}
    with pliant.config.patch({} if as_option else {"ignore_logging_functions": IGNORED}):
        compiled = pliant.compile(program, fullgraph=True, options=options)
    for _ in range(2):
        result, results = compiled(X)
        assert torch.equal(result, X * 2) and results == (None, None, "second")
    assert calls == ["second"] * 2
    assert not capsys.readouterr().out and not caplog.records


def test_a_set_of_functions_is_wanted() -> None:
    with pytest.raises(InvalidOptionError, match="a set of functions"):
        pliant.config.ignore_logging_functions = [function]
