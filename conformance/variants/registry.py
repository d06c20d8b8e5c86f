"""The variants by name. Naming one needs no PyTorch: a misspelt name is refused at once.

Variants are found by name alone, never by ``module:attribute``: an id names the variant of its case, ids come from
files of strangers too, and what a file names must not be imported because the file names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torchstone.compiler.registry import Registry
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.variants.protocol import Variant

if TYPE_CHECKING:
    from torchstone.conformance.program.case import Case

DEFAULT = "default"

RUN_BY_PLUGIN = "run-by-plugin"
"""The tag of a case whose variant is a plugin's and says how it is run: where the plugin is missing, it is untested."""

_HERE = "torchstone.conformance.variants"
VARIANTS: Registry[Variant] = Registry(
    "variant",
    "torchstone.variants",
    Variant,
    {
        DEFAULT: f"{_HERE}.protocol:UNCHANGED",
        "strided": f"{_HERE}.layout:STRIDED",
        "transposed": f"{_HERE}.layout:TRANSPOSED",
        "offset": f"{_HERE}.layout:OFFSET",
        "channels_last": f"{_HERE}.layout:CHANNELS_LAST",
        "expanded": f"{_HERE}.layout:EXPANDED",
        "special": f"{_HERE}.values:SPECIAL",
        "uniform": f"{_HERE}.values:UNIFORM",
        "extremes": f"{_HERE}.values:EXTREMES",
        "small": f"{_HERE}.values:SMALL",
        "magnitudes": f"{_HERE}.values:MAGNITUDES",
        "halves": f"{_HERE}.values:HALVES",
        "ties": f"{_HERE}.ties:TIES",
        "marked": f"{_HERE}.marked:MARKED",
        "scalar": f"{_HERE}.shapes:SCALAR",
        "line": f"{_HERE}.shapes:LINE",
        "ranks": f"{_HERE}.shapes:RANKS",
        "empty": f"{_HERE}.shapes:EMPTY",
        "single": f"{_HERE}.shapes:SINGLE",
        "odd": f"{_HERE}.shapes:ODD",
        "square": f"{_HERE}.shapes:SQUARE",
        "dynamic": f"{_HERE}.dynamic:EVERY_SIZE",
        "batch": f"{_HERE}.dynamic:LEADING_SIZE",
        "backward": f"{_HERE}.backward:BACKWARD",
        "long": f"{_HERE}.long_dim:LONG",
        "large": f"{_HERE}.long_dim:LARGE",
        "huge": f"{_HERE}.long_dim:HUGE",
        "dims": f"{_HERE}.dim_arguments:DIMS",
        "shifted": f"{_HERE}.values:SHIFTED",
        "mixed": f"{_HERE}.dtypes:MIXED",
        "wide": f"{_HERE}.dtypes:WIDE",
        "smaller": f"{_HERE}.shapes:SMALLER",
        "many": f"{_HERE}.many:MANY",
        "same": f"{_HERE}.same_tensor:SAME",
        "inplace": f"{_HERE}.same_tensor:INPLACE",
        "arguments": f"{_HERE}.arguments:ARGUMENTS",
        "lazy": f"{_HERE}.layout:LAZY",
        "numbers": f"{_HERE}.numbers:NUMBERS",
        "constants": f"{_HERE}.cache_key:CONSTANT",
        "inference": f"{_HERE}.inference:INFERENCE",
        "outside": f"{_HERE}.out_of_bounds:OUT_OF_BOUNDS",
        "rewritten": f"{_HERE}.rewritten:REWRITTEN",
        "values": f"{_HERE}.bundles:VALUES",
        "sizes": f"{_HERE}.bundles:SIZES",
        "layouts": f"{_HERE}.samples:LAYOUTS",
        "operands": f"{_HERE}.bundles:OPERANDS",
        "samples": f"{_HERE}.samples:SAMPLES",
        "gradients": f"{_HERE}.samples:GRADIENTS",
        "dtypes": f"{_HERE}.samples:OTHER_DTYPES",
        "pairs": f"{_HERE}.pairs:PAIRS",
        "mixes": f"{_HERE}.pairs:MIXES",
    },
    unknown=UnknownName,
    broken=InputError,
)

BUNDLES: Mapping[str, tuple[str, ...]] = {
    "values": ("special", "extremes", "magnitudes", "shifted", "small", "halves", "ties", "uniform", "marked"),
    "sizes": ("odd", "square", "single", "line", "ranks", "dims", "long"),
    "layouts": ("strided", "transposed", "offset", "channels_last", "expanded"),
    "operands": ("empty", "scalar", "smaller", "wide", "mixed", "same", "large", "many"),
}
"""Variants that ask several of one kind in one program, and which these are."""

ASKED_BY_PART = frozenset({*BUNDLES, "samples", "gradients", "dtypes", "pairs", "mixes", "arguments", "numbers"})
"""Variants whose programs have parts that a backend is asked for one by one where it refuses the whole."""


def compiled_alone(case: Case) -> bool:
    """Whether the case's variant compiles it in a way of its own, and not together with others."""
    return case.variant in VARIANTS and VARIANTS.load(case.variant).compiled_alone


def is_run_as_it_is(case: Case) -> bool:
    """Whether the case's variant is all in its program and inputs, as is one that nobody has registered."""
    return case.variant not in VARIANTS or VARIANTS.load(case.variant).run is None


def bundle_of(case: Case) -> int | None:
    """Of how many cases of this one's variant a bundle may be (``program.bundle``); None for as many as you like."""
    return None if is_run_as_it_is(case) else VARIANTS.load(case.variant).bundle_of
