"""Builds of Python that pliant refuses."""

import sys

import pytest

from pliant.base.interpreter_build import check_build


def test_this_build_is_accepted():
    check_build(sys.abiflags)


@pytest.mark.parametrize("abiflags", ["t", "td"])
def test_the_free_threaded_build_is_refused(abiflags):
    with pytest.raises(ImportError, match="needs Python's global interpreter lock"):
        check_build(abiflags)
