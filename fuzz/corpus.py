"""Programs that are kept between campaigns: each ran lines of the backend that none had run by then."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.line_tracer import Fingerprints, Ran
from torchstone.conformance.files import replace_file
from torchstone.conformance.program.case import Case
from torchstone.fuzz.changes import COMMON

SUFFIX = ".safetensors"
PASSED = "passed"
"""The tag of a program that was right when it was kept: one that is refused later on is a bug."""


FUNCTIONS = "functions.json"
"""The file of a corpus that has the functions of the backend as they were when it was last asked, and their callers."""


class Corpus:
    """A folder of programs, a file each, numbered in the order in which they came. Without a folder nothing is kept.

    A campaign begins with them, the last ones first: these run what few do, and most of what others were kept for, too.
    One that shows nothing new by then is given up, so that the folder stays as small as what it reaches allows.
    Those that call what has changed in the backend come before all others, once that is known.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.unreadable: list[Path] = []
        self._files = sorted(folder.glob(f"*{SUFFIX}"), reverse=True) if folder is not None and folder.is_dir() else []
        self._next = 1 + max((_number(file) for file in self._files), default=0)
        self._of: dict[int, tuple[Case, Path]] = {}
        self._passed: set[int] = set()
        self._for: dict[int, list[str]] = {}
        noted = self._noted()
        self._functions: Fingerprints = Ran.from_json(noted).functions
        self._callers = _callers(noted.get("callers"))

    def __len__(self) -> int:
        """How many there were at the beginning."""
        return len(self._files)

    def cases(self, wanted: Callable[[Case], bool] = lambda case: True) -> list[Case]:
        """Return the wanted ones that were there at the beginning. What is no case is named in ``unreadable``."""
        found = []
        for file in self._files:
            try:
                case = Case.load(file)
            except InputError:
                self.unreadable.append(file)
                continue
            if wanted(case):
                passed = PASSED in case.tags
                case = case.replace(tags=tuple(tag for tag in case.tags if tag != PASSED))
                self._of[id(case)] = case, file
                if passed:
                    self._passed.add(id(case))
                found.append(case)
        return found

    def in_turn(self, cases: Iterable[Case], changed: Callable[[], Collection[str]]) -> Iterator[Case]:
        """Yield these cases of the corpus: as they are, until it is known that functions have ``changed``.

        Programs that call one, by its name, come first from then on, unless many do. Of one that no program calls,
        these are programs that call another function of its file.
        """
        left = [(_number(self._of[id(case)][1]), case) for case in cases]
        few = {
            name: numbers if len(numbers) * COMMON <= len(self) else set() for name, numbers in self._callers.items()
        }
        near: dict[str, set[int]] = {}
        for name, numbers in few.items():
            near.setdefault(_file_of(name), set()).update(numbers)
        while left:
            wanted: dict[int, list[str]] = {}
            for name in changed():
                for number in few.get(name, near.get(_file_of(name), ())):
                    wanted.setdefault(number, []).append(name)
            at = next((at for at, (number, _) in enumerate(left) if number in wanted), 0)
            number, case = left.pop(at)
            self._for[id(case)] = wanted.get(number, [])
            yield case

    def has(self, case: Case) -> bool:
        """Whether this very case is one of those."""
        return id(case) in self._of

    def has_passed(self, case: Case) -> bool:
        """Whether it is one of those, and was right when it was kept."""
        return id(case) in self._passed

    def came_for(self, case: Case) -> list[str]:
        """The changed functions for which it came before others, if it is one of those."""
        return self._for.get(id(case), [])

    def keep(self, case: Case, *, passed: bool = False, called: Collection[str] = ()) -> None:
        """Add a program, unless it is one of these. Raises InputError when it cannot be written.

        ``called``: the functions of the backend that it called, for ``note``.
        """
        if self.folder is None:
            return
        if (found := self._of.get(id(case))) is not None:
            self._called_by(_number(found[1]), called)
            return
        data = (case.replace(tags=(*case.tags, PASSED)) if passed else case).to_bytes()
        name = f"{self._next:06}-{hashlib.sha256(data).hexdigest()[:12]}{SUFFIX}"
        with replace_file(self.folder / name) as file:
            file.write(data)
        self._called_by(self._next, called)
        self._next += 1

    def _called_by(self, number: int, called: Collection[str]) -> None:
        for name in called:
            self._callers.setdefault(name, set()).add(number)

    def functions(self) -> Fingerprints:
        """The functions of the backend as ``note`` wrote them; none where there is no such file, or no readable one, or
        one by another Python, which has other code for all of them."""
        return self._functions

    def _noted(self) -> Mapping[str, object]:
        try:
            data = json.loads((self.folder / FUNCTIONS).read_text()) if self.folder is not None else {}
        except (OSError, ValueError):
            return {}
        same = isinstance(data, dict) and data.get("python") == platform.python_version()
        return data if same else {}

    def note(self, functions: Fingerprints) -> None:
        """Write down the functions of the backend as they are now, and which programs call them.

        Those that are not among them stay as they were. Raises InputError when they cannot be written."""
        if self.folder is None or not functions:
            return
        there = {_number(file) for file in self.folder.glob(f"*{SUFFIX}")}
        callers = {name: sorted(numbers & there) for name, numbers in self._callers.items()}
        data = {
            "python": platform.python_version(),
            "functions": self._functions | functions,
            "callers": {name: numbers for name, numbers in callers.items() if numbers},
        }
        with replace_file(self.folder / FUNCTIONS) as file:
            file.write(json.dumps(data, sort_keys=True).encode())

    def drop(self, case: Case) -> None:
        """Give up one of those that were there; any other is no matter."""
        if (found := self._of.get(id(case))) is not None:
            found[1].unlink(missing_ok=True)


def _number(file: Path) -> int:
    digits = file.name.partition("-")[0]
    return int(digits) if digits.isdecimal() else 0


def _file_of(name: str) -> str:
    return name.partition(":")[0]


def _callers(given: object) -> dict[str, set[int]]:
    """The numbers of the programs that call a function, by its name, as they stand in a file of whoever's."""
    pairs = given.items() if isinstance(given, dict) else ()
    return {name: {n for n in numbers if isinstance(n, int)} for name, numbers in pairs if isinstance(numbers, list)}
