"""What other machines differ in, as far as one can show it: the settings that the suite is run under.

A setting is an environment, or a place (``places.py``). It names the fact (``facts.py``) that it is to change: one that
changes nothing here says nothing of other machines, and is not passed silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches


@dataclass(frozen=True)
class Setting:
    """``environment``: variables to set, None to unset. ``place``: a function of ``places``."""

    name: str
    fact: str
    environment: dict[str, str | None] = field(default_factory=dict)
    place: str = "here"


def _each(prefix: str, fact: str, variable: str, *values: str) -> tuple[Setting, ...]:
    return tuple(Setting(f"{prefix}-{v.lower().removeprefix('x86-64-')}", fact, {variable: v}) for v in values)


PLAIN = Setting("plain", "")
"""The machine as it is, one thread a process, with the seeds that the suite has."""

SETTINGS = (
    PLAIN,
    *_each("aten", "aten", "ATEN_CPU_CAPABILITY", "default", "avx2", "avx512"),
    *_each("mkl", "mkl", "MKL_CBWR", "COMPATIBLE", "AVX2", "AVX512"),
    *_each("onednn", "onednn", "ONEDNN_MAX_CPU_ISA", "SSE41", "AVX2", "AVX512_CORE"),
    *_each("level", "code", "TORCHSTONE_CPU_LEVEL", "x86-64-v2", "x86-64-v3", "x86-64-v4"),
    *(Setting(f"threads-{n}", "threads", {"OMP_NUM_THREADS": n, "MKL_DYNAMIC": "FALSE"}) for n in ("2", "4")),
    *_each("seed", "drawn", "TORCHSTONE_TEST_SEED", "1", "2", "3"),
    *_each("hash", "hash", "PYTHONHASHSEED", "1", "2"),
    Setting("locale-c", "locale", {"LC_ALL": "C"}),
    Setting("locale-german", "locale", {"LC_ALL": "de_DE.UTF-8"}),
    Setting("time-zone", "zone", {"TZ": "<+14>-14"}),
    Setting("umask", "umask", place="umask"),
    Setting("no-home", "home", {"HOME": None}),
    Setting("path-with-space", "path", place="path_with_space"),
    Setting("ordinary-user", "user", place="ordinary_user"),
    Setting("small-shm", "shm", place="small_shm"),
)


def chosen(names: Iterable[str], settings: Sequence[Setting] = SETTINGS) -> list[Setting]:
    """Return the settings of these names, or whose names begin so (``aten``); all of them for none.

    Raises SystemExit with a suggestion for one that does not exist.
    """
    wanted = list(names)
    known = [setting.name for setting in settings]
    for name in wanted:
        if not any(other == name or other.startswith(f"{name}-") for other in known):
            close = get_close_matches(name, known, 1)
            suggestion = f" (did you mean {close[0]!r}?)" if close else ""
            raise SystemExit(f"error: no setting {name!r}{suggestion}; there are {', '.join(known)}")
    return [s for s in settings if not wanted or any(s.name == n or s.name.startswith(f"{n}-") for n in wanted)]
