"""Random objects, random guards, random changes: a call that follows the trace of an earlier one
gives the same answer as a walk that looks at everything, and the values that are there now."""

import random

import pytest

from pliant._native import GuardTree


class Thing:
    pass


class OtherThing:
    pass


def leaf(rng):
    return rng.choice([lambda: float(f"{rng.randrange(3)}.5"), lambda: rng.randrange(1000, 1003)])()


def make(rng, depth):
    """A value, of containers down to `depth`."""
    if depth == 0:
        return leaf(rng)
    children = {name: make(rng, depth - 1) for name in rng.sample("abcd", rng.randrange(1, 4))}
    kind = rng.choice([dict, list, tuple, Thing])
    if kind is dict:
        return children
    if kind is Thing:
        thing = rng.choice([Thing, OtherThing])()
        for name, child in children.items():
            setattr(thing, name, child)
        return thing
    return kind(children.values())


def add_guards(rng, tree, node, value, path, slots):
    """Checks that hold for the value and what is in it; the paths of slots go to `slots`."""
    tree.check_type(node, type(value), "type")
    if rng.random() < 0.3:
        tree.slot(node)
        slots.append(path)
    if isinstance(value, (float, int)):
        tree.check_equal(node, value, "equal")
        return
    if isinstance(value, (list, tuple)):
        tree.check_length(node, len(value), "length")
        children = [(tree.seq_item(node, i), i, child) for i, child in enumerate(value)]
    else:
        table = node if isinstance(value, dict) else tree.instance_dict(node)
        items = value if isinstance(value, dict) else vars(value)
        tree.check_lacks(table, "z", "lacks")
        if rng.random() < 0.5:
            tree.check_keys(table, tuple(items), "keys")
        children = [(tree.dict_item(table, key), key, child) for key, child in items.items()]
    for child_node, key, child in children:
        if rng.random() < 0.8:
            add_guards(rng, tree, child_node, child, (*path, key), slots)


def follow(value, path):
    for key in path:
        value = vars(value)[key] if hasattr(value, "__dict__") else value[key]
    return value


def change(rng, value):
    """Change something somewhere, often back to what it was."""
    items = value if isinstance(value, (dict, list)) else getattr(value, "__dict__", None)
    keys = range(len(value)) if isinstance(value, (list, tuple)) else list(items or ())
    inner = [value[key] if items is value or items is None else items[key] for key in keys]
    deeper = [child for child in inner if not isinstance(child, (float, int))]
    if deeper and rng.random() < 0.7:
        return change(rng, rng.choice(deeper))
    if isinstance(value, (Thing, OtherThing)) and rng.random() < 0.2:
        value.__class__ = rng.choice([Thing, OtherThing])
    elif isinstance(items, list):
        items[rng.randrange(len(items))] = leaf(rng)
    elif items is not None:
        key = rng.choice([*items, "x", "z"])
        if rng.random() < 0.3:
            items.pop(key, None)
        else:
            items[key] = items.pop(key) if key in items and rng.random() < 0.2 else leaf(rng)


@pytest.mark.parametrize("seed", range(60))
def test_a_trace_never_lies(seed):
    rng = random.Random(seed)
    value = [make(rng, 3), make(rng, 3)]
    seen = set()
    for _ in range(6):
        tree, slots = GuardTree(1), []
        add_guards(rng, tree, tree.local(0), value, (), slots)
        tree.finish()
        for _ in range(40):
            expected = tree.failures((value,)) == []
            try:
                found = tree.slots((value,))
            except ValueError:
                found = None
            assert (found is not None) == expected
            if expected:
                assert all(got is follow(value, path) for got, path in zip(found, slots))
            assert (tree.check((value,)) is None) == expected
            seen.add(expected)
            change(rng, value)
    assert True in seen
