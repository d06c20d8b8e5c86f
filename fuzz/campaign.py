"""A fuzzing campaign: programs from a seeded stream, tried until the time is up, failures triaged as they come."""

from __future__ import annotations

import contextlib
import itertools
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torchstone.conformance.backends.protocol import Backend
from torchstone.conformance.backends.registry import load
from torchstone.conformance.errors import InputError
from torchstone.conformance.escape import shell_command
from torchstone.conformance.execution.line_tracer import functions_of_files
from torchstone.conformance.execution.verdict import CORRECT, Outcome, Verdict
from torchstone.conformance.files import prepare_folder
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call
from torchstone.conformance.runner.pool import Pool
from torchstone.fuzz.bundles import Bundler, Told, told_apart
from torchstone.fuzz.changes import Focus
from torchstone.fuzz.corpus import Corpus
from torchstone.fuzz.desk import Desk
from torchstone.fuzz.findings import Findings
from torchstone.fuzz.generator.catalog import all_rules
from torchstone.fuzz.generator.choices import SeededChoices
from torchstone.fuzz.generator.generate import Drafts, NothingGenerated
from torchstone.fuzz.generator.rules import OpRule
from torchstone.fuzz.generator.variants import JUDGING_COSTS, nth_case
from torchstone.fuzz.guidance import Guidance
from torchstone.fuzz.saved import UNSORTED, forget_unsorted, keep_unsorted, save
from torchstone.fuzz.triage import GRACE, NOT_REDUCED, Triage, refused_now
from torchstone.fuzz.vocabulary import Vocabulary
from torchstone.reducers.write import CASE, SCRIPT

SAVE_SECONDS = 5.0
"""How often what was done is written down: that much of it may be done again after a sudden end."""

LEAST_REDUCTION = 10.0
"""Seconds that the reduction of a finding has in any campaign."""

REMEMBERED = 64
"""Programs that did not fail, kept to be tried with what a finding has."""

MOST_FAILURES = 8
"""Failures that may wait to be sorted before no more programs are tried."""

SLOW = 20
"""A program that takes as long as so many do on average is not kept in the corpus: in its time they run more lines."""

JUDGING = 10.0
"""Seconds until a program is to be judged where each is asked by itself: else it is left, for hundreds of others."""

TRACED = 5
"""Of so many programs that are drawn, one is traced, as all of the corpus are: it takes as long as two others.

It has no divisor in common with ``later_calls.TURNS``: else those that are traced would all make the same later calls.
"""

SCRIPT_SECONDS = 0.1
"""How often to look whether a script has ended, once nothing else is left to do."""


@dataclass(frozen=True)
class CampaignOptions:
    """What a campaign does.

    ``pool``: ops to build programs of, all if empty; ``must``: ops of which every program calls one; ``programs``: how
    many at most; ``python``: the interpreter of the backend, this one if None; ``reduce_seconds`` bounds the reduction
    of one finding, as does a tenth of ``seconds``: the others are to be found, too. The stream of programs depends on
    ``seed``, ``pool``, ``must``, ``max_ops``, ``specials`` (nan, inf and -0 in the inputs) and the backend's ``costs``
    alone, but for causes that are known by then and left out; if it is ``guided``, on what earlier programs had and
    what became of them, too, and it begins with the programs of the folder ``corpus``, if neither ``pool`` nor
    ``programs`` limits what is asked, and keeps new ones there.
    """

    backend: str
    seconds: float
    seed: int
    out: Path
    pool: tuple[OpRule, ...] = ()
    must: tuple[OpRule, ...] = ()
    max_ops: int = 5
    jobs: int = 1
    timeout: float = 60.0
    programs: int | None = None
    reduce_seconds: float = 60.0
    specials: bool = False
    python: str | None = None
    guided: bool = True
    corpus: Path | None = None

    @property
    def seconds_of_one(self) -> float:
        """How long one finding may be reduced."""
        return min(self.reduce_seconds, max(self.seconds / 10, LEAST_REDUCTION))


