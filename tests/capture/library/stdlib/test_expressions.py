"""The standard library under fullgraph=True: one expression each, with eager as the referee."""

from __future__ import annotations

import pytest
import torch

from tests.support.against_eager import check

IMPORTS = """
import array, base64, binascii, bisect, builtins, calendar, cmath, codecs, collections, contextlib
import copy, dataclasses, datetime, decimal, difflib, enum, fnmatch, fractions, functools, graphlib
import hashlib, heapq, html, importlib, inspect, io, ipaddress, itertools, json, keyword, logging
import math, numbers, operator, os, pathlib, pickle, pprint, queue, random, re, reprlib, shlex
import statistics, string, struct, sys, textwrap, threading, time, traceback, types, typing
import unicodedata
import urllib.parse, uuid, weakref, zlib
import numpy as np
import torch
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple


class Point:
    def __init__(self, x=1, y=2):
        self.x, self.y = x, y


class Base:
    pass


class First(Base):
    pass


class Second(Base):
    pass


class Options(typing.TypedDict, total=False):
    a: int
"""

EXPRESSIONS = """
decimal.Decimal('1.5') + decimal.Decimal(2)
decimal.Decimal('1') / 3
round(decimal.Decimal('2.675'), 2)
float(decimal.Decimal('1.5')) * x
decimal.Decimal('nothing')
fractions.Fraction(3, 6) + 1
hashlib.sha256(b'abc').hexdigest()
hashlib.new('md5', b'a').digest()
hashlib.sha1(b'a').copy().name
struct.Struct('<hh').unpack(struct.Struct('<hh').pack(1, 2))
struct.Struct('<hh').size
struct.unpack('<h', b'a')
memoryview(b'abcd')[1:3].tobytes()
list(memoryview(b'ab'))
len(memoryview(b'ab')) + memoryview(b'ab')[0]
bytes.fromhex('00ff')
bytearray.fromhex('00ff')
int.from_bytes(map(int, '12'), 'big')
base64.b64decode(base64.b64encode(b'ab'))
binascii.hexlify(b'a')
zlib.crc32(b'a')
uuid.uuid5(uuid.NAMESPACE_DNS, 'a').hex
unicodedata.name('a')
codecs.encode('a', 'rot13')
datetime.date.fromisoformat('2020-01-05')
datetime.date.fromisoformat('never')
datetime.date(2020, 1, 1).isocalendar()
datetime.datetime.strptime('2020-01', '%Y-%m').month
datetime.datetime.combine(datetime.date(2020, 1, 1), datetime.time(3))
datetime.date.fromordinal(737425)
json.dumps(Point(), default=lambda o: o.x)
json.dumps(Point())
json.dumps({'b': (1, 2), 'a': None}, sort_keys=True)
pickle.loads(pickle.dumps([1, {'a': (2,)}]))
string.Formatter().format('{0} {a[0]}', 1, a=[2])
array.array('i', [1]).typecode
str(inspect.signature(lambda a, *, b=2: 0))
inspect.signature(lambda a: 0).parameters['a'].kind
'def f' in inspect.getsource(json.dumps) or 'def dumps' in inspect.getsource(json.dumps)
os.path.normpath('a/../b')
sys.getdefaultencoding()
sys.exception()
importlib.import_module('math').pi
logging.getLevelName(10)
shlex.quote('a b')
fnmatch.fnmatch('a.py', '*.py')
urllib.parse.quote('a b')
str(ipaddress.ip_address('127.0.0.1') + 1)
[c.__name__ for c in Base.__subclasses__()]
len(type.__subclasses__(Base))
Options(a=3)
typing.NewType('U', int)(3)
typing.Annotated[int, 3].__metadata__
typing.get_type_hints(Point.__init__)
staticmethod(len)([1])
defaultdict.fromkeys([1], 2)
defaultdict(None, a=1)
hash(OrderedDict())
{deque(): 1}
complex(float('nan'), 1)
complex(0, -0.0)
-0j
queue.Queue().empty()
queue.Queue().get_nowait()
threading.Event().is_set()
eval('a + b', {'a': x, 'b': 2})
eval('1 +')
exec('1 +')
compile('a b', 'f', 'exec')
sys._getframe().f_code.co_name
sys._getframe().f_locals['x'] is x
inspect.currentframe().f_globals['__name__']
len({id(Point()) for _ in range(1)})
[1, 2].index(5)
print('a', file=io.StringIO())
traceback.format_exception_only(ValueError('a'))
copy.copy(Point(x)).x
copy.copy(ValueError('a', 1)).args
copy.deepcopy(types.SimpleNamespace(a=[1])).a
heapq.heapify({})
heapq.heappop([])
UnicodeDecodeError()
types.GenericAlias(list, (int,))
time.gmtime(0).tm_year
list(struct.iter_unpack('<H', b'abcd'))
hashlib.blake2b(b'a').hexdigest()
hashlib.sha256('a')
np.random.default_rng(0).random()
np.random.default_rng(0).integers(0, 10, size=3)
torch.from_numpy(np.random.default_rng(0).random((2, 3)))
np.random.RandomState(3).randint(0, 5, 4)
[np.random.default_rng(5), np.random.default_rng(5).normal(loc=2)][1]
""".strip().splitlines()

PROGRAM = """
def f(x):
    try:
        result = ({expression})
    except Exception as error:
        return x + 1, type(error), str(error)
    return x + 1, result
"""


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression(expression):
    space = {"__name__": "expressions"}
    exec(compile(IMPORTS + PROGRAM.format(expression=expression), "<expression>", "exec"), space)
    check(space["f"], torch.arange(1.0, 4.0))
