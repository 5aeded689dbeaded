"""`tile-oracle model export`: a model and its kernels as C++ that needs neither Python nor LightGBM."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tile_oracle.commands.arguments import argument, one_of
from tile_oracle.errors import ModelError, RuleError
from tile_oracle.features.schemas import op_of_model
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.libraries.libraries import is_library_name
from tile_oracle.model.model_folder import ModelSpec, read_spec
from tile_oracle.model.store import folder_of_model, no_model_there, read_manifest
from tile_oracle.operation import operation_named
from tile_oracle.pool import load_rule_set, pool_of_kind
from tile_oracle.problem import kind_text
from tile_oracle.selector.export import export_model, file_stem
from tile_oracle.selector.solutions import SolutionNames, read_names

EXAMPLES = """\
examples:
  tile-oracle model export grouped_conv_forward_bf16_gfx950 -o selector
  tile-oracle model export models/mine -o selector
  tile-oracle model export models/mine -o selector --kernel-set default
  tile-oracle model export models/mine -o selector --kernels names.txt
  make -C selector && selector/build/pick selector/forward_bf16_2d.selector N=8 C=64 K=64 Hi=56 Wi=56

The kernels are those that the model was trained on, unless a rule set or a file of names (one per line) is
given. A file of names is the list of a dispatcher's own functions: names that the model cannot rank are
reported and never picked. The folder builds with any C++20 compiler and needs neither Python nor LightGBM;
its README.md explains how to use it.
"""


ABOUT = (
    "Writes a folder with the model, its candidate kernels and C++ that picks among them: the same\n"
    "answers as `tile-oracle pick --predictions`, bit for bit."
)
ARGUMENTS = (
    argument("model", "MODEL", "model folder, or the name of one in models/ or of a shipped one"),
    argument("-o --output", "DIR", "folder to write", required=True),
    one_of(
        argument("--kernel-set", "SET", "the kernels of a rule set, for the model's problems"),
        argument("--kernels", "FILE", "file of kernel names, one per line"),
    ),
)


def run(args: argparse.Namespace) -> int:
    """Writes the folder. Raises ModelError, RuleError, KernelError."""
    folder = folder_of_model(args.model)
    kernels, names = kernels_to_export(folder, args)
    done = export_model(folder, kernels, args.output, names)
    for line in names.remarks() if names is not None else ():
        print(line, file=sys.stderr)
    for kind, count in done.kernels.items():
        print(f"{done.folder / file_stem(kind)}.selector: {kind_text(kind)}, {count:,} kernels")
    print(f"{done.bytes / 1e6:.1f} MB; build it with: make -C {done.folder}")
    return 0


def kernels_to_export(
    folder: Path, args: argparse.Namespace
) -> tuple[Sequence[Kernel], SolutionNames | None]:
    """Returns the candidates that --kernel-set, --kernels or the model's training names. Raises
    HarnessError."""
    if not folder.is_dir():
        raise ModelError(no_model_there(folder))
    if args.kernel_set is not None:
        return _kernels_of_set(read_spec(folder), args.kernel_set), None
    if args.kernels is not None:
        names = SolutionNames.of_model(folder, read_names(args.kernels))
        return names.candidates, names
    return _trained_kernels(folder), None


def _trained_kernels(folder: Path) -> list[Kernel]:
    """In the order of the model's manifest; without the algorithms of libraries, since only the library says
    which of them a problem has."""
    names = [str(name) for name in read_manifest(folder).get("kernels") or ()]
    if not names:
        raise ModelError(f"{folder} does not record its kernels: name some with --kernels")
    return [parse_kernel_name(name) for name in names if not is_library_name(name)]


def _kernels_of_set(spec: ModelSpec, name: str) -> list[Kernel]:
    """Returns the rule set's kernels for every kind of problem that the model is for."""
    only: dict[str, tuple[str | int, ...]] = {
        "dtype": (spec.dtype,),
        "direction": (spec.direction,) if spec.direction else (),
        "ndim": spec.ndims,
    }
    kinds = operation_named(op_of_model(spec.op_type)).kinds(only)
    rules = load_rule_set(name)
    covered = [kind for kind in kinds if rules.covers(kind, spec.arch)]
    if not covered:
        raise RuleError(f"kernel set {name} has no kernels for {kind_text(kinds[0])} on {spec.arch}")
    return [kernel for kind in covered for kernel in pool_of_kind(kind, spec.arch, name)]