@dataclass
class Tally:
    """What a campaign did so far. ``outcomes`` counts programs by verdict, ``left_out`` those not asked at all.

    ``spent`` are the seconds that workers took for the programs that were tried. ``drawn`` is the number of the first
    program that was not made, ``pending`` are those that are not done with; ``earlier`` the seconds before the campaign
    was stopped and gone on with; ``right`` are the last programs that did not fail; ``unsorted`` are failures that it
    ended before, ``unreadable`` files of the corpus that are no cases;
    ``trying`` and ``reducing`` say what is being done.
    """

    started: float = field(default_factory=time.monotonic)
    earlier: float = 0.0
    drawn: int = 0
    tried: int = 0
    spent: float = 0.0
    left_out: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    reached: Vocabulary = field(default_factory=Vocabulary)
    drafts: Drafts = field(default_factory=Drafts)
    guidance: Guidance = field(default_factory=Guidance)
    dtypes: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)
    right: deque[Case] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    pending: list[int] = field(default_factory=list)
    unsorted: list[Case] = field(default_factory=list)
    unreadable: list[Path] = field(default_factory=list)
    trying: str = ""
    reducing: str = ""
    interrupted: bool = False

    def recount(self, first: Verdict, verdict: Verdict) -> None:
        """Count a program by another verdict than its first."""
        self.outcomes += Counter({str(verdict.outcome): 1})
        self.outcomes -= Counter({str(first.outcome): 1})

    @property
    def seconds(self) -> float:
        return self.earlier + time.monotonic() - self.started

    @property
    def rate(self) -> float:
        """Programs a second."""
        return self.tried / max(self.seconds, 1e-9)


def run_campaign(
    plan: CampaignOptions,
    progress: Callable[[Tally], None] = lambda tally: None,
    tally: Tally | None = None,
    keep: Callable[[Tally, bool], None] = lambda tally, finished: None,
) -> Tally:
    """Run a campaign, or go on with one: ``tally`` has what it did. Ctrl-C ends it early.

    When the time is up no program is drawn any more, and soon after that what is still being done is left as it is:
    a reduction at the simplest case so far, failures that wait in files of their own.

    A folder per finding is written to ``plan.out`` as it is found, and ``campaign.json`` every few seconds; ``keep`` is
    then called with whether the campaign has finished. Raises InputError when the folder cannot be written,
    HarnessError when the backend's workers cannot start.
    """
    prepare_folder(plan.out)
    tally = Tally() if tally is None else tally
    campaign: _Campaign | None = None

    def tick() -> None:
        progress(tally)
        if campaign is not None:
            campaign.triage.tick()
            if tally.seconds >= plan.seconds + GRACE:
                raise _TimeIsUp

    corpus = Corpus(plan.corpus if plan.guided else None)
    watch = tally.guidance.watch if plan.guided else None
    limits = {"timeout": plan.timeout, "judging": plan.timeout}
    if hasattr(_backend(plan.backend), "compile_many"):
        limits["judging"] = min(JUDGING, plan.timeout)
    known = corpus.functions()
    tally.guidance.changes.known = known
    if plan.guided and plan.python is None and (sources := getattr(_backend(plan.backend), "sources", None)):
        tally.guidance.changes.meet(functions_of_files(str(sources)))
    pooled = Pool(plan.backend, python=plan.python, jobs=plan.jobs, tick=tick, watch=watch, known=known, **limits)
    with pooled as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eager's, of what is drawn and reduced
        pool.start()
        all_rules()  # takes seconds, as loading the workers does
        campaign = _Campaign(plan, tally, pool, corpus)
        try:
            for _ in campaign.desk.serve(campaign.ask):
                if campaign.is_to_be_saved():
                    save(plan, tally, finished=False)
                    keep(tally, False)
                progress(tally)
                if tally.seconds >= plan.seconds + GRACE:
                    break
            while campaign.triage.tick() and tally.seconds < plan.seconds + GRACE:
                progress(tally)
                time.sleep(SCRIPT_SECONDS)
        except _TimeIsUp:
            pass
        except KeyboardInterrupt:
            tally.interrupted = True
        finally:
            campaign.leave()
    if not tally.interrupted:
        corpus.note(tally.guidance.changes.functions)
    finished = not (tally.interrupted or tally.unsorted)
    save(plan, tally, finished=finished)
    keep(tally, finished)
    return tally


class _TimeIsUp(Exception):
    """The campaign is over, whatever is being done."""


def finish_scripts(triage: Triage, tally: Tally, progress: Callable[[Tally], None]) -> None:
    """Wait for the scripts that are still to be confirmed."""
    while triage.tick():
        progress(tally)
        time.sleep(SCRIPT_SECONDS)


