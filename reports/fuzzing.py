"""The section on fuzzing: what each campaign tried, and what it found, by the ops that are to blame."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from torchstone.conformance.escape import file_name
from torchstone.conformance.store import Campaign
from torchstone.reports.outcomes import in_order

ANY_OP = "any op"


def campaign_rows(campaigns: Iterable[Campaign]) -> list[dict[str, Any]]:
    """Return each campaign as JSON data.

    ``ops`` counts, for each op that was reached, the calls of it; ``valid`` is the share of what was drawn that was
    valid, null where nobody counted. A finding has a list of the operators that it blames; where none is named, any op
    shows it.
    """
    return [_row(campaign) for campaign in campaigns]


def _row(campaign: Campaign) -> dict[str, Any]:
    told = campaign.record
    drawn = told["drafts"].get("programs", 0)
    return {
        "backend": campaign.backend,
        "seed": told["seed"],
        "folder": campaign.folder,
        "command": campaign.command,
        "updated": campaign.updated,
        "state": "finished" if told["finished"] else "interrupted" if told["interrupted"] else "not finished",
        "programs": told["programs"],
        "seconds": round(float(told["seconds"]), 1),
        "valid": round(told["drafts"].get("programs_kept", 0) / drawn, 4) if drawn else None,
        "outcomes": in_order(told["outcomes"]),
        "ops": dict(sorted(told["ops"].items())),
        "findings": [_finding(campaign.folder, finding) for finding in told["findings"]],
    }


def _finding(folder: str, told: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": told["name"],
        "blames": told["blames"],
        "signature": told["signature"],
        "message": told["message"],
        "cause": told.get("cause", ""),
        "programs": told["seen"],
        "link": _link(folder, told["name"]),
    }


def _link(folder: str, name: str) -> str:
    """The address of a finding's folder, empty where the store does not tell a whole path."""
    path = PurePath(folder, file_name(name))
    return path.as_uri() if path.is_absolute() else ""


def by_op(row: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the findings of a campaign under each op that they blame, by name; those of any op come last."""
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in row["findings"]:
        for op in finding["blames"] or [ANY_OP]:
            found.setdefault(op, []).append(finding)
    return sorted(found.items(), key=lambda item: (item[0] == ANY_OP, item[0]))
