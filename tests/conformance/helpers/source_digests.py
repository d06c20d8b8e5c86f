"""What a share of each source's cases are, to the bit: ``python source_digests.py`` prints a line a source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import SOURCES, iterate, load

FIRST = {
    "opinfo": ["meshgrid*", "uniform", "sort", "nn.functional.conv2d", "svd_lowrank"],
    "errors": ["amax", "gather"],
    "corpus": ["*"],
}


def digests() -> Iterator[str]:
    """The name of each source and the digest of its cases."""
    for name in SOURCES:
        digest = hashlib.sha256()
        names = load(name).op_names()
        ops = [*FIRST.get(name, []), *names[:: len(names) // 6 + 1]]
        for variant in ("default", "special") if name == "opinfo" else ("default",):
            for entry in iterate({name: load(name).select(ops)}, ["float32", "int64"], 3, [variant]):
                digest.update(entry.id.encode() + (entry.to_bytes() if isinstance(entry, Case) else b""))
        yield f"{name} {digest.hexdigest()}"


if __name__ == "__main__":
    print(*digests(), sep="\n")
