"""What Python and its library ask of run-time numbers: right for all values, or decided by, told and guarded."""

from __future__ import annotations

import array
import bisect
import cmath
import collections
import copy
import ctypes
import datetime
import decimal
import enum
import fractions
import functools
import heapq
import itertools
import json
import math
import operator
import random
import statistics
import string
import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.compiler.capture.state.compare import difference, picture
from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.driver import compile

X = torch.linspace(-2, 3, 12).view(3, 4)
Pair = collections.namedtuple("Pair", "number x")
Color = enum.Enum("Color", {"RED": 1, "GREEN": 2, "BLUE": 3})
LIBRARY = (
    array, bisect, cmath, collections, copy, ctypes, datetime, decimal, fractions, functools, heapq, itertools, json,
    math, operator, random, statistics, string, struct, time,
)  # fmt: skip


def matched(x, n):
    match n:
        case 1:
            return x
        case 2 | 1.5 | True:
            return x * 2
    return x * 3


def counted(x, n):
    seen: dict[Any, int] = {}
    for key in (n, 1, n):
        seen[key] = seen.get(key, 0) + 1
    return seen


def grouped(x, n):
    found = collections.defaultdict(list)
    found[n].append(x)
    found[n, "a"].append(n)
    return dict(found)


def put_into_an_array(x, n):
    out = np.zeros(2)
    out[0] = n
    return x * float(out.sum())


NAMES = {
    **{module.__name__: module for module in LIBRARY}, "np": np, "torch": torch, "Pair": Pair, "Color": Color,
    "matched": matched, "counted": counted, "grouped": grouped, "put_into_an_array": put_into_an_array,
}  # fmt: skip
# Expressions of a tensor x and a number n, of any class.
ANY = """
{n: x} | {n: n} | {(n, 'a'): x, 'b': {n: 1}} | {n, 9} | x * len({n, 1}) | counted(x, n) | grouped(x, n)
x if n in {1, 2, 1.5} else x * 2 | x if n in frozenset({2, 1.5}) else x * 2 | x if n in {2: 0, 1.5: 0} else x * 2
x if n in (1, 2, 1.5) else x * 2 | x if n in range(2) else x * 2 | x if n in [2, 1.5] else x * 2 | x * hash((n, 1))
{(1, 'a'): x, (1.5, 'a'): x}.get((n, 'a'), x * 2) | dict.fromkeys([n, 7], x) | dict(collections.Counter([n, n, 7]))
matched(x, n) | f'n={n}' | f'{n!r:>9}' | f'{[n]}' | '%s' % n | '%d' % n | '%.3f' % n | '{}'.format(n)
str([n, {'a': n}]) | format(n, '06.2f') | '{0[0]:.1f}'.format([n]) | ','.join(map(str, [n, n]))
string.Template('$a').substitute(a=n) | json.dumps({'a': [n]}) | json.dumps({n: 1}) | struct.pack('d', n)
copy.deepcopy(n) | x * n | n + 1 | n - 0.5 | 2 * n | n / 4 | 8 / (n + 1) | n // 2 | n % 2 | 7 % (n + 1)
divmod(n, 2) | divmod(7, n + 1) | n ** 2 | 2 ** n | (n + 1) ** 0.5 | (n + 1) ** -1 | -n | +n | abs(n) | round(n)
round(n, 1) | round(n + 0.5, 1) | int(n) | float(n) | bool(n) | complex(n, 1) | not n | n and x | n or x
x if n else x * 2 | type(n) | type(n).__name__ | isinstance(n, int) | isinstance(n, float)
isinstance(n, (bool, str)) | n is None | n == 'a' | n == 1 | n != 1.5 | n == n | n < fractions.Fraction(3, 2)
n < decimal.Decimal('1.5') | max(n, 1) | min([n, 2]) | sorted([n, 2, -1]) | sum([n, 2]) | math.floor(n)
math.ceil(n) | math.trunc(n) | math.sqrt(n) | math.exp(n) | math.log1p(n) | math.log2(n + 1) | math.sin(n)
math.fsum([n, 1.5]) | math.prod([n, 2]) | math.isclose(n, 1.5) | math.isnan(n) | math.hypot(n, 1)
math.copysign(1, n) | math.fmod(n, 2) | math.modf(n) | math.frexp(n) | math.ldexp(n, 2) | math.pow(n, 2)
math.atan2(n, 1) | math.gamma(n + 1) | cmath.sqrt(-n) | float(decimal.Decimal(n)) | float(fractions.Fraction(n))
n.as_integer_ratio() | n.conjugate() | n.real | x * float(np.sqrt(n)) | x * float(np.array([n, 1]).sum())
x * float(np.float64(2.0) * n) | x * float(np.clip(n, 0, 1)) | x * float((n * np.ones(2)).sum())
x * float(np.power(2.0, n)) | float(np.isnan(n)) | put_into_an_array(x, n) | random.Random(n).random()
time.sleep(n * 1e-6) | datetime.timedelta(seconds=n).total_seconds() | bisect.bisect([1, 2, 3], n)
statistics.mean([n, 2]) | statistics.fmean([n, 2]) | array.array('d', [n]).tolist() | ctypes.c_double(n).value
heapq.nsmallest(1, [n, 2]) | functools.reduce(operator.mul, [n, 2, 3])
[key for key, _ in itertools.groupby([n, n, 7])] | Pair(n, x) | Pair(n, x)._asdict() | {'a': (n, [n])}
slice(n, None) | torch.tensor([n, 1]) | torch.tensor(n) | next(itertools.repeat(n))
"""
# And of one that is an int.
WHOLE = """
[x, x * 2, x * 3, x * 4][n] | (x, x * 2, x * 3, x * 4)[:n] | [x, x * 2, x * 3][n:] | 'abcd'[n] | 'abcd'[n:]
range(10)[n:] | [x * i for i in range(n)] | len(range(0, 10, n)) | 'ab' * n | b'ab' * n | [x] * n | n * [x]
(x,) * n | chr(n + 64) | bin(n) | hex(n) | oct(n) | f'{n:03d}' | f'{n:x}' | '%x %o' % (n, n) | pow(n, 3, 5)
pow(3, n, 5) | n.bit_length() | n.bit_count() | n.to_bytes(2, 'big') | n.numerator | n & 1 | operator.or_(n, 4)
n ^ 1 | ~n | n << 2 | 1 << n | n >> 1 | 3 & n | operator.index(n) * x | fractions.Fraction(n, 3) == 1
math.factorial(n) | math.gcd(n, 6) | math.lcm(n, 6) | math.comb(5, n) | math.isqrt(n) | len(np.arange(n))
np.zeros(n).size | float(np.array([1., 2., 3., 4.])[n]) | list(itertools.islice([1, 2, 3], n))
list(itertools.repeat(x, n)) | len(list(itertools.combinations(range(5), n)))
len(collections.deque([1, 2, 3], maxlen=n)) | '1'.zfill(n) | '1'.ljust(n) | 'a b c d'.split(' ', n) | f"{'a':>{n}}"
[x, x * 2, x * 3, x * 4].pop(n) | [0, 1, 2, 3].index(n) | Color(n).name | bytes([n]) | bytes(n)
struct.pack('i', n) | int(str(n)) * x | torch.Size([n, 2]) | torch.zeros(n, 2) | x[n - 1] | x.sum(n - 2)
x[slice(n - 1, None)] | random.Random(0).getrandbits(n) | len(bytearray(n)) | {1: x, 2: x * 2}.get(n, x - 1)
"""
FRACTIONAL = (
    "n.is_integer() | n.hex() | float.fromhex(n.hex()) | round(n, 2) | round(n, -1) | f'{n:.2f}' | f'{n:e}' | '%e' % n"
)
TRUTH = """
operator.and_(n, True) | operator.or_(n, False) | operator.xor(n, True) | [x, x * 2][n] | 'a' * n | n < True
all([n, True]) | any([n, False]) | n is True | n + n | ~n
"""
VALUES: dict[type, tuple[Any, ...]] = {int: (2, 1, 3), float: (1.5, 2.25, 0.75), bool: (True, False)}


