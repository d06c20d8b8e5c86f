"""``torchstone backends``: what can be put on trial here."""

from __future__ import annotations

from torchstone.cli.tables import Format, FormatOption, show

COLUMNS = ("backend", "available", "versions", "reason", "install")


def backends(form: FormatOption = Format.table) -> None:
    """List the registered backends."""
    show(rows(), COLUMNS, form)


def rows() -> list[dict[str, object]]:
    """One row a backend; one that cannot even be loaded is listed with the reason."""
    from torchstone.conformance.backends import load, names
    from torchstone.conformance.errors import InputError

    found: list[dict[str, object]] = []
    for name in names():
        try:
            backend = load(name)
            state = backend.available()
            versions = dict(backend.versions()) if state.ok else {}
            found.append(_row(name, state.ok, versions, state.reason, state.install))
        except InputError as error:
            found.append(_row(name, False, {}, str(error), ""))
    return found


def _row(*values: object) -> dict[str, object]:
    return dict(zip(COLUMNS, values, strict=True))
