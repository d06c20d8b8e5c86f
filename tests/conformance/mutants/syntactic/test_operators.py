"""The mutation operators: text in, text out."""

from __future__ import annotations

import textwrap

import pytest

from torchstone.conformance.mutants.syntactic.enumerate import mutations
from torchstone.conformance.mutants.syntactic.mutation import REACHED

ROWS = [
    ("operator", "return x + y", ["return x - y"]),
    ("operator", "return x * -y", ["return x + -y", "return x * y"]),
    ("operator", "return x // y % 2", ["return x // y // 2", "return (x * y) % 2"]),
    ("operator", "x -= y", ["x += y"]),
    ("operator", "return (*x, 1) + (y,)", []),
    ("operands", "return x - y", ["return y - x"]),
    ("operands", "return x + y", []),
    ("operands", "return f(x, y, 1)", ["return f(y, x, 1)"]),
    ("operands", "return b.add(x, y), b.sub(x, y)", ["return b.add(x, y), b.sub(y, x)"]),
    ("operands", "return f(*x, *y), g(x, (y,)), isinstance(x, y)", []),
    ("comparison", "return x < y", ["return x <= y", "return x >= y"]),
    ("comparison", "return x == y", ["return x != y"]),
    ("comparison", "return x is None, x in y", ["return x is not None, x in y", "return x is None, x not in y"]),
    ("comparison", "return 0 <= x == y", ["return 0 < x == y", "return 0 > x == y", "return 0 <= x != y"]),
    ("boolean", "return x and y", ["return x or y", "return y", "return x"]),
    ("boolean", "return f(x or y, 2)", ["return f(x and y, 2)", "return f(y, 2)", "return f(x, 2)"]),
    ("operator", "return not x", ["return x"]),
    ("constant", "return 3", ["return 4", "return 2"]),
    ("constant", "return True", ["return False"]),
    ("constant", "return 0.5", ["return 0.50048828125", "return -0.5"]),
    ("constant", "return x[0], 'text', None", ["return x[1], 'text', None"]),
    ("constant", "return x[2]", ["return x[3]", "return x[1]"]),
    ("name", "return b.floor(x)", ["return b.ceil(x)"]),
    ("name", "return g('lt', dt.int32)", ["return g('le', dt.int32)", "return g('lt', dt.int64)"]),
    ("branch", "if x: return y", ["if not x: return y", "if True: return y", "if False: return y"]),
    ("branch", "if not x: return y", ["if x: return y", "if True: return y", "if False: return y"]),
    ("branch", "return x if y else 1", ["return (1 if y else x)"]),
    ("branch", "return [i for i in x if i]", ["return [i for i in x if True]"]),
    ("bound", "return x[1:y]", ["return x[:y]", "return x[1:]"]),
    ("keyword", "return f(x, keepdim=True)", ["return f(x)"]),
    ("keyword", "return zip(x, y, strict=True)", []),
    ("conversion", "return b.cast(x, y), f(x, y)", ["return x, f(x, y)"]),
    ("statement", "g(x)", ["pass"]),
    ("statement", "x = b.cast(x)", ["pass"]),
    ("statement", "z = b.cast(x)", []),
    ("statement", "x.name = y", ["pass"]),
    ("statement", "x += y", ["pass"]),
    ("statement", "raise ValueError(x)", ["pass"]),
]


@pytest.mark.parametrize(("operator", "text", "expected"), ROWS, ids=[f"{row[0]}: {row[1]}" for row in ROWS])
def test_an_operator(operator, text, expected):
    source = f"def rule(b, x, y):\n    {text}\n"
    found = [one for one in mutations("m.py", source) if one.operator == operator]
    after = [one.mutated(source).splitlines()[1].strip().replace('"', "'") for one in found]
    assert [plain(line) for line in after] == [plain(line) for line in expected]
    for one in found:
        assert one.diff(source) == (text, one.mutated(source).splitlines()[1].strip())


def plain(line):
    """Without the parentheses around an operand: whether there are some is a matter of looks."""
    return line.replace("(x * y)", "x * y").replace("(", "").replace(")", "")