class _Campaign:
    """The programs of a campaign on their way: drawn, asked as one with others, told apart, sorted if they failed."""

    def __init__(self, plan: CampaignOptions, tally: Tally, pool: Pool, corpus: Corpus) -> None:
        self.plan, self.tally = plan, tally
        self._backend = _backend(plan.backend)
        self._compiles_many = hasattr(self._backend, "compile_many")
        self.desk = Desk(pool)
        self._quick = self._compiles_many  # where each is asked by itself, it is judging that takes the time
        self.triage = Triage(plan, tally, self.desk, together=True, quick=self._quick)
        self._bundler = Bundler(plan.timeout)
        self._ready: deque[list[Case]] = deque()
        self._asked = 0  # bundles that have not all their verdicts
        self._saved = tally.seconds
        self._again = deque(tally.unsorted)  # failures of before
        tally.unsorted = []
        self._corpus = corpus
        tally.unreadable = self._corpus.unreadable
        self._programs = self._in_turn()

    def ask(self) -> bool:
        """Ask one more bundle. Where failures wait, a worker is left to them; where many do, all are."""
        if self.triage and (self._asked >= self.desk.jobs - 1 or len(self.triage) >= MOST_FAILURES):
            return False
        if self._again and not self._out_of_time():
            self._ask_again(self._again.popleft())
            return True
        while not self._ready:
            if self._out_of_time():
                return False
            case = None if self._is_last_call() else next(self._programs, None)
            self._ready += self._bundler.rest() if case is None else self._groups(case)
            if case is None and not self._ready:
                return False
        group = self._ready.popleft()

        def told(found: Told) -> None:
            self._asked -= 1
            self._bundler.learn(group, found)
            for case, verdict in zip(group, found.verdicts, strict=True):
                self._take(case, verdict)

        self._asked += 1
        first = f"{group[0].id}: {group[0].op}"
        self.tally.trying = first if len(group) == 1 else f"{first} and {len(group) - 1} more as one"
        self.desk.drive(told_apart(group, quick=self._quick), told, traced=self._is_traced(group[0]))
        return True

    def _is_traced(self, case: Case) -> bool:
        """Whether a program is traced, if the backend is one that can be."""
        return self._corpus.has(case) or case.index % TRACED == 0 or not hasattr(self._backend, "sources")

    def _groups(self, case: Case) -> Iterator[list[Case]]:
        """What is to be asked as one now. A backend that compiles many at once is given each by itself."""
        return iter([[case]]) if self._compiles_many else self._bundler.add(case)

    def _ask_again(self, case: Case) -> None:
        """Ask a program that failed and was counted, and have its failure sorted now."""

        def told(found: Told) -> None:
            self._asked -= 1
            (verdict,) = found.verdicts
            if verdict.failed:
                self.triage.add(case, verdict, lambda: forget_unsorted(self.plan, case))
            else:
                forget_unsorted(self.plan, case)

        self._asked += 1
        self.desk.drive(told_apart([case], quick=self._quick), told)

    def leave(self) -> None:
        """End what is still being done; failures that have not been sorted are kept for a campaign that goes on."""
        left = [*self.triage.leave(), *self._again]
        self.triage.close()
        keep_unsorted(self.plan, left)
        kept = {case.index for case in left}
        self.tally.pending = [index for index in self.tally.pending if index not in kept]
        self.tally.unsorted = left

    def _in_turn(self) -> Iterator[Case]:
        """The programs: those that were kept, and then those that are drawn; what is drawn for a change, in between."""
        plan, tally = self.plan, self.tally
        asked_for, costs = _operators(plan), getattr(self._backend, "costs", JUDGING_COSTS)
        kept, asked = self._kept(), 0
        for index in self._numbers():
            focus = self._focus(index, asked)
            while focus is None and (case := next(kept, None)) is not None:
                yield case
                asked += 1
                focus = self._focus(index, asked)
            case = tally.findings.spared(self._drawn(index, focus, costs), asked_for)
            if index >= tally.drawn:
                tally.drawn = index + 1
                tally.pending.append(index)
            if case is not None:
                yield case
            else:
                tally.left_out += 1
                tally.pending.remove(index)
        yield from kept

    def _numbers(self) -> Iterator[int]:
        """The numbers of programs that have no verdict yet."""
        for index in itertools.chain(sorted(self.tally.pending), itertools.count(self.tally.drawn)):
            if self.plan.programs is not None and index >= self.plan.programs:
                return
            yield index

    def _focus(self, index: int, asked: int) -> Focus | None:
        """What has changed in the backend that a program is drawn for, if it is for anything."""
        if not self.plan.guided or self.plan.must:
            return None
        choices = SeededChoices(f"{self.plan.seed}:{index}:{asked}:changed")
        return self.tally.guidance.changes.focus(choices, self.plan.pool)

    def _drawn(self, index: int, focus: Focus | None, costs: Mapping[str, int]) -> Case:
        """The program of a number."""
        plan, tally = self.plan, self.tally
        rest = plan.specials, tally.drafts, tally.guidance if plan.guided else None, costs
        if focus is not None:
            with contextlib.suppress(NothingGenerated):
                own = plan.pool, plan.max_ops, focus.rules
                case = nth_case(plan.seed, index, *own, *rest, focus.variant, focus.dtype)
                tally.guidance.changes.draw(case)
                return case
        return nth_case(plan.seed, index, plan.pool, plan.max_ops, plan.must, *rest)

    def _kept(self) -> Iterator[Case]:
        """The programs of the corpus that may be asked, in half of the time at most; once in a campaign."""
        plan, tally = self.plan, self.tally
        if plan.programs is not None or plan.pool or tally.tried:
            return
        asked_for, changes = _operators(plan), tally.guidance.changes

        def may_be(case: Case) -> bool:
            return not asked_for or any(call.operator in asked_for for call in case.program.every_call)

        cases = self._corpus.cases(may_be)
        changes.expect(cases)
        for kept in self._corpus.in_turn(cases, changes.unlike_known):
            if tally.seconds >= plan.seconds / 2:
                return
            if tally.findings.spared(kept, asked_for) is kept:
                if names := self._corpus.came_for(kept):
                    changes.draw(kept)
                    changes.watch(kept, names)
                yield kept

    def _is_last_call(self) -> bool:
        """Whether what still waits for company takes all of the time that is left."""
        return self._bundler.seconds() >= (self.plan.seconds - self.tally.seconds) * self.desk.jobs

    def _out_of_time(self) -> bool:
        return self.tally.seconds >= self.plan.seconds

    def _take(self, case: Case, verdict: Verdict) -> None:
        """Count a program, and have its failure sorted."""
        tally = self.tally
        count(tally, case, verdict)
        news, called = tally.guidance.ran_new_lines(case), tally.guidance.called(case)
        tally.guidance.learn(case, verdict, traced=self._is_traced(case))
        tally.findings.note(case, verdict)
        if verdict.outcome is Outcome.UNSUPPORTED and self._corpus.has_passed(case):
            self.triage.add(case, refused_now(verdict), lambda: self._done(case))
            return
        if verdict.failed:
            self.triage.add(case, verdict, lambda: self._done(case))
            return
        is_right = verdict.outcome in CORRECT
        if is_right:
            tally.right.append(case)
        others = tally.spent - verdict.seconds
        if news and verdict.seconds * (tally.tried - 1) <= SLOW * others:
            self._corpus.keep(case, passed=is_right, called=called)
        else:
            self._corpus.drop(case)
        self._forget(case)

    def _done(self, case: Case) -> None:
        self._forget(case)
        self._saved = -SAVE_SECONDS

    def _forget(self, case: Case) -> None:
        """A program is done with. Those of the corpus have numbers of other campaigns."""
        if not self._corpus.has(case):
            self.tally.pending.remove(case.index)

    def is_to_be_saved(self) -> bool:
        """Whether it is time again to write down what was done."""
        due = self.tally.seconds - self._saved > SAVE_SECONDS
        if due:
            self._saved = self.tally.seconds
        return due


