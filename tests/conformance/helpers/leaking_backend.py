"""A backend whose state leaks: once ``exp`` and ``tan`` were compiled in its process, ``sin`` is wrong, or aborts."""

from __future__ import annotations

import os
from typing import Any

from torchstone.conformance.backends.protocol import Availability

_compiled: set[str] = set()


class Leaking:
    name = "leaking"

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {}

    def compile(self, fn: Any, args: Any) -> Any:
        op = fn.calls[0].operator
        _compiled.add(op)
        if op == "sin" and {"exp", "tan"} <= _compiled:
            return self.broken
        return fn

    def broken(self, *tensors: Any) -> Any:
        return tensors[0].clone()


class Aborting(Leaking):
    name = "aborting"

    def broken(self, *tensors: Any) -> Any:
        os.abort()
