"""A case asked in a variant. What a case cannot be asked is ``Untested``, with why."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from torchstone.conformance.execution.undefined_behavior import undefined_behavior
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.sources.sampling import first_line, seeded
from torchstone.conformance.variants.attempts import attempts
from torchstone.conformance.variants.protocol import NotApplicable
from torchstone.conformance.variants.registry import DEFAULT, RUN_BY_PLUGIN, VARIANTS


def apply(case: Case, name: str) -> Case | Untested:
    """The case in a variant, or why there is none: nothing to change, or eager does not take what comes of it.

    Raises ``UnknownName``, and ``InputError`` for a plugin that cannot be loaded.
    """
    if name == DEFAULT:
        return case
    variant = VARIANTS.load(name)
    asked = f"{case.id}:{name}"
    if asked in attempts.fatal:
        return Untested(case.source, case.op, case.dtype, attempts.fatal[asked], case.index, name)
    attempts.begin(asked)
    try:
        with seeded(asked):
            made = variant.make(case)  # perhaps of several samples: it has the id of the one that was asked for
            changed = made.replace(source=case.source, op=case.op, dtype=case.dtype, index=case.index, variant=name)
            if variant.run is not None and name not in VARIANTS.rows:
                changed = changed.replace(tags=(*changed.tags, RUN_BY_PLUGIN))
            if variant.try_eager:
                with torch.no_grad():
                    if refused := undefined_behavior(changed):
                        raise NotApplicable(refused)
                    changed.program(*changed.fresh_args())
            return changed
    except NotApplicable as error:
        reason = str(error)
    except Exception as error:
        reason = f"eager raises {type(error).__name__}: {first_line(error)}"
    finally:
        attempts.begin("")
    return Untested(case.source, case.op, case.dtype, reason, case.index, name)


def expand(
    entries: Iterable[Case | Untested],
    names: Sequence[str],
    keep: Callable[[Case | Untested, str], bool] | None = None,
) -> Iterator[Case | Untested]:
    """Each entry in each of the variants that ``keep`` wants it in; what is no case is passed on once."""
    for entry in entries:
        if isinstance(entry, Untested):
            if keep is None or keep(entry, entry.variant):
                yield entry
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in names:
                if keep is None or keep(entry, name):
                    yield apply(entry, name)
