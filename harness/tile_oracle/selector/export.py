"""Exports a model and its kernels as a folder of C++ that needs neither Python nor LightGBM: `export_model`.

README.md, manifest.json         what it is, made from what
KIND.selector                    model and candidates of one kind of problem, e.g. forward_bf16_2d
KIND.kernels.txt                 the candidates' names, one per line, in the order of their numbers
include/ src/ example/ Makefile  the C++
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.errors import KernelError, ModelError
from tile_oracle.features.schemas import op_of_model
from tile_oracle.files.data_files import data_folder
from tile_oracle.files.disk_errors import disk_errors_as
from tile_oracle.files.user_file import read_bytes
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.predictor import check_kind
from tile_oracle.model.store import read_manifest
from tile_oracle.operation import operation_named
from tile_oracle.problem import Kind, kind_text
from tile_oracle.selector.selector_file import NativeModel, problem_fields, selector_bytes
from tile_oracle.version import __version__

# ---- The kernels of a dispatcher of the user's own: a file of names, and which of them a model can rank
# The order of the file is the order of the dispatcher's array. Names that the model cannot rank keep their
# places there and are never picked.

_NAMED = 3
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class SolutionNames:
    """A dispatcher's names and what a model makes of them. `never_picked`: name -> reason. `untrained`: those
    of `candidates` that no measurement of the model's training has; it ranks them by their features."""

    names: tuple[str, ...]
    candidates: tuple[Kernel, ...]
    never_picked: tuple[tuple[str, str], ...]
    untrained: tuple[str, ...]

    @classmethod
    def of_model(cls, folder: Path, names: Sequence[str]) -> SolutionNames:
        """Raises ModelError when the folder cannot be read or the model can rank none of the names."""
        spec = read_spec(folder)
        op = op_of_model(spec.op_type)
        candidates: dict[str, Kernel] = {}
        never: list[tuple[str, str]] = []
        for name in names:
            if name in candidates:
                never.append((name, "the list names it before"))
                continue
            try:
                kernel = parse_kernel_name(name)
                if kernel.name != name:
                    raise KernelError(f"its full name is {kernel.name}")
                if kernel.op != op:
                    raise ModelError(f"the model is for {op}")
                check_kind(folder, spec, kernel.kind)
            except KernelError as error:
                never.append((name, str(error)))
            except ModelError as error:
                never.append((name, str(error).removeprefix(f"{folder} ")))
            else:
                candidates[name] = kernel
        if not candidates:
            why = f": {never[0][0]}: {never[0][1]}" if never else ""
            raise ModelError(f"{folder} can rank none of the {len(names):,} kernels named{why}")
        trained = set(read_manifest(folder).get("kernels") or candidates)
        untrained = tuple(name for name in candidates if name not in trained)
        return cls(tuple(names), tuple(candidates.values()), tuple(never), untrained)

    def remarks(self) -> list[str]:
        """Returns a line for each thing that the author of the list should know."""
        lines = [f"never picked: {name} ({reason})" for name, reason in self.never_picked[:_NAMED]]
        if len(self.never_picked) > _NAMED:
            lines.append(f"never picked: {len(self.never_picked) - _NAMED:,} more, listed in manifest.json")
        if self.untrained:
            named = ", ".join(self.untrained[:_NAMED]) + ", ..." * (len(self.untrained) > _NAMED)
            lines.append(
                f"ranked although the model was not trained on them: {len(self.untrained):,} ({named})"
            )
        return lines


def read_names(file: Path | str) -> list[str]:
    """Read the names of a file, one per line; empty lines do not count. Raises ModelError."""
    try:
        lines = read_bytes(file, _MOST_BYTES).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"cannot read {file}: {reason}") from None
    return [name for line in lines if (name := line.strip())]


MANIFEST_FILE = "manifest.json"
_FORMAT = "tile-oracle selector export 1"


@dataclass(frozen=True)
class Exported:
    """The result of an export: the folder, and the number of kernels for each kind of problem."""

    folder: Path
    kernels: Mapping[Kind, int]
    bytes: int


def file_stem(kind: Kind) -> str:
    """forward_bf16_2d, gemm_bf16_rcr."""
    return operation_named(kind.op).file_stem(kind)


