"""The garbage collector, kept out of work that makes no garbage."""

import gc
import subprocess
import sys

import pytest

from pliant.base.collection import IMMORTAL, without_collection


@pytest.fixture(autouse=True)
def nothing_frozen():
    gc.unfreeze()
    yield
    gc.freeze()


def is_young(value):
    return any(value is other for other in gc.get_objects(generation=0))


def test_what_lasts_is_old_at_once():
    with without_collection():
        young = [[]]
    with without_collection():
        assert is_young(young)
    with without_collection(lasting=True):
        lasting = [[]]
    assert not is_young(lasting)
    assert gc.isenabled() and gc.get_freeze_count() < IMMORTAL


def test_what_is_old_is_still_collected():
    class Node:
        pass

    with without_collection(lasting=True):
        node = Node()
        node.itself = node
    alive = sum(type(value) is Node for value in gc.get_objects())
    del node
    gc.collect()
    assert alive == 1 and not any(type(value) is Node for value in gc.get_objects())


def test_what_the_program_froze_stays_frozen():
    code = """
import gc
gc.freeze()  # as little as there can be
count = gc.get_freeze_count()
import pliant
assert count and gc.get_freeze_count() >= count // 2, (count, gc.get_freeze_count())
"""
    subprocess.run([sys.executable, "-c", code], check=True)
