"""``torchstone backends``: which backends can be tested here."""

from __future__ import annotations

from torchstone.cli.output import FormatOption, TableFormat, show_table

COLUMNS = ("backend", "available", "versions", "reason", "install")


def backends(form: FormatOption = TableFormat.table) -> None:
    """List the registered backends."""
    show_table(availability_rows(), COLUMNS, form)


def availability_rows() -> list[dict[str, object]]:
    """One row a backend; one that cannot even be loaded is listed with the reason."""
    from torchstone.conformance.backends import backend_names
    from torchstone.conformance.errors import InputError
    from torchstone.conformance.runner.preflight import preflight

    found: list[dict[str, object]] = []
    for name in backend_names():
        try:
            state = preflight(name)
            if "died" in state:
                state = {"ok": False, "versions": {}, "reason": f"{state['died']}, as it was loaded", "install": ""}
            found.append(_row(name, state["ok"], state["versions"], state["reason"], state["install"]))
        except InputError as error:
            found.append(_row(name, False, {}, str(error), ""))
    return found


def _row(*values: object) -> dict[str, object]:
    return dict(zip(COLUMNS, values, strict=True))