def export_model(
    model_folder: Path | str,
    kernels: Sequence[Kernel],
    folder: Path | str,
    solutions: SolutionNames | None = None,
) -> Exported:
    """Writes the folder atomically; an older export of that name is replaced.

    kernels: may be of several kinds of problem; each kind gets its own selector. solutions: the list that the
    kernels come from, for the manifest. Raises ModelError for a model or kernels that native code does not
    support, and for a folder that is not an export.
    """
    model, folder = NativeModel.load(model_folder), Path(folder)
    if not kernels:
        raise ModelError("there are no kernels to export")
    if folder.exists() and not is_export(folder):
        raise ModelError(f"{folder} exists and is not an export of a model: choose another name")
    of_kind: dict[Kind, list[Kernel]] = {}
    for kernel in kernels:
        of_kind.setdefault(kernel.kind, []).append(kernel)
    files = {
        MANIFEST_FILE: _manifest(model, of_kind, solutions),
        "README.md": _readme(model, of_kind).encode(),
    }
    for kind, listed in of_kind.items():
        files[f"{file_stem(kind)}.selector"] = selector_bytes(model, listed)
        files[f"{file_stem(kind)}.kernels.txt"] = "".join(f"{k.name}\n" for k in listed).encode()
    with disk_errors_as(ModelError, f"cannot write {folder}"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        shutil.copytree(
            data_folder("selector"), staging, dirs_exist_ok=True, ignore=shutil.ignore_patterns("build")
        )
        for name, data in files.items():
            (staging / name).write_bytes(data)
        staging.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        staging.replace(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Exported(folder, {k: len(v) for k, v in of_kind.items()}, sum(map(len, files.values())))


def is_export(folder: Path) -> bool:
    """Returns whether the folder was written by `export_model`."""
    try:
        found = json.loads((folder / MANIFEST_FILE).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("format") == _FORMAT


def manifest_trees(model: NativeModel) -> dict[str, list[str]]:
    """Returns the hashes of a model's trees that a manifest records: member -> one for each booster."""
    return {
        name: [hashlib.sha256(forest.to_bytes()).hexdigest() for forest in forests]
        for name, forests in model.forests.items()
    }


def _manifest(
    model: NativeModel, of_kind: Mapping[Kind, Sequence[Kernel]], solutions: SolutionNames | None
) -> bytes:
    value: dict[str, object] = {
        "format": _FORMAT,
        "model": model.folder.resolve().name,
        "arch": model.spec.arch,
        "harness_version": __version__,
        "forests_sha256": manifest_trees(model),
        "selectors": {
            f"{file_stem(kind)}.selector": {"problems": kind_text(kind), "kernels": len(kernels)}
            for kind, kernels in of_kind.items()
        },
    }
    if solutions is not None:
        value["solutions"] = {
            "names": solutions.names,
            "never_picked": dict(solutions.never_picked),
            "untrained": solutions.untrained,
        }
    return (json.dumps(value, indent=2) + "\n").encode()


def _readme(model: NativeModel, of_kind: Mapping[Kind, Sequence[Kernel]]) -> str:
    kind = next(iter(of_kind))
    words, code = _example(kind.op)
    rows = (f"| `{file_stem(k)}.selector` | {kind_text(k)} | {len(v):,} |" for k, v in of_kind.items())
    return _README.format(
        model=model.folder.resolve().name,
        arch=model.spec.arch,
        table="\n".join(rows),
        stem=file_stem(kind),
        words=words,
        code=code,
        fields=" ".join(problem_fields(op_of_model(model.spec.op_type))),
    )


_EXAMPLE_OF = {
    "grouped_conv": ("GroupedConvProblem", "N=8 C=64 K=64 Hi=56 Wi=56 Y=3 X=3 pad_h=1 pad_w=1"),
    "gemm": ("GemmProblem", "M=1 N=4096 K=4096"),
    "attention": ("AttentionProblem", "batch=8 heads=32 kv_heads=8 seq_q=1 seq_kv=4096"),
}
"""Operation -> the structure of its problems in C++, and the values of one."""


def _example(op: str) -> tuple[str, str]:
    """Returns a problem as words of the example program, and as C++."""
    if op not in _EXAMPLE_OF:
        fields = problem_fields(op)
        values = ", ".join("64" for _ in fields)
        return " ".join(f"{name}=64" for name in fields), f"const std::vector<double> problem{{{values}}};"
    structure, words = _EXAMPLE_OF[op]
    values = textwrap.fill(", ".join(f".{word.replace('=', ' = ')}" for word in words.split()), 70)
    return words, f"tile_oracle::{structure} problem{{{values}}};"


_README = """\
# Kernel selector: {model}

Picks the kernel that a model predicts to be fastest on {arch}. Made by `tile-oracle model export`; needs a
compiler of C++20 and nothing else.

| file | problems | kernels |
|---|---|---|
{table}

Build the library and the example, and ask it:

    make
    build/pick {stem}.selector {words}

In a program of your own, with `include/` on its include path and `build/libtile_oracle_selector.a`:

```cpp
#include "tile_oracle/selector.hpp"

const auto selector = tile_oracle::Selector::load("{stem}.selector");  // once
{code}
const std::string& kernel = selector.name(selector.pick(problem));
```

A dispatcher with an array of functions of its own asks `tile_oracle/solutions.hpp` for a place in that array;
`example/dispatch/dispatch.cpp` shows how.

A loaded selector may be used by any number of threads. Kernels are numbered as `{stem}.kernels.txt` lists
them. C callers have `tile_oracle/selector_c.h`, where a problem is the values of its fields, in this order:

    {fields}

The answers are those of Python's `Predictor`, bit for bit, on every processor. So the sources must not be
compiled with `-ffast-math`, and need `-ffp-contract=off` where the compiler would otherwise fuse products and
sums (GCC does on processors with such an instruction); a selector refuses to load where it was forgotten.
"""
