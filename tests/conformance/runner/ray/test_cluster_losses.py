"""What the cluster does with actors that are lost, on a Ray that is no more than the calls it is asked for."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from torture_cases import torture_case

from torchstone.conformance.errors import HarnessError
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.runner.ray import cluster as module
from torchstone.conformance.runner.ray.cluster import Cluster


class Lost(Exception):
    """As Ray says that an actor has died."""


class Ray(ModuleType):
    """Answers a call when its result is asked for. ``dies(node, ids)`` says whether a call kills its actor."""

    def __init__(self, cpus: int, dies: Callable[[str, list[str]], bool] = lambda node, ids: False) -> None:
        super().__init__("ray")
        self.cpus, self.dies = cpus, dies
        self.exceptions = SimpleNamespace(RayError=Lost, RayTaskError=KeyError)
        self.hired: list[Any] = []
        self.dead: set[Any] = set()
        self.tried: Counter[str] = Counter()

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.cpus}

    available_resources = cluster_resources

    def remote(self, **options: Any) -> Any:
        return lambda target: self.hire if target is module.NodeActor else self.task(target)

    @property
    def hire(self) -> Any:
        actor = SimpleNamespace(name=f"node{len(self.hired)}")
        self.hired.append(actor)
        actor.node = self.call(actor, lambda: actor.name)
        actor.run_cases = self.call(actor, lambda batch: self.run_cases(actor, batch))
        actor.stop = self.call(actor, lambda: self.dead.add(actor.name))
        return SimpleNamespace(remote=lambda *settings: actor)

    def task(self, function: Callable[..., Any]) -> Any:
        return SimpleNamespace(options=lambda **_: self.call(None, function))

    def call(self, actor: Any, function: Callable[..., Any]) -> Any:
        def remote(*args: Any) -> Any:
            return SimpleReference(actor, lambda: function(*args))

        return SimpleNamespace(remote=remote)

    def run_cases(self, actor: Any, batch: Any) -> Any:
        ids = [about["case_id"] for _, about, _ in batch]
        self.tried.update(ids)
        if self.dies(actor.name, ids):
            self.dead.add(actor.name)
            raise Lost("the actor died")
        return [
            (number, Verdict(**about, backend="eager", stage=Stage.COMPARE, outcome=Outcome.PASS).to_json())
            for number, about, _ in batch
        ], ""

    def get(self, reference: Any) -> Any:
        if reference.actor is not None and reference.actor.name in self.dead:
            raise Lost("the actor is dead")
        return reference.answer()

    def wait(self, references: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return references, []

    def kill(self, actor: Any) -> None:
        self.dead.add(actor.name)


class SimpleReference:
    def __init__(self, actor: Any, answer: Callable[[], Any]) -> None:
        self.actor, self.answer = actor, answer


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Callable[[Ray], Cluster]:
    strategies = ModuleType("ray.util.scheduling_strategies")
    strategies.NodeAffinitySchedulingStrategy = lambda node, soft: node  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray.util", ModuleType("ray.util"))
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)
    monkeypatch.setattr(module, "SCALE_SECONDS", 0.0)
    monkeypatch.setattr(module, "describe_node", lambda backend: {"torch": "2.13", "host": "here"})

    def make(ray: Ray, **options: Any) -> Cluster:
        monkeypatch.setitem(sys.modules, "ray", ray)
        return Cluster("eager", **options)

    return make


def cases(count: int) -> Iterator[Any]:
    return (torture_case("obey", index) for index in range(count))


def run(cluster: Cluster, count: int = 100) -> dict[str, str]:
    with cluster:
        results = [(result.case.id, result.verdict) for result in cluster.results(cases(count))]
    assert all(verdict.case_id == name for name, verdict in results)
    assert len(results) == len(dict(results)) == count, "each once"
    return {name: str(verdict.outcome) for name, verdict in results}


def test_every_case_comes_once_from_seats_that_end_with_the_run(clusters: Any) -> None:
    ray = Ray(3)
    met: list[str] = []
    assert set(run(clusters(ray, on_node=lambda name, versions: met.append(name))).values()) == {"pass"}
    assert set(ray.tried.values()) == {1} and len(ray.hired) == len(met) == 3
    assert ray.dead == {actor.name for actor in ray.hired}


def test_no_more_seats_than_jobs(clusters: Any) -> None:
    ray = Ray(64)
    run(clusters(ray, jobs=2))
    assert len(ray.hired) == 2


def test_a_lost_seat_loses_nothing_and_is_replaced(clusters: Any) -> None:
    calls: Counter[str] = Counter()

    def dies(node: str, ids: list[str]) -> bool:
        calls[node] += 1
        return node in ("node0", "node2") and calls[node] == 3

    ray = Ray(2, dies)
    assert set(run(clusters(ray)).values()) == {"pass"}
    assert len(ray.hired) == 4 and max(ray.tried.values()) == 2


def test_what_ends_every_seat_is_given_up_and_nothing_else_is(clusters: Any) -> None:
    ray = Ray(2, lambda node, ids: "torture:obey:float32:17" in ids)
    outcomes = run(clusters(ray))
    assert {name for name, outcome in outcomes.items() if outcome != "pass"} == {"torture:obey:float32:17"}
    assert outcomes["torture:obey:float32:17"] == "harness-error"
    assert ray.tried["torture:obey:float32:17"] == 3


def test_a_node_that_is_another_one_is_refused(clusters: Any) -> None:
    cluster = clusters(Ray(1))
    cluster._here = {"torch": "2.12", "host": "here"}
    with pytest.raises(HarnessError, match=r"node here of the cluster has torch 2\.13 there and 2\.12 here"):
        run(cluster)


def test_a_cluster_without_room_is_told(clusters: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STARTUP_SECONDS", 0.0)
    monkeypatch.setattr(module, "TICK_SECONDS", 0.001)
    with pytest.raises(HarnessError, match=r"no worker could be had .* 0 of its 0 CPUs are free"):
        run(clusters(Ray(0)))
