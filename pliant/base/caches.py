"""Looking into the cache of a function under `functools.lru_cache`, which leaves no traces: neither
its counts nor the order in which it forgets change.

CPython does not show that cache, but its garbage collector does: it names the dictionary of a
wrapper and, of one that forgets, each key followed by its result. The keys are made as CPython 3.11
and 3.12 make them.
"""

from __future__ import annotations

import functools
import gc
import weakref
from typing import Any, Final

CACHED: Final = functools._lru_cache_wrapper
MISSING: Final = object()
LINK: Final = "_lru_list_elem"  # what the dictionary of a cache that forgets holds
LAST: Final = ("stored", "function", "mark", "link", "info", "own")  # of the objects it refers to

# Of each wrapper its dictionary, which stays the same, and its mark between arguments and keywords.
_parts: weakref.WeakKeyDictionary[Any, tuple[dict[Any, Any], Any]] = weakref.WeakKeyDictionary()


def key_of_call(cached: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The key under which the cache keeps the result of a call, made as CPython makes it."""
    typed = cached.cache_parameters()["typed"]
    if not typed and not kwargs:
        # As CPython does: a single argument of these types is its own key.
        return args[0] if len(args) == 1 and type(args[0]) in (int, str) else args
    key = args
    if kwargs:
        key += (_parts_of(cached)[1], *(part for item in kwargs.items() for part in item))
    if typed:
        key += tuple(type(value) for value in (*args, *kwargs.values()))
    return key


def remembered(cached: Any, key: Any) -> Any:
    """The result that the cache has under this key, or MISSING."""
    held = held_under(cached, key)
    if type(held).__name__ != LINK:
        return held
    referents = gc.get_referents(cached)
    for place in range(1, len(referents) - len(LAST), 3):  # its class, then key, result, class, ...
        if _same(referents[place], key):
            return referents[place + 1]
    return MISSING


def held_under(cached: Any, key: Any) -> Any:
    """What the cache's dictionary has under this key, or MISSING: the result itself or, in a cache
    that forgets, the link of its list."""
    return _parts_of(cached)[0].get(key, MISSING)


def is_full(cached: Any) -> bool:
    """Whether a new result is not kept, or displaces another."""
    info = cached.cache_info()
    return info.maxsize is not None and info.currsize >= info.maxsize


def is_known(cached: Any) -> bool:
    """Whether this is a function made by `functools.lru_cache`, with the inside that is expected
    here."""
    last = dict(zip(LAST, gc.get_referents(cached)[-len(LAST) :], strict=True))
    expected = type(last["stored"]) is dict and type(last["mark"]) is object
    own = vars(cached)
    return expected and last["own"] is own and {"cache_parameters", "__wrapped__"} <= own.keys()


def _parts_of(cached: Any) -> tuple[dict[Any, Any], Any]:
    parts = _parts.get(cached)
    if parts is None:
        last = dict(zip(LAST, gc.get_referents(cached)[-len(LAST) :], strict=True))
        parts = _parts[cached] = last["stored"], last["mark"]
    return parts


def _same(key: Any, other: Any) -> bool:
    return key is other or (hash(key) == hash(other) and bool(key == other))
