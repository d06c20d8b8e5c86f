"""Every private name of PyTorch that torchstone uses, one module per subject.

PyTorch changes such names without notice, so they stand here and nowhere else; tests/test_private_names.py holds that.
A name is looked up when it is first used. So a name that some PyTorch lacks costs only what needs it, and a module of
this package imports in any PyTorch. To use one more name, add a row to the table of its subject, or a wrapper with
``@uses``, and say what it is for.

``missing()`` names all that this PyTorch lacks.
"""

from __future__ import annotations

import importlib
import pkgutil

from torchstone.compiler._torch.names import MissingName, PrivateName, registered


def every_name() -> list[PrivateName]:
    """Return every private name that torchstone uses, sorted by its path."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return sorted(registered(), key=lambda name: name.path)


def missing() -> list[str]:
    """Return a line for each name that the installed PyTorch lacks: where it should be, and what it is used for.

    Names that need another package, which is not installed, are left out.
    """
    lines = []
    for name in every_name():
        try:
            name.find()
        except MissingName as error:
            lines.append(error.line)
        except ImportError:
            continue
    return lines
