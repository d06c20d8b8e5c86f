"""The suite on a cluster of two nodes, one of which dies on the way: the verdicts of the local run. Needs Ray."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.conformance.runner.ray.test_cluster import nodes, told  # noqa: F401
from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.runner.ray.cluster import Cluster, connect
from torchstone.conformance.sources import opinfo

COUNT = int(os.environ.get("TORCHSTONE_CLUSTER_CASES", "300"))


def sampled(count: int) -> list[Case]:
    """The first float32 sample of so many ops, spread evenly over all of them."""
    ops = opinfo.select(None)
    cases = [entry for entry in opinfo.iterate(ops, ["float32"], 1) if isinstance(entry, Case)]
    return [cases[index * len(cases) // count] for index in range(count)]


@pytest.mark.filterwarnings("ignore")
def test_a_node_dies_and_the_verdicts_are_those_of_the_local_run(nodes: Any) -> None:  # noqa: F811
    cases = sampled(COUNT)
    with Pool("linalg", jobs=2) as pool:
        local = {verdict.case_id: told(verdict) for verdict in pool.verdicts(cases)}
    assert len(local) == COUNT and "pass" in {outcome for _, _, outcome, _, _ in local.values()}

    doomed, killed = nodes.add_node(num_cpus=1), False
    found: list[tuple[str, ...]] = []
    with connect(nodes.address), Cluster("linalg") as cluster:
        for result in cluster.results(cases):
            found.append(told(result.verdict))
            in_hand = any(actor.node == doomed.node_id and actor.calls for actor in cluster._actors)
            if not killed and in_hand and len(found) > COUNT // 4:
                nodes.remove_node(doomed, allow_graceful=False)
                killed = True
    assert killed, "the node had nothing in hand"
    assert len(found) == COUNT, "each once"
    assert {verdict[0]: verdict for verdict in found} == local
