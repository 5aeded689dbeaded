"""`python -m tools.crawl`: makes problem sets from published network architectures."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tile_oracle.errors import HarnessError
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, DTYPES
from tools.command_line import run_tool
from tools.crawl.catalogue import (
    SAMPLE,
    Architecture,
    choose_architectures,
    library_versions,
    list_architectures,
)
from tools.crawl.collect import Progress, collect
from tools.crawl.select import SelectionOptions, hold_out, select
from tools.crawl.trace import Trace
from tools.crawl.trace_file import TraceFile, default_trace_file
from tools.crawl.write import write_selection

_EXAMPLES = """\
examples:
  pip install -e '.[crawl]'                          PyTorch (a CPU build will do), torchvision, timm
  python -m tools.crawl --out-dir problems                      the shipped sets, all three directions
  python -m tools.crawl --list --architectures 'timm/resnet*'   list the architectures and the held-out ones
  python -m tools.crawl --out-dir mine --direction forward --architectures 'timm/convnext*' \\
      --batch-sizes 1,8 --no-synthetic                      sets of your own networks only
  python -m tools.crawl --out-dir mine --no-trace --trace-file traces.jsonl --seed 2
                                                            other sets from old traces, without PyTorch

Models are built on PyTorch's meta device: shapes only, no weights are loaded or downloaded. Traces are
kept in the trace file, and an interrupted crawl continues where it stopped.
"""

_DEFAULTS = SelectionOptions("forward")
_PER_FAMILY = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `python -m tools.crawl`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Traces the convolutions of published architectures and samples training and validation sets\n"
        "from them. Whole families of architectures are held out for validation. Samples are stratified\n"
        "by kind of layer and by GFLOP."
    )
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("--out-dir", type=Path, metavar="DIR", help="folder that the CSV files are written to")
    add("--list", action="store_true", help="list the architectures that would be traced, and stop")
    add("--direction", choices=(*DIRECTIONS, "all"), default="all", help="default: %(default)s")
    add("--dtype", choices=DTYPES, default=_DEFAULTS.dtype, help="default: %(default)s")
    add(
        "--architectures",
        action="append",
        metavar="PATTERN",
        help="a label with * and ?, 'all', or 'sample' (default): some of every family; repeatable",
    )
    add(
        "--per-family",
        type=_positive,
        default=_PER_FAMILY,
        metavar="N",
        help="architectures per family for 'sample'; large families get more (default: %(default)s)",
    )
    add(
        "--resolutions",
        type=_extents,
        default=(),
        metavar="PX,...",
        help="image sizes that replace each architecture's own, e.g. 224,288x512",
    )
    add(
        "--batch-sizes",
        type=_positives,
        default=_DEFAULTS.batch_sizes,
        metavar="N,...",
        help=f"default: {','.join(map(str, _DEFAULTS.batch_sizes))}",
    )
    count: dict[str, Any] = {
        "type": _positive,
        "metavar": "N",
        "help": "number of problems (default: %(default)s)",
    }
    add("--training", default=_DEFAULTS.training_count, **count)
    add("--validation", default=_DEFAULTS.validation_count, **count)
    add("--no-synthetic", action="store_true", help="leave out the synthetic problems")
    seed_help = "decides the held-out families and every choice (default: %(default)s)"
    add("--seed", type=int, default=_DEFAULTS.seed, help=seed_help)
    add(
        "--trace-file",
        type=Path,
        metavar="FILE",
        help="where traces are kept (default: in your cache folder)",
    )
    add("--no-trace", action="store_true", help="use only the traces in --trace-file; needs no PyTorch")


def run(args: argparse.Namespace) -> int:
    """Traces, samples and writes the sets. Returns 0, or 1 if nothing could be traced. Raises
    HarnessError."""
    if args.list:
        return _list(args)
    if args.out_dir is None:
        raise HarnessError("crawl needs --out-dir DIR, where the CSV files go (or --list)")
    file, traces = _old_traces(args) if args.no_trace else _new_traces(args)
    failed = [trace for trace in traces if trace.error]
    for trace in failed:
        print(f"failed: {trace.source}: {trace.error}", file=sys.stderr)
    print(f"{len(traces) - len(failed)} traces, {len(failed)} failed, kept in {file.path}")
    if len(failed) == len(traces):
        print("nothing was traced, so no set is written", file=sys.stderr)
        return 1
    for direction in DIRECTIONS if args.direction == "all" else (args.direction,):
        options = SelectionOptions(
            direction,
            args.dtype,
            args.training,
            args.validation,
            args.seed,
            args.batch_sizes,
            synthetic=not args.no_synthetic,
        )
        chosen = select(traces, options)
        for path in write_selection(chosen, traces, args.out_dir, _command(args), file.versions):
            print(f"wrote {path}")
        for name, problems, wanted in (
            ("training", chosen.training, args.training),
            ("validation", chosen.validation, args.validation),
        ):
            if len(problems) < wanted:
                print(f"{direction} {name}: only {len(problems)} of {wanted} problems; trace more")
    return 0


def _list(args: argparse.Namespace) -> int:
    architectures = _chosen(args)
    held_out = hold_out({a.family for a in architectures}, args.seed)
    for a in architectures:
        at = " ".join("x".join(map(str, resolution)) for resolution in a.resolutions)
        side = "validation" if a.family in held_out else "training"
        print(f"{a.label:60} {a.family:26} {side:10} {at}")
    print(f"{len(architectures)} architectures, {len({a.family for a in architectures})} families")
    return 0


def _chosen(args: argparse.Namespace) -> tuple[Architecture, ...]:
    return choose_architectures(list_architectures(), args.architectures or [SAMPLE], args.per_family)


def _new_traces(args: argparse.Namespace) -> tuple[TraceFile, Sequence[Trace]]:
    versions = library_versions()
    file = TraceFile(args.trace_file or default_trace_file(versions), versions)
    architectures = _chosen(args)
    return file, collect(architectures, file, _show, args.resolutions)


def _old_traces(args: argparse.Namespace) -> tuple[TraceFile, Sequence[Trace]]:
    if args.trace_file is None or args.architectures or args.resolutions:
        raise HarnessError(
            "--no-trace uses all traces in --trace-file: give --trace-file FILE, "
            "and leave out --architectures and --resolutions"
        )
    file = TraceFile(args.trace_file, {})
    if not file.traces:
        raise HarnessError(f"{file.path} holds no traces")
    return file, list(file.traces.values())


def _show(progress: Progress) -> None:
    trace = progress.trace
    outcome = "failed" if trace.error else f"{len(trace.layers)} layers"
    print(
        f"[{progress.done}/{progress.total}] {trace.source}: {outcome}, {progress.seconds_left:.0f} s left",
        file=sys.stderr,
        flush=True,
    )


def _command(args: argparse.Namespace) -> str:
    """The command line without local paths, so that equal sets record the same command everywhere."""
    words = ["python", "-m", "tools.crawl"]
    for pattern in args.architectures or []:
        words += ["--architectures", pattern]
    if args.resolutions:
        words += ["--resolutions", ",".join("x".join(map(str, pair)) for pair in args.resolutions)]
    if args.batch_sizes != _DEFAULTS.batch_sizes:
        words += ["--batch-sizes", ",".join(map(str, args.batch_sizes))]
    for option, value, default in (
        ("per-family", args.per_family, _PER_FAMILY),
        ("dtype", args.dtype, _DEFAULTS.dtype),
        ("training", args.training, _DEFAULTS.training_count),
        ("validation", args.validation, _DEFAULTS.validation_count),
        ("seed", args.seed, _DEFAULTS.seed),
    ):
        if value != default:
            words += [f"--{option}", str(value)]
    if args.no_synthetic:
        words.append("--no-synthetic")
    if args.no_trace:
        words += ["--no-trace", "--trace-file", args.trace_file.name]
    return shlex.join((*words, "--out-dir", "problems"))


def _positive(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,6}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 9999999")
    return int(text)


def _positives(text: str) -> tuple[int, ...]:
    return tuple(sorted({_positive(part) for part in text.split(",")}))


def _extents(text: str) -> tuple[tuple[int, ...], ...]:
    pairs = []
    for part in text.split(","):
        sides = [_positive(side) for side in part.split("x")]
        if len(sides) > 2:
            raise argparse.ArgumentTypeError(f"{part!r} is not a height, or a height x width")
        pairs.append((sides[0], sides[-1]))
    return tuple(dict.fromkeys(pairs))


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command line; the result is the exit status."""
    return run_tool("crawl", add_arguments, run, words)


if __name__ == "__main__":
    sys.exit(main())
