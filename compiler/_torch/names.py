"""The register of private names: where each one is in PyTorch, and what it is used for."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class MissingName(ImportError):
    """The installed PyTorch lacks a private name. ``line`` names it and says what it is used for."""

    def __init__(self, name: PrivateName) -> None:
        import torch

        self.line = f"{name.path}, used to {name.purpose}"
        super().__init__(f"PyTorch {torch.__version__} lacks {self.line}")


@dataclass(frozen=True)
class PrivateName:
    """``path`` is where a name is: ``torch._C._swap_tensor_impl``, ``torch.nn.Module()._buffers`` on an instance.

    ``purpose`` completes "used to …".
    """

    path: str
    purpose: str

    def find(self) -> Any:
        """Return what PyTorch has there. MissingName where it has nothing."""
        first, *rest = self.path.split(".")
        found: Any = importlib.import_module(first)
        for part in rest:
            name = part.removesuffix("()")
            try:
                found = getattr(found, name)
            except AttributeError:
                found = self._submodule(found, name)
            found = found() if part != name else found
        return found

    def _submodule(self, parent: Any, name: str) -> Any:
        if not isinstance(parent, ModuleType):
            raise MissingName(self)
        path = f"{parent.__name__}.{name}"
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is not None and not path.startswith(error.name):  # a package that PyTorch needs for it
                raise
            raise MissingName(self) from None


_REGISTER: dict[str, PrivateName] = {}


def registered() -> Iterable[PrivateName]:
    """Return the names of the modules that have been imported."""
    return _REGISTER.values()


def _register(path: str, purpose: str) -> PrivateName:
    return _REGISTER.setdefault(path, PrivateName(path, purpose))


class Names:
    """The names that a module hands on as they are, by the name that they have there.

    The module's ``__getattr__`` is ``look_up``. Each row is (path, purpose).
    """

    def __init__(self, module: str, rows: dict[str, tuple[str, str]]) -> None:
        self._module = module
        self.rows = {ours: _register(*row) for ours, row in rows.items()}

    def look_up(self, name: str) -> Any:
        """Find a name once, and leave it in the module. MissingName, an ImportError, where PyTorch lacks it."""
        known = self.rows.get(name)
        if known is None:
            raise AttributeError(f"module {self._module!r} has no attribute {name!r}")
        found = known.find()
        setattr(sys.modules[self._module], name, found)
        return found


def uses(*paths: str) -> Callable[[F], F]:
    """Register the private names that a wrapper uses itself; its docstring, an imperative, says what for."""

    def registering(wrapper: F) -> F:
        summary = (inspect.getdoc(wrapper) or "").partition("\n")[0].rstrip(".")
        if not summary:
            raise ValueError(f"{wrapper.__name__} uses private names and does not say what for")
        for path in paths:
            _register(path, summary[0].lower() + summary[1:])
        return wrapper

    return registering


def attributes(owner: str, names: Iterable[str], purpose: str) -> frozenset[str]:
    """Register attributes of ``owner`` that are used by name, and return their names."""
    names = frozenset(names)
    for name in sorted(names):
        _register(f"{owner}.{name}", purpose)
    return names
