"""``torchstone compile``: compile a function of the user's own file, or the text of a stage, and print later stages."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from torchstone.cli.options import CpuLevelOption, check_known, set_cpu_level
from torchstone.cli.output import say, warn
from torchstone.cli.paths import output_folder
from torchstone.compiler.passes import timing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchstone.compiler.driver import Executable
    from torchstone.compiler.ir.types import TensorType
    from torchstone.compiler.lowering.target import Target

Ranges: TypeAlias = dict[str, tuple[int, int, int]]

STAGES = ("aten", "contract", "flat", "schedule", "stablehlo", "linalg", "tosa", "tensorrt", "llvm")
TEXTS = ("aten", "contract", "flat", "linalg", "tosa", "stablehlo")
_EXAMPLE_SIZE = 5  # of the first symbol; neither 0 nor 1, which PyTorch specializes


What = Annotated[
    str | None,
    typer.Argument(metavar="FILE:FN", help="Python file and a function or module in it; with --from, a text file."),
]
Arguments = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        help="One argument, repeated in order: a tensor type such as f32[2, 3] (a name in place of a size, "
        "f32[n, 3], makes it dynamic), or a Python value as JSON. Without it, FN_args() in the file gives the "
        "tuple of arguments.",
    ),
]
Profiles = Annotated[
    list[str] | None,
    typer.Option(
        "--profile",
        help="Ranges of the dynamic sizes that --arg names, min:opt:max each: n=1:8:64,m=1:4:16. Repeated, the engine "
        "has several profiles. For the target tensorrt.",
    ),
]
EngineCache = Annotated[
    Path | None,
    output_folder(
        "--engine-cache",
        help="Keep the engine in this folder, and take one that is there already. For the target tensorrt.",
    ),
]
Emitted = Annotated[
    list[str] | None, typer.Option(help=f"Stage to print, repeated: {', '.join(STAGES)}. [default: the target's own]")
]
Origin = Annotated[
    str | None,
    typer.Option(
        "--from",
        help=f"FILE is text of this stage ({', '.join(TEXTS)}), as --emit prints it; - reads standard input. In an "
        "aten graph a size may be ? and is worked out.",
    ),
]


def compile(
    what: What = None,
    arg: Arguments = None,
    profile: Profiles = None,
    engine_cache: EngineCache = None,
    target: Annotated[
        str, typer.Option(help="linalg, tosa, stablehlo, tensorrt, evaluator, a plugin's, or module:attribute.")
    ] = "linalg",
    emit: Emitted = None,
    origin: Origin = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Tell what became of each op instead, line by line of the program.")
    ] = False,
    passes: Annotated[
        bool, typer.Option("--passes", help="Print the passes of the target's pipelines instead; takes no FILE.")
    ] = False,
    time_passes: Annotated[
        bool, typer.Option("--time-passes", help="Print on stderr how long each pass took, after the stages.")
    ] = False,
    library_calls: Annotated[
        bool, typer.Option("--library-calls/--no-library-calls", help="Call LibTorch for what has no compiled code.")
    ] = True,
    freeze: Annotated[
        bool, typer.Option("--freeze", help="Take the parameters that FN holds for constants: compute with them once.")
    ] = False,
    optimize: Annotated[
        bool, typer.Option("--optimize", help="Optimize code for the CPU at once: that of small programs waits.")
    ] = False,
    expand: Annotated[
        bool, typer.Option("--expand", help="Print composites of the stage flat as the primitives in their bodies.")
    ] = False,
    cpu_level: CpuLevelOption = None,
) -> int:
    """Compile FN for a target and print the IR of the stages asked for. FILE is run, as python FILE would run it.

    With --from, FILE is not run: it is the text of a stage, and the stages after it are printed.
    """
    from torchstone.compiler.lowering.registry import TARGETS, find_target
    from torchstone.conformance.errors import InputError

    set_cpu_level(cpu_level)
    if ":" not in target:
        check_known("target", [target], TARGETS)
    row = find_target(target)
    check_known("stage", emit or [], dict.fromkeys([*STAGES, row.name]))
    if passes:
        _print_passes(row)
        return 0
    if what is None:
        raise InputError("say what to compile: FILE:FN, as in model.py:forward, or --passes for the passes alone")
    with timing() as times:
        if origin is not None:
            if arg or profile or engine_cache or explain or freeze or optimize or expand:
                raise InputError(f"--from {origin} {_TEXT_ALONE}")
            _compile_text(what, origin, row, emit, library_calls=library_calls)
        else:
            own: dict[str, Any] = {"freeze": freeze, "optimize": optimize}
            own |= {} if engine_cache is None else {"engine_cache": engine_cache}
            executable = _compiled(what, arg, target, library_calls, profile or [], own)
            _show(executable, emit, row.name, explain=explain, expand=expand)
    if time_passes:
        warn(times)
    return 0


def _print_passes(target: Target) -> None:
    from torchstone.compiler.driver import pipelines

    say("\n\n".join(map(str, pipelines(target))))


_TEXT_ALONE = (
    "takes neither --arg, --profile, --engine-cache, --explain, --expand, --freeze nor --optimize: there is no "
    "program, only its text"
)


def _compile_text(what: str, origin: str, target: Target, emit: list[str] | None, *, library_calls: bool) -> None:
    """Take the text of a stage through the stages after it and print those asked for."""
    check_known("stage of text", [origin], TEXTS)
    from torchstone.compiler.from_text import from_text

    stages = from_text(_read(what), origin, target, library_calls=library_calls)
    _print(stages, emit or [target.name if target.name in stages else "llvm"], f"from {origin}")


def _show(executable: Executable, emit: list[str] | None, own: str, *, explain: bool, expand: bool) -> None:
    """Print the stages asked for, or what became of each op; ``own`` is the target's own stage."""
    if expand:
        _print({"flat": executable.expanded()}, ["flat"], f"target {own}")
        emit = [stage for stage in emit or [] if stage != "flat"]
        if not emit:
            return
    if explain:
        say(executable.explain().rstrip())
    if emit or not explain:
        _print(executable.ir, emit or [own if own in executable.ir else "flat"], f"target {own}")


