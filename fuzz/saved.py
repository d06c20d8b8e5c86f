"""``campaign.json``: what a campaign did, read again by one that goes on in the same folder.

The file may be somebody else's. Its values are checked, and nothing in it is executed.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchstone.conformance.errors import InputError
from torchstone.conformance.escape import file_name
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call
from torchstone.fuzz.cause import Cause
from torchstone.fuzz.findings import FuzzFinding
from torchstone.reducers.signature import Signature
from torchstone.reducers.write import CASE

if TYPE_CHECKING:
    from pathlib import Path

    from torchstone.fuzz.campaign import CampaignOptions, Tally

CAMPAIGN = "campaign.json"
UNSORTED = "unsorted"
"""The folder of the failures that a campaign ended before it had sorted."""


def settings(plan: CampaignOptions) -> dict[str, Any]:
    """Return what decides which programs a campaign asks, as JSON values."""
    return {
        "backend": plan.backend,
        "seed": plan.seed,
        "max_ops": plan.max_ops,
        "special_values": plan.specials,
        "pool": [rule.op for rule in plan.pool],
        "must": [rule.op for rule in plan.must],
    }


def record(plan: CampaignOptions, tally: Tally, *, finished: bool) -> dict[str, Any]:
    """Return what a campaign did, as JSON values."""
    return {
        **settings(plan),
        "finished": finished,
        "interrupted": tally.interrupted,
        "seconds": round(tally.seconds, 3),
        "drawn": tally.drawn,
        "pending": sorted(tally.pending),
        "programs": tally.tried,
        "left_out": tally.left_out,
        "unsorted": [case.id for case in tally.unsorted],
        "outcomes": dict(tally.outcomes),
        "drafts": vars(tally.drafts),
        **tally.reached.to_json(),
        "dtypes": dict(tally.dtypes.most_common()),
        "findings": [finding.to_json() for finding in tally.findings.ranked()],
    }


def save(plan: CampaignOptions, tally: Tally, *, finished: bool) -> None:
    """Write the campaign's file, whole or not at all."""
    path = plan.out / CAMPAIGN
    fresh = path.with_suffix(".part")
    fresh.write_text(json.dumps(record(plan, tally, finished=finished), indent=2) + "\n", encoding="utf-8")
    os.replace(fresh, path)


def resume(plan: CampaignOptions, tally: Tally) -> bool:
    """Fill a tally with what a campaign of the same settings did in ``plan.out`` before it was stopped, if one was.

    Which ops it had reached, and which programs were right, is not kept. Raises InputError for a file of another form.
    """
    path = plan.out / CAMPAIGN
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    wanted = settings(plan)
    if not isinstance(record, dict) or {key: record.get(key) for key in wanted} != wanted or record.get("finished"):
        return False
    try:
        tally.earlier, tally.drawn = float(record["seconds"]), int(record["drawn"])
        tally.pending = [int(index) for index in record["pending"]]
        tally.tried, tally.left_out = int(record["programs"]), int(record["left_out"])
        tally.outcomes = Counter({Outcome(name).value: int(count) for name, count in record["outcomes"].items()})
        tally.reached.ops = Counter({str(name): int(count) for name, count in record["ops"].items()})
        tally.dtypes = Counter({str(name): int(count) for name, count in record["dtypes"].items()})
        for told in record["findings"]:
            tally.findings.restore(_finding(told, plan.out, plan.backend))
        tally.unsorted = [Case.load(file) for file in sorted((plan.out / UNSORTED).glob("*.safetensors"))]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is no campaign's: {error!r}; remove it, or choose another --out") from error
    return True


def keep_unsorted(plan: CampaignOptions, cases: Sequence[Case]) -> None:
    """Write failures that a campaign has not sorted, each into a file."""
    for case in cases:
        path = _unsorted(plan, case)
        path.parent.mkdir(parents=True, exist_ok=True)
        case.save(path)


def forget_unsorted(plan: CampaignOptions, case: Case) -> None:
    """Remove the file of a failure that has been sorted since."""
    _unsorted(plan, case).unlink(missing_ok=True)


def _unsorted(plan: CampaignOptions, case: Case) -> Path:
    return plan.out / UNSORTED / f"{file_name(case.id)}.safetensors"


def known_findings(folder: Path, backend: str) -> list[FuzzFinding]:
    """Return what an earlier campaign on the backend found, from its folder. Raises InputError for another folder."""
    path = folder / CAMPAIGN
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["backend"] != backend:
            return []
        found = [_finding(told, folder, backend) for told in record["findings"]]
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{folder} is no folder of a campaign: {path.name}: {error!r}") from error
    for finding in found:
        finding.known = True
    return found


def _finding(told: dict[str, Any], out: Path, backend: str) -> FuzzFinding:
    folder = out / file_name(str(told["name"]))
    case = Case.load(folder / CASE)
    signature = Signature(**{key: str(told["signature_parts"][key]) for key in Signature.__dataclass_fields__})
    verdict = Verdict(
        case.id, backend, case.source, case.op, case.dtype, case.variant, Stage(signature.stage),
        Outcome(signature.outcome), signature.kind, str(told["message"]),
    )  # fmt: skip
    found = FuzzFinding(
        signature, case, verdict, seen=[str(name) for name in told["cases"]], folder=folder, record=told
    )
    if told.get("cause") is not None:
        ops, essential = (map(str, told["cause_parts"][key]) for key in ("ops", "traits"))
        found.cause = Cause(frozenset(Call(op, (), {}, "").operator for op in ops), frozenset(essential))
        found.asked, found.failed = int(told["asked"]), int(told["failed"])
        found.left_out = int(told["left_out"])
    found.relatives = set(map(str, told.get("relatives", ())))
    return found
