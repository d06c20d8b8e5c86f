"""The options of ``torchstone run`` that say which cases: read, checked, and written down for the run's record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from torchstone.cli.options import DTYPES, check_known, parse_dtypes
from torchstone.cli.paths import input_folder
from torchstone.cli.workers import check_backend_names, check_consent, check_usable
from torchstone.conformance.errors import InputError
from torchstone.conformance.selection.effort import Effort
from torchstone.conformance.selection.filters import Pattern, Shard, check_patterns, narrowed_by_patterns, sources_of
from torchstone.conformance.sources import FOLDER, SOURCES, check_ops
from torchstone.conformance.sources.names import DATABASES, is_pattern
from torchstone.conformance.variants.registry import VARIANTS

DEFAULT_EFFORT = Effort.standard
"""Of a run whose options say nothing of samples, dtypes, variants or cases."""

BackendsOption = Annotated[
    list[str] | None, typer.Option("--backend", "-b", help="Backend to try; repeatable. Names or module:attribute.")
]
SourcesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        help="Where from: opinfo (default), functions, modules, models, errors, programs, corpus, a plugin's; "
        "repeatable.",
    ),
]
CorpusOption = Annotated[
    list[Path] | None, input_folder("--corpus", help="Folder of case files to ask too, or alone; repeatable.")
]
OpsOption = Annotated[
    list[str] | None,
    typer.Option("--op", help="Op or shell pattern, !PATTERN to leave out; repeatable [default: all]."),
]
TagsOption = Annotated[
    list[str] | None,
    typer.Option("--tag", help="Ops with this tag, !TAG without (`torchstone ops --tags`); repeatable."),
]
CasesOption = Annotated[
    list[str] | None,
    typer.Option("--case", help="Case id, its beginning, or a pattern of each field; repeatable."),
]
DtypesOption = Annotated[
    list[str] | None,
    typer.Option("--dtype", help="Dtype, or all; repeatable [default: those of the plan; without one, float32]."),
]
VariantsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        help=f"How a case is asked: {', '.join(VARIANTS.rows)}, a plugin's, or all; repeatable "
        "[default: those of the plan; without one, default].",
    ),
]
EffortOption = Annotated[
    Effort | None,
    typer.Option(
        "--effort",
        help="Ask what a plan chooses for each op: samples, variants and dtypes that differ in as much as they can; "
        f"{', '.join(f'{effort} {effort.budget}' for effort in Effort)} cases of an op at most. --dtype and --variant "
        f"beside it narrow down what it chooses from [default: {DEFAULT_EFFORT}; no plan but every sample with one of "
        "--limit, --dtype, --variant, --case, --corpus, --last-failed, --changed-since].",
    ),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", min=1, help="No plan: the first samples only, per op and dtype.")
]
ShardOption = Annotated[
    str | None, typer.Option("--shard", help="Part I of N of the cases, as I/N: the same parts everywhere.")
]
LastFailedOption = Annotated[
    str | None,
    typer.Option("--last-failed", metavar="RUN", help="What did not pass in this run (or latest), per backend."),
]
ChangedSinceOption = Annotated[
    str | None,
    typer.Option("--changed-since", metavar="RUN", help="What has another outcome since this run, or is new."),
]


PLANNED_SOURCES = ["opinfo", "errors", "programs", "functions", "modules"]
"""The sources of a plan: what ops have to compute, what they have to refuse, what two have to compute together; and
functions that the op database lacks, and modules.

Without a plan, the first of them.
"""


def run_options(
    *,
    backend: Sequence[str] | None,
    source: Sequence[str] | None,
    corpus: Sequence[Path] | None,
    op: list[str] | None,
    dtype: Sequence[str] | None,
    variant: Sequence[str] | None,
    limit: int | None,
    effort: Effort | None,
    tag: list[str] | None,
    case: list[str] | None,
    shard: str | None,
    last_failed: str | None,
    changed_since: str | None,
    store: Path | None,
) -> dict[str, Any]:
    """Return the options of a run, defaults filled in: ids say themselves of which source and dtype they are.

    Raises InputError.
    """
    if effort is not None and limit is not None:
        raise InputError("give either --effort or --limit: a plan chooses the samples itself")
    if last_failed is not None and changed_since is not None:
        raise InputError("give either --last-failed or --changed-since")
    folders = [f"{FOLDER}{folder.absolute()}" for folder in corpus or ()]
    sources = [*(source or ()), *folders]
    of_corpora = bool(sources) and all(name.partition("=")[0] == "corpus" for name in sources)
    if not (effort or limit or dtype or variant or case or last_failed or changed_since or of_corpora):
        effort = DEFAULT_EFFORT
    variants = list(variant or ())
    options: dict[str, Any] = {
        "backends": list(dict.fromkeys(backend or ())),
        "ops": op, "limit": limit, "tags": tag, "cases": case, "shard": shard,
    }  # fmt: skip
    dtypes = parse_dtypes(dtype) if dtype else None
    if case:
        sources = sources or sources_of(map(Pattern.parse, case))
    if shard is not None:
        Shard.parse(shard)
    rule = "last-failed" if last_failed is not None else "changed-since"
    if last_failed is not None or changed_since is not None:
        from torchstone.conformance.selection.earlier_runs import EarlierRuns
        from torchstone.conformance.store import Store

        with Store(store, readonly=True) as db:
            earlier = EarlierRuns.since(rule, db, last_failed or changed_since or "", backend)
            ids = earlier.ids(db)
            meant = {name.split(":")[0] for names in ids.values() for name in names}
            before = [name for record in db.run_list() for name in record.options.get("sources", ())]
        options["earlier"] = earlier._asdict()
        options["backends"] = [name for name in earlier.runs if ids[name]] or list(earlier.runs)
        sources = sources or [name for name in before if name.partition("=")[0] in meant]
        variants = variants or sorted({[*name.split(":"), "default"][4] for names in ids.values() for name in names})
        if not backend:
            check_consent({"backends": options["backends"]}, (), {}, f"run {', '.join(set(earlier.runs.values()))}")
    named = case or options.get("earlier") or of_corpora
    if effort is not None:
        options |= {"effort": str(effort), "budget": effort.budget}
    every = named or effort is not None
    options["sources"] = list(dict.fromkeys(sources or PLANNED_SOURCES[: None if effort is not None else 1]))
    options["dtypes"] = dtypes if dtype or every else ["float32"]
    options["variants"] = list(dict.fromkeys(variants or ["all" if effort is not None else "default"]))
    return options


def check_options(options: dict[str, Any]) -> dict[str, str]:
    """Raise InputError for whatever cannot be run, the cheap checks first; return the versions to record."""
    check_names(options)
    return check_usable(options["backends"], options.get("pythons", {}))


def check_names(options: dict[str, Any]) -> None:
    """Raise InputError for a name that nothing has, as far as that is known without loading PyTorch."""
    sources = options["sources"]
    check_known("source", [name for name in sources if not name.startswith(FOLDER)], SOURCES)
    check_known("variant", options.get("variants") or [], [*VARIANTS, "all"])
    check_backend_names([name for name in options["backends"] if name not in options.get("pythons", {})])
    ops = check_ops(sources, options.get("ops"))
    patterns = [Pattern.parse(text) for text in options.get("cases") or []]
    check_patterns(patterns, sources)
    if patterns and ops is not None:
        narrowed_by_patterns(ops, patterns)
    if set(sources) <= set(DATABASES):
        check_known("dtype", [pattern.dtype for pattern in patterns if not is_pattern(pattern.dtype)], DTYPES)