def _operators(plan: CampaignOptions) -> set[str]:
    """The ops of which every program has to call one."""
    return {Call(rule.target, (), {}, "").operator for rule in plan.must}


def _backend(name: str) -> Backend | None:
    """The backend, for what it says of itself: None where it is known to another Python alone."""
    try:
        return load(name)
    except InputError:
        return None


def count(tally: Tally, case: Case, verdict: Verdict) -> None:
    """Count a program that was tried."""
    tally.tried += 1
    tally.spent += verdict.seconds
    tally.outcomes[str(verdict.outcome)] += 1
    tally.dtypes[case.dtype] += 1
    tally.reached.add(case)


def not_done(plan: CampaignOptions, tally: Tally) -> Iterator[str]:
    """Say what was left when a campaign ended, and what goes on with it: a line for each."""
    for finding in tally.findings.ranked():
        if finding.folder is None or finding.record or finding.verdict.outcome in NOT_REDUCED:
            continue
        refused = finding.verdict.outcome is Outcome.UNSUPPORTED  # which ``reduce`` takes for no failure
        if not refused and (finding.reduction is None or not finding.reduction.complete):
            words = ["torchstone", "reduce", str(finding.folder / CASE), "--backend", plan.backend, "--out"]
            command = shell_command([*words, str(finding.folder)])
            yield f"not reduced to the end: {finding.name}; this goes on: {command}"
        elif finding.reduction is not None and finding.script is None:
            yield f"not run by itself: {finding.folder / SCRIPT}"
    for file in tally.unreadable:
        yield f"not a case, and left where it is: {file}"
    if tally.unsorted:
        where = plan.out / UNSORTED
        yield f"{len(tally.unsorted)} failures not sorted, in {where}: the same command with a longer --time goes on"
