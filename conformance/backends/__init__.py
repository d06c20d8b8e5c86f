"""Backends under test: the protocol, the registry, and the adapters that ship with torchstone."""

from torchstone.conformance.backends.protocol import (
    Availability,
    Backend,
    BackendError,
    BackendGuardError,
    BackendUnsupported,
)
from torchstone.conformance.backends.registry import backend_names, check_backend_name, load

__all__ = [
    "Availability",
    "Backend",
    "BackendError",
    "BackendGuardError",
    "BackendUnsupported",
    "backend_names",
    "check_backend_name",
    "load",
]