def _split(table: str) -> list[str]:
    """Return the expressions of a table."""
    return [text.strip() for line in table.strip().splitlines() for text in line.split(" | ")]


CASES = [
    (kind, text)
    for kind, more in ((int, WHOLE), (float, FRACTIONAL), (bool, TRUTH))
    for text in _split(ANY) + _split(more)
]
WAYS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "read": lambda fn: lambda x, t: fn(x, t.item()),
    "given": lambda fn: fn,
}


def outcome(call: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    try:
        return ("gives", *picture(call(*args)))
    except (GuardError, Unsupported):
        raise
    except Exception as error:
        return "raises", type(error).__name__


# Each question of a number that is read or that is given, in turn: the long tests ask both of each.
@pytest.mark.few(59)
@pytest.mark.parametrize(
    ("kind", "text", "way"),
    [
        pytest.param(kind, text, way, marks=() if (at + turn) % 2 == 0 else pytest.mark.torture)
        for at, (kind, text) in enumerate(CASES)
        for turn, way in enumerate(WAYS)
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_an_answer_is_right_or_guarded(kind: type, text: str, way: str) -> None:
    program = WAYS[way](eval(f"lambda x, n: {text}", dict(NAMES)))  # noqa: S307
    numbers = VALUES[kind]
    calls = [(X + i, v if way == "given" else torch.tensor(v)) for i, v in enumerate(numbers)]
    expected = [outcome(program, *args) for args in calls]
    assert expected[0][0] == "gives"
    exe = compile(program, calls[0], "evaluator")
    for place, args in enumerate(calls):
        try:
            got = outcome(exe, *args)
        except (GuardError, Unsupported):
            assert place and exe.specialized
            continue
        assert got[0] == expected[place][0]
        assert got[0] == "raises" or not difference(list(got[1:]), list(expected[place][1:]))
