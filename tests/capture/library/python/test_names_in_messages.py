"""Messages name classes as Python does: those made by C code with their module."""

import datetime
import operator
import types
from collections import deque

import numpy as np
import pytest
import torch

from tests.support.against_eager import check

X = torch.arange(3.0)
OBJECTS = (
    torch.float32, torch.strided, torch.device("cpu"), torch.Size([1]), np.float32(1), deque([1]),
    datetime.timedelta(days=1), types.SimpleNamespace(a=1), object(), None,
)  # fmt: skip


def unpack(x, item):
    first, *_ = item
    return first


def delete(x, item):
    del item[0]


def delete_key(x, item):
    del item["key"]


USES = (
    lambda x, item: abs(item),
    lambda x, item: round(item),
    lambda x, item: divmod(item, 2),
    lambda x, item: operator.index(item),
    lambda x, item: (1, 2)[item],
    lambda x, item: ",".join([item]),
    lambda x, item: f"{item:.2f}",
    lambda x, item: next(item),
    lambda x, item: [*item],
    lambda x, item: (lambda *args: 1)(*item),
    lambda x, item: (lambda **kwargs: 1)(**item),
    lambda x, item: getattr(x, item),
    lambda x, item: item.missing,
    lambda x, item: item < 1,
    lambda x, item: torch.Size([item]),
    unpack,
    delete,
    delete_key,
)


@pytest.mark.parametrize("use", range(len(USES)))
def test_names_of_classes(use):
    for item in OBJECTS:
        check(USES[use], X, item, breaks=None)


def test_no_item_to_delete():
    for item in (1, 2.5, True, (1,), "ab", b"ab", range(3), int):
        check(delete, X, item, breaks=None)
        check(delete_key, X, item, breaks=None)


class Text(str):
    pass


class Marked(str):
    def __getitem__(self, key):
        return f"<{super().__getitem__(key)}>"


@pytest.mark.parametrize("cls", (Text, Marked))
def test_items_of_texts_of_a_class_of_ones_own(cls):
    check(lambda x, text: (x + 1, text[0], text[1:], list(reversed(text))), X, cls("abc"))
    check(lambda x, text: text[x], X, cls("abc"), breaks=None)
