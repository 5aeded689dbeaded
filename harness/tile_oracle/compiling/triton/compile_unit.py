"""Compiles one kernel. `main` is the program of a child process.

UNIT is a specification of tile_oracle.compiling.triton.specify as JSON, FOLDER has the user's files, ARCHIVE
gets the binaries and what their launches need (tile_oracle.triton.archive). ASSEMBLY, for an AMD GPU, gets
the assembly that Triton makes the binaries from, one file after another.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tile_oracle.compiling.triton.user_file import FileFailure, import_declarations, jit_function, one_line
from tile_oracle.errors import HarnessError
from tile_oracle.triton.archive import write_archive
from tile_oracle.triton.views import LANGUAGE

# With line information the binary would depend on the name of the work folder.
SETTINGS = {"TRITON_DEFAULT_FP_FUSION": "1", "TRITON_DISABLE_LINE_INFO": "1"}
os.environ.update(SETTINGS)


def target(arch: str) -> Any:
    """Triton's name of an architecture."""
    compiler = importlib.import_module("triton.backends.compiler")
    if arch.startswith("sm_"):
        return compiler.GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)
    return compiler.GPUTarget("hip", arch, 64)


@cache
def declarations_in(file: Path) -> list[Any]:
    """The declarations of a file, which is imported once. Raises FileFailure."""
    return list(import_declarations(file))


def compile_unit(unit: dict[str, Any], folder: Path, archive: Path, assembly: Path | None = None) -> None:
    """Compiles every launch of every variant. Raises FileFailure."""
    # Otherwise each process reads the whole compiler, half a gigabyte, for the key of a cache that is not
    # used.
    cache: Any = importlib.import_module("triton.runtime.cache")
    cache.triton_key = lambda: "unused"
    os.environ.update(unit.get("environment", {}))
    declaration = declarations_in(folder / unit["file"])[unit["declaration"]]
    functions = [declaration.main.function, *(one.function for one in declaration.after)]
    images: dict[str, bytes] = {}
    texts: list[str] = []
    variants = []
    for variant in unit["variants"]:
        launches = []
        for launch, multiples, near in zip(
            unit["launches"], variant["multiples"], variant["near"], strict=True
        ):
            jit = jit_function(functions[launch["number"]])
            made = _compiled(jit, launch, multiples, near, unit, folder)
            suffix = "cubin" if unit["arch"].startswith("sm_") else "hsaco"
            name = f"{variant['name']}-{launch['number']}.{suffix}"
            images[name] = made.asm[suffix]
            texts.append(made.asm.get("amdgcn", ""))
            facts = made.metadata
            for what in ("launch_cooperative_grid", "launch_pdl", "profile_scratch_size", "tensordesc_meta"):
                if getattr(facts, what, None):
                    raise FileFailure(f"{unit['file']}: {jit.__name__} needs {what}, which is not supported")
            launches.append(
                {
                    "image": name,
                    "function": facts.name,
                    "threads": facts.num_warps * facts.warp_size,
                    "lds_bytes": facts.shared,
                    # Older versions say neither for AMD, where they have no such scratch.
                    "scratch_bytes": getattr(facts, "global_scratch_size", 0),
                    "scratch_align": getattr(facts, "global_scratch_align", 1),
                    "grid": launch["grid"],
                    "arguments": launch["arguments"],
                }
            )
        variants.append({"name": variant["name"], "when": variant["when"], "launches": launches})
    told = {"arch": unit["arch"], "workspace_bytes": unit["workspace_bytes"], "variants": variants}
    write_archive(archive, told, images)
    if assembly is not None:
        assembly.write_text("\n".join(texts), "utf-8")


def _compiled(
    jit: Any,
    launch: dict[str, Any],
    multiples: list[str],
    near: list[str],
    unit: dict[str, Any],
    folder: Path,
) -> Any:
    compiler = importlib.import_module("triton.compiler")
    types = {name: type_ for name, type_, _ in launch["arguments"]}
    signature = {name: types.get(name, "constexpr") for name in jit.arg_names}
    constants = {name: constant(launch["constants"][name]) for name in jit.arg_names if name not in types}
    attributes = {
        (place,): [["tt.divisibility", 16]] * (name in multiples)
        + [["tt.pointer_range", 32]] * (name in near)
        for place, name in enumerate(jit.arg_names)
        if name in types and (name in multiples or name in near)
    }
    try:
        source = _source_of(jit)(jit, signature, constants, attributes)
        return compiler.compile(source, target=target(unit["arch"]), options=dict(unit["options"]))
    except Exception as error:  # Triton raises many kinds
        first = int(jit.starting_line_number)
        line = first + int(getattr(getattr(error, "node", None), "lineno", 1)) - 1
        said = getattr(error, "error_message", None) or str(error)
        cause: BaseException | None = error.__cause__
        while said in ("", "None") and cause is not None:
            said, cause = str(cause), cause.__cause__
        file = Path(jit.fn.__code__.co_filename).name
        text = one_line(HarnessError(" ".join(said.split())), folder, file, line)
        raise FileFailure(text.replace(": ", f": error: {type(error).__name__}: ", 1)) from None


def _source_of(jit: Any) -> Any:
    """Triton's class for the source of a function: Gluon, its lower level, has one of its own."""
    if type(jit).__name__ == "GluonJITFunction":
        return importlib.import_module("triton.experimental.gluon._runtime").GluonASTSource
    return importlib.import_module("triton.compiler").ASTSource


def constant(value: Any) -> Any:
    """A constexpr from its JSON."""
    if isinstance(value, dict):
        name = str(value["dtype"])
        known = LANGUAGE.get(name, name.replace("fp8", "float8"))
        return getattr(importlib.import_module("triton.language"), known)
    return value


def main(unit: str, folder: str, archive: str, assembly: str = "") -> int:
    """Returns 1 when the kernel does not compile, with the reason on standard error."""
    try:
        told = json.loads(Path(unit).read_text("utf-8"))
        text = Path(assembly) if assembly else None
        compile_unit(told, Path(folder).resolve(), Path(archive), text)
    except HarnessError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
