"""Text made from values."""

import pytest
import torch

from tests.support.against_eager import check

X = torch.arange(6.0).reshape(2, 3)


class Point:
    def __init__(self, a):
        self.a = a

    def __str__(self):
        return f"at {self.a}"

    def __repr__(self):
        return f"Point({self.a!r})"

    def __format__(self, spec):
        return f"<{self.a:{spec}}>"


def check_expression(expression: str) -> None:
    source = f"lambda x, names, d, n: (lambda p: ({expression}))(Point(n))"
    check(eval(source, globals()), X, ["a", "b"], {"k": "v", "w": 5}, 4)


@pytest.mark.parametrize(
    "expression",
    [
        "'-'.join(names), ','.join(str(i) for i in range(3)), ''.join(('p', 'q')), ' '.join(d), "
        "'-'.join('abc')",
        "b'-'.join([b'a', b'b']), ''.join([]), ', '.join(map(str, [1, 2.5])), '/'.join({'k': 1})",
        "'a b c'.split(), 'a,b'.split(','), 'a,b,c'.rsplit(',', 1), 'a\\nb'.splitlines(), "
        "'a=b'.partition('=')",
        "'{} {}'.format(n, names), '{0} {k[0]} {n:>5}'.format(n, k=names, n=3), "
        "'{:.2f}'.format(2.5)",
        "'{} {!r} {:3} {.a}'.format(p, p, p, p), '{p.a:>{w}}'.format(p=p, w=5)",
        "'{k} {w}'.format_map(d)",
        "'%s %d %r' % ('a', n, 'b'), '%s' % names, '%(k)s-%(w)03d' % d, '%5.1f%%' % 2.55, "
        "'%s' % n, '%s' % (names,)",
        "'%s and %r' % (p, p), '%s' % p, '%(p)s %(n)d' % {'p': p, 'n': n}",
        "f'{n} {n!r} {n:>5} {names} {d}', f'{p} {p!r} {p!s} {p:3}', f'{n=}', f'{2.5:.{n}f}'",
        "f'{x.shape} {x.dtype} {tuple(x.shape)}', str(x.shape[0]), f'{type(x).__name__}'",
        "'abc'.upper(), 'abc'.startswith(('a', 'b')), 'abc'.replace('a', 'z'), 'abc'.find('c'), "
        "'a' in 'abc'",
        "'abc'[1], 'abc'[::-1], 'abc' * 2, 'a' + 'b', len('abc'), [c for c in 'abc'], "
        "list(reversed('abc'))",
        "'a-b'.translate({45: '_'}), 'a-b'.translate(str.maketrans('-', '_')), "
        "str.maketrans({'a': 'b'})",
        "b'abc'[0], list(b'ab'), b'a b'.split(), 'abc'.encode(), b'abc'.decode(), max('abc'), "
        "sorted('cab')",
        "'abc'.isalpha(), 'x'.zfill(n), 'a'.center(5, '*'), 'a\\tb'.expandtabs(), "
        "'ab'.index('b'), 'aa'.count('a')",
        "'abc' < 'abd', 'a' == 'a', 'a' != 'b', 'layer.0.weight'.split('.')[1].isdigit(), "
        "'%%' % ()",
    ],
)  # fmt: skip
def test_text(expression):
    check_expression(f"{expression}, x + 1")


@pytest.mark.parametrize(
    "expression",
    [
        "''.join([1])", "''.join(3)", "''.join(['a', None])", "''.join([x])", "b''.join(['a'])",
        "'{}'.format()", "'{k}'.format(p)", "'{1}'.format(p)", "'{k}'.format_map({})",
        "'%s %s' % (1,)", "'%d' % 'a'", "'%(z)s' % d", "'{} {0}'.format(p, p)", "'abc'[9]",
        "'a' + 1", "'ab'.index('z')", "'{'.format(p)", "'%s' % ()", "'%s' % (1, 2)",
        "'{:q}'.format(3)", "f'{n:q}'", "'abc'.split('')", "int('z')",
    ],
)  # fmt: skip
def test_errors(expression):
    check_expression(expression)


def test_text_of_a_tensor_breaks(breaks):
    breaks(lambda x: f"{x}", X, code="tensor-method")


def test_an_empty_format():
    check_expression("f'{n:}', f'{p:}', f'{x.ndim:}', x + 1")
