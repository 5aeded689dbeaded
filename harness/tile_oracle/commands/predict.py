"""`tile-oracle predict`: what a model picks for a problem."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tile_oracle.arch import load_arch
from tile_oracle.errors import ModelError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.predictor import Predictor, find_model_of
from tile_oracle.model.store import read_manifest
from tile_oracle.operation import operation_named
from tile_oracle.problem import kind_text, problem_from_id

HELP = "rank the kernels for a problem with a model"

_EXAMPLES = """\
examples:
  tile-oracle predict forward-bf16-n1-c64-k64-i56x56-f3x3-p1 --arch gfx950
  tile-oracle predict forward-bf16-n1-c64-k64-i56x56-f3x3-p1 --model models/mine --top 5
  tile-oracle predict PROBLEM --model models/mine --kernels names.txt --json

The kernels are those that the model was trained on, unless a file names others, one a line. One that by the
architecture's rules cannot compute the problem is listed all the same, with the reason.
`tile-oracle problems NAME --ids` prints problem ids.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `tile-oracle predict`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "Prints the kernels for each problem, best first, with predicted TFLOPS."
    parser.epilog = _EXAMPLES
    parser.add_argument("problems", nargs="+", metavar="PROBLEM", help="problem id")
    parser.add_argument("--model", metavar="FOLDER", help="model folder (default: the shipped one that fits)")
    parser.add_argument(
        "--arch", default="gfx950", metavar="ARCH", help="of the shipped model (default: %(default)s)"
    )
    parser.add_argument("--kernels", metavar="FILE", help="kernel names to rank, one a line")
    parser.add_argument(
        "--build-dir",
        metavar="DIR",
        help="kernels that `tile-oracle build` made: for a model that reads figures of binaries, those that "
        "its own folder lacks",
    )
    parser.add_argument(
        "--top", type=int, default=10, metavar="N", help="kernels to show (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a problem")


def run(args: argparse.Namespace) -> int:
    """Prints the rankings. Raises ProblemError, KernelError, ModelError."""
    for text in args.problems:
        problem = problem_from_id(text)
        folder = Path(args.model) if args.model else find_model_of(problem.kind, args.arch)
        if folder is None:
            raise ModelError(f"no shipped model for {kind_text(problem.kind)} on {args.arch}: use --model")
        predictor = Predictor.load(folder)
        kernels = [k for k in kernels_named(folder, args.kernels) if k.matches(problem)]
        if args.build_dir:
            if not predictor.reads_code:
                raise ModelError(f"{folder} does not read figures of binaries: leave --build-dir out")
            predictor = predictor.knowing(CodeTable.of_build(args.build_dir, [k.name for k in kernels]))
        if not kernels:
            words = operation_named(problem.op).kind_words
            raise ModelError(f"no kernel matches {problem.id}: {words} must be the problem's")
        ranked = predictor.rank(problem, kernels)[: max(args.top, 1)]
        arch = load_arch(predictor.spec.arch)
        refusals = {kernel.name: arch.problem_refusal(kernel, problem) for kernel, _ in ranked}
        scores = predictor.ranker.orders_only
        if args.json:
            picks = [
                {
                    "kernel": kernel.name,
                    "predicted_tflops": None if scores else tflops,
                    "refusal": refusals[kernel.name],
                }
                for kernel, tflops in ranked
            ]
            print(json.dumps({"problem": problem.id, "model": folder.name, "picks": picks}))
            continue
        print(f"{problem.id}  ({folder.name}{', which orders kernels and predicts no TFLOPS' * scores})")
        for place, (kernel, tflops) in enumerate(ranked, 1):
            reason = refusals[kernel.name]
            refused = f"  (refuses this problem: {reason})" if reason else ""
            said = "" if scores else f"{tflops:9.2f} TFLOPS  "
            print(f"{place:>4}  {said}{kernel.name}{refused}")
    return 0


def kernels_named(folder: Path, file: str | None) -> list[Kernel]:
    """The kernels that a file names, one a line; without a file, those that the model was trained on.

    Raises ModelError or KernelError.
    """
    if file is None:
        names = read_manifest(folder).get("kernels") or ()
        if not names:
            raise ModelError(f"{folder} does not say which kernels it knows: name some with --kernels")
    else:
        try:
            names = Path(file).read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"cannot read {file}: {error}") from None
    return [parse_kernel_name(str(name)) for name in names]
