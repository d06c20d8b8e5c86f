"""How a script takes a compiler that dies or hangs, and one whose calls differ: in a process of its own, and often."""

from __future__ import annotations

from torchstone.conformance.execution.poison import FILL, OTHER_FILL
from torchstone.conformance.execution.verdict import Kind, Outcome, Verdict

DEADLY = (Outcome.CRASH, Outcome.TIMEOUT, Outcome.OOM)
SECONDS = 120
CALLS = 5  # with each of two fillings


def kills_process(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.outcome in DEADLY


def subprocess_guard() -> list[str]:
    """Statements that do the rest of the script in another process and tell how that ends."""
    run = f'subprocess.run([sys.executable, __file__, "here"], timeout={SECONDS}).returncode'
    return [
        'if sys.argv[1:] != ["here"]:',
        f"    code = {run}",
        '    sys.exit(f"killed by signal {-code}" if code < 0 else code)',
        "",
    ]


def calls_differ(verdict: Verdict | None) -> bool:
    """Whether the failure is that calls on the same inputs differ."""
    return verdict is not None and verdict.kind == Kind.NONDETERMINISTIC


def repeat_calls(lines: list[str], verdict: Verdict | None) -> list[str]:
    """Statements of one call; of several, in memory filled with one byte or another, where calls differ."""
    if not calls_differ(verdict):
        return lines
    return [
        f"for byte in ({FILL}, {OTHER_FILL}) * {CALLS}:",
        "    ctypes.CDLL(None).mallopt(-6, byte)  # M_PERTURB: what memory holds that nobody has written to",
        *(f"    {line}" for line in lines),
    ]
