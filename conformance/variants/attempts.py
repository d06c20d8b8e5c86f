"""What this process is to know, and to tell, of the cases in variants that it makes: see ``sources.maker``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass
class Attempts:
    """What this process makes: ``begin`` is told the id of each case in a variant that is made, and "" when it is made.

    Those of ``fatal`` are not tried: each has ended a process before, in the way that it says. A process that is
    ``expendable`` may end: another one will make the same, with care.
    """

    begin: Callable[[str], object] = lambda name: None
    fatal: Mapping[str, str] = field(default_factory=dict)
    expendable: bool = False


attempts = Attempts()
