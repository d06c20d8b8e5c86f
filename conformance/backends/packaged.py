"""What backends that are Python packages have in common: whether they are installed, which versions, a first call."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from torchstone.conformance.backends.protocol import Availability

if TYPE_CHECKING:
    from torch import Tensor


class Packaged(ABC):
    """The part of a backend that follows from the packages it is made of. A subclass has ``compile``, too."""

    name: str = ""
    packages: tuple[tuple[str, str], ...] = ()
    """What is installed, as pip calls it, and the module that is looked for."""
    install: str = ""
    """What installs it, if not the extra of the backend's name."""

    def available(self) -> Availability:
        missing = [package for package, module in self.packages if not _found(module)]
        if not missing:
            return Availability(True)
        are = "is" if len(missing) == 1 else "are"
        install = self.install or f"pip install 'torchstone[{self.name.partition('+')[0]}]'"
        return Availability(False, f"{', '.join(missing)} {are} not installed", install)

    def versions(self) -> dict[str, str]:
        return {package: version(package) for package in ("torch", *(package for package, _ in self.packages))}

    def warm_up(self) -> None:
        """Pay for imports, plugins that start, the first compilation and the first call before the first case."""
        import torch

        x = torch.ones(2)
        self.compile(lambda x: x + 1, (x,))(x)

    @abstractmethod
    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        """As the protocol has it."""


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the package that it is in
        return False
