"""The result store: one SQLite file (WAL) that holds runs, verdicts, and the bytes of the cases that failed."""

from torchstone.conformance.store.campaign import Campaign, campaigns, finding_case, record_campaign
from torchstone.conformance.store.opening import DEFAULT_PATH, StoreError, check_store, default_path, now
from torchstone.conformance.store.prune import Pruned, prune, runs_to_prune
from torchstone.conformance.store.schema import SCHEMA_VERSION
from torchstone.conformance.store.store import RUN_COLUMNS, VERDICT_COLUMNS, RunRecord, Store, verdict_of
from torchstone.conformance.store.untrusted import parse_evidence

__all__ = [
    "DEFAULT_PATH",
    "RUN_COLUMNS",
    "SCHEMA_VERSION",
    "VERDICT_COLUMNS",
    "Campaign",
    "Pruned",
    "RunRecord",
    "Store",
    "StoreError",
    "campaigns",
    "check_store",
    "default_path",
    "finding_case",
    "now",
    "parse_evidence",
    "prune",
    "record_campaign",
    "runs_to_prune",
    "verdict_of",
]
