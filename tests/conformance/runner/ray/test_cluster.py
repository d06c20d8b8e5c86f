"""The cluster: the verdicts of the local pool, none lost with a node and none twice. Needs Ray (``make ray``)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torture_cases import torture_case

from torchstone.conformance.errors import HarnessError, InputError
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.runner.ray.cluster import Cluster, connect
from torchstone.conformance.runner.ray.node_pool import version_differences
from torchstone.conformance.store import Store

BACKEND = "torture_backend:Torture"
DEEDS = ("obey", "raise", "wrong_dtype", "unsupported", "obey", "obey", "fail")


def test_differences_are_told_and_those_of_machines_are_none() -> None:
    here = {"torch": "2.13.0", "torchstone": "0.1.0", "cpu": "AVX512", "host": "a"}
    assert version_differences(here, here | {"cpu": "AVX2", "host": "b"}) == ""
    assert version_differences(here, here | {"torch": "2.12.0"}) == "torch 2.12.0 there and 2.13.0 here"
    assert version_differences(here | {"iree": "3"}, here) == "iree missing there and 3 here"


def test_an_address_needs_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchstone.cli.workers import Executor, Workplace

    with pytest.raises(InputError, match="give --executor ray too"):
        Workplace(Executor.local, "host:6379", "auto")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install torchstone\[ray\]"):
        Workplace(Executor.ray, None, "auto").join()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of two nodes of one CPU each, on this machine."""
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster as Nodes

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(__file__).parents[2] / "helpers")
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_raylet_start_wait_time_s", "300")
        started = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        started.add_node(num_cpus=1)
        yield started
        started.shutdown()


def told(verdict: Any) -> tuple[str, ...]:
    return verdict.case_id, verdict.stage, verdict.outcome, verdict.kind, verdict.message


def cases(count: int = 40) -> Iterator[Any]:
    yield torture_case("segfault", 0)
    for index in range(1, count):
        yield torture_case(DEEDS[index % len(DEEDS)], index)


@pytest.mark.filterwarnings("ignore")
def test_verdicts_are_those_of_the_local_pool(nodes: Any) -> None:
    with Pool(BACKEND) as pool:
        local = sorted(told(verdict) for verdict in pool.verdicts(cases()))
    assert len({verdict[2] for verdict in local}) == 5
    met: dict[str, dict[str, str]] = {}
    with connect(nodes.address), Cluster(BACKEND, on_node=met.__setitem__) as cluster:
        results = list(cluster.results(cases()))
        assert sorted(told(result.verdict) for result in results) == local
        assert all(result.case.to_bytes() == result.data for result in results)
        assert met and all("torch" in versions for versions in met.values())


@pytest.mark.filterwarnings("ignore")
def test_a_node_with_other_versions_is_refused(nodes: Any) -> None:
    with connect(nodes.address), Cluster(BACKEND) as cluster:
        cluster._here["torch"] = "0.1"
        with pytest.raises(HarnessError, match=r"torch 2\.\S+ there and 0\.1 here.*install the same"):
            list(cluster.results(cases()))


@pytest.mark.filterwarnings("ignore")
def test_a_lost_node_loses_nothing(nodes: Any) -> None:
    """It is killed with cases in hand; every case comes once."""
    doomed = nodes.add_node(num_cpus=1)
    asked: list[str] = []
    killed = False

    def stream() -> Iterator[Any]:
        after = 0
        for case in cases(20_000):
            after += killed
            if after > 40:
                return
            if case.op != "segfault":
                asked.append(case.id)
                yield case

    found = []
    with connect(nodes.address), Cluster(BACKEND) as cluster:
        for result in cluster.results(stream()):
            found.append(result.case.id)
            wanted = {"obey": "pass", "unsupported": "unsupported", "wrong_dtype": "mismatch"}.get(
                result.case.op, "error"
            )
            assert result.verdict.outcome == wanted
            if not killed and any(actor.node == doomed.node_id and actor.calls for actor in cluster._actors):
                nodes.remove_node(doomed, allow_graceful=False)
                killed = True
    assert killed, "the node had nothing in hand"
    assert sorted(found) == sorted(asked)


@pytest.mark.filterwarnings("ignore")
def test_command_is_interrupted_and_resumed(nodes: Any, tmp_path: Path) -> None:
    """Nothing of Ray is on the terminal."""
    from torchstone.conformance.sources import iterate

    store = tmp_path / "results.sqlite"
    options = ["--executor", "ray", "--address", nodes.address, "--store", str(store)]
    command = [sys.executable, "-m", "torchstone", "run"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    started = subprocess.Popen(
        [*command, "--backend", "eager", "--op", "add", "--op", "mul", "--op", "sub", *options],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path,
    )  # fmt: skip
    for _ in range(3000):
        time.sleep(0.1)
        with contextlib.suppress(InputError), Store(store, create=False) as db:
            if sum(db.counts("r1").get("eager", {}).values()):
                break
        assert started.poll() is None, started.communicate()
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=120)
    assert started.returncode == 130 and "--resume r1" in errors
    assert not [line for line in errors.splitlines() if "ray" in line.lower().replace("--executor ray", "")], errors
    done = subprocess.run(
        [*command, "--resume", "r1", *options], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    with Store(store, create=False) as db:
        record = db.run("r1")
        assert record.state == "finished", done.stderr
        asked = iterate({"opinfo": ["add", "mul", "sub"]}, ["float32"], None)
        assert db.done("r1", "eager") == {entry.id for entry in asked}
        assert [name for name in record.versions if name.startswith("node ")]