def _compiled(
    what: str, arg: list[str] | None, target: str, library_calls: bool, texts: list[str], own: Mapping[str, Any],
) -> Executable:  # fmt: skip
    """Compile FILE:FN; ``texts`` are its profiles, ``own`` further options, the target's too."""
    from torchstone.compiler.driver import compile as build
    from torchstone.conformance.errors import InputError

    file, _, name = what.rpartition(":")
    if not file or not name:
        raise InputError(f"{what}: expected FILE:FN, as in model.py:forward")
    module = _load(Path(file))
    names = [n for n in vars(module) if not n.startswith("_") and callable(getattr(module, n))]
    check_known(f"function in {file}", [name], names)
    fn = getattr(module, name)
    fn = fn() if isinstance(fn, type) else fn
    profiles = [_profile(text) for text in texts]
    if not all(profiles):
        text = texts[profiles.index({})]
        raise InputError(f"--profile {text!r}: expected a range min:opt:max for each size, as n=1:8:64,m=1:4:16")
    sizes = {symbol: size for ranges in profiles[:1] for symbol, (_, size, _) in ranges.items()}
    args, dynamic = _arguments(arg, getattr(module, f"{name}_args", None), file, name, sizes)
    options = {"profiles": profiles, **own} if profiles else own
    return build(fn, args, target, dynamic, library_calls=library_calls, alias_results=False, **options)


def _profile(text: str) -> Ranges:
    """Read a profile such as n=1:8:64,m=1:4:16; what is none gives nothing."""
    parts = [re.fullmatch(r"\s*(\w+)=(\d+):(\d+):(\d+)\s*", part) for part in text.split(",")]
    found = [part.groups() for part in parts if part is not None]
    return {name: (int(low), int(best), int(high)) for name, low, best, high in found} if all(parts) else {}


def _print(stages: Mapping[str, str], wanted: list[str], whose: str) -> None:
    from torchstone.conformance.errors import InputError

    for stage in wanted:
        if stage not in stages:
            raise InputError(f"{whose} has no stage {stage}; it has {', '.join(stages)}")
        if len(wanted) > 1:
            say(f"// ---- {stage} ----")
        say(stages[stage].rstrip())


def _read(file: str) -> str:
    from torchstone.conformance.errors import InputError

    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: {getattr(error, 'strerror', None) or error}") from error


def _load(path: Path) -> Any:
    from torchstone.conformance.errors import InputError

    if not path.is_file():
        raise InputError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{path} raises {type(error).__name__}: {error}") from error
    return module


def _arguments(
    texts: list[str] | None, example: Any, file: str, name: str, wanted: Mapping[str, int]
) -> tuple[tuple[Any, ...], Any]:
    """Return the example arguments and the dynamic shapes, None when every size is static.

    ``wanted`` are sizes of the example; 0 and 1, which PyTorch specializes, are not taken.
    """
    from torchstone.conformance.errors import InputError

    if not texts:
        if example is None:
            raise InputError(f"say what {name} takes: --arg 'f32[2, 3]', or a function {name}_args() in {file}")
        return tuple(example()), None
    sizes: dict[str, int] = {}
    parsed = [_argument(text, sizes, wanted) for text in texts]
    if not sizes:
        return tuple(value for value, _ in parsed), None
    import torch

    dims = {symbol: torch.export.Dim(symbol) for symbol in sizes}
    return tuple(v for v, _ in parsed), tuple({i: dims[s] for i, s in axes.items()} or None for _, axes in parsed)


def _argument(text: str, sizes: dict[str, int], wanted: Mapping[str, int]) -> tuple[Any, dict[int, str]]:
    from torchstone.conformance.errors import InputError

    try:
        return json.loads(text), {}
    except ValueError:
        pass
    kind = _type(text)
    shape, axes = [], {}
    for axis, dim in enumerate(kind.shape):
        if not isinstance(dim, int):
            axes[axis] = symbol = str(dim)
            if not symbol.isidentifier():
                raise InputError(f"--arg {text!r}: a dynamic size is a plain name, got {symbol}")
            own = _EXAMPLE_SIZE + 2 * len(sizes)
            dim = sizes.setdefault(symbol, wanted[symbol] if wanted.get(symbol, 0) > 1 else own)
        shape.append(dim)
    return _tensor(shape, kind), axes


def _type(text: str) -> TensorType:
    from torchstone.compiler.ir import ParseError, TensorType, parse_graph
    from torchstone.conformance.errors import InputError

    try:
        kind = parse_graph(f"graph @arg(%x: {text}) {{ return }}").args[0].type
    except ParseError as error:
        message = error.message.partition(": ")[2]
        raise InputError(f"--arg {text!r}: {message}; expected a tensor type such as f32[2, 3], or JSON") from None
    if not isinstance(kind, TensorType) or None in kind.shape:
        raise InputError(f"--arg {text!r}: expected a tensor type such as f32[2, 3]")
    return kind


def _tensor(shape: list[int], kind: TensorType) -> Any:
    import torch

    from torchstone.compiler.capture.trace.aten_literals import TO_TORCH

    dtype = TO_TORCH[kind.dtype]
    if kind.dtype.is_float or kind.dtype.is_complex:
        wide = torch.complex64 if kind.dtype.is_complex else torch.float32
        return torch.randn(shape, dtype=wide).to(dtype)
    return torch.ones(shape, dtype=dtype)