SILENT = '''
"""A docstring."""
import a
TABLE = {"lt": 1 + 2}
def first(b, x: f(1) = 2) -> g(3):
    """Another."""
    from c import d
    assert x > 0, "no"
    check(True, "op", f"takes {x + 1}")
def __repr__(self):
    return str(self.x + 1)
def describe(x):
    return x + 1
class C:
    limit = 3
    value: int = 4
if TYPE_CHECKING:
    from e import f
'''


def test_what_is_no_part_of_what_a_function_computes_is_not_mutated():
    found = mutations("m.py", SILENT)
    assert [(one.operator, one.mutated(SILENT).splitlines()[one.line - 1].strip()) for one in found] == [
        ("statement", "pass"),
        ("constant", 'check(False, "op", f"takes {x + 1}")'),
    ]


def test_what_only_runs_as_the_module_is_imported_is_not_mutated():
    source = (
        "def _made(n):\n    m = n + 1\n    def later(x):\n        return x * m\n    return later\n"
        "def _asked(n):\n    return n - 2\n"
        "TABLE = {'a': _made(3), 'b': _asked(5)}\n"
        "def use(n):\n    return _asked(n + 1)\n"
    )
    assert {one.function for one in mutations("m.py", source)} == {"_made.<locals>.later", "_asked", "use"}


def test_the_text_of_errors_is_not_mutated_but_that_they_are_raised():
    source = "def rule(b, x):\n    if x:\n        raise b.unsupported('a' + f(1, 2))\n    warnings.warn(g(x, 1))\n"
    found = mutations("m.py", source)
    assert [one.operator for one in found] == ["branch", "branch", "branch", "statement"]


def test_lambdas_methods_and_functions_in_functions_have_their_names():
    source = textwrap.dedent(
        """
        ROWS = {"a": lambda s, x: x + 1}
        class C:
            def method(self):
                def inner():
                    return 1 - self.x
                return inner
        """
    )
    assert {one.function for one in mutations("m.py", source)} == {"<lambda>", "C.method.<locals>.inner"}


def test_a_fingerprint_stays_when_the_code_around_moves_and_tells_equal_changes_apart():
    source = "def rule(b, x):\n    return f(1, 1)\n"
    one, moved = mutations("m.py", source), mutations("m.py", "Y = 2\n\n\n" + source)
    assert [a.fingerprint for a in one] == [b.fingerprint for b in moved]
    assert len({a.fingerprint for a in one}) == len(one) == 4
    assert {a.fingerprint for a in mutations("other.py", source)}.isdisjoint(a.fingerprint for a in one)


INSTRUMENTED = """
def rule(b, x, y):
    total = 0
    for at in range(3):
        if x > at and not y:
            total += at * 2 - 1
        elif (x, at) == (1, 2):
            continue
    return [b(v) for v in (x, y) if v > 0], total, "ü" if x else (
        y
    )
"""


def test_instrumented_code_computes_what_the_mutated_one_does_and_says_that_it_was_there():
    found = mutations("m.py", INSTRUMENTED)
    assert len(found) > 30
    for one in found:
        reached = []
        plain_names, names = {}, {REACHED: lambda reached=reached: reached.append(1) or True}
        define(one.mutated(INSTRUMENTED), plain_names)
        define(one.instrumented(INSTRUMENTED), names)
        for arguments in ((3, 0), (1, 1), (0, -2)):
            outcome = result(plain_names["rule"], *arguments)
            assert result(names["rule"], *arguments) == outcome, one
        assert reached, one


def test_instrumented_code_that_is_switched_off_computes_what_was_there():
    names = {}
    define(INSTRUMENTED, names)
    for one in mutations("m.py", INSTRUMENTED):
        off = {REACHED: lambda: False}
        define(one.instrumented(INSTRUMENTED), off)
        assert result(off["rule"], 3, 0) == result(names["rule"], 3, 0), one


def define(text, names):
    exec(text, names)  # noqa: S102 -- the text is the test's own


def result(rule, x, y):
    try:
        return rule(lambda v: v + 1, x, y)
    except Exception as error:
        return type(error)
