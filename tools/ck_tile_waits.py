"""Verifies CK Tile's own kernels: two of each version of the headers, operation and pipeline, for gfx950.

    python -m tools.ck_tile_waits -o FOLDER [-j JOBS]

The headers are those of .ci/ck_tile_headers.py. FOLDER keeps the assembly of each kernel, so a stopped run
goes on. Prints a table, and a line for each kernel to stderr. The exit status is 1 when a kernel was not
verified.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import cast

from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.ck_tile.api import CkTileApi, detect
from tile_oracle.compiling.ck_tile.headers import find_headers
from tile_oracle.compiling.ck_tile.kernel_source import CkTileSource, source_for
from tile_oracle.compiling.ck_tile.toolchain import HIP_HEADERS, find_ck_tile_toolchain, prepared_folder
from tile_oracle.errors import BuildError, KernelError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.kernel import TiledKernel, parse_kernel_name
from tile_oracle.operation import Kind
from tile_oracle.pool import pool_of_kind
from tile_oracle.verify.verifier import verify_assembly

ARCH = "gfx950"
VERSIONS = {"ck-newer": "November 2025", "ck": "mid 2025", "ck-older": "early 2025"}
"""Folder of headers -> the version's name in the docs."""
OF_EACH = 2
SEED = 1
LARGEST = 64 * 64
"""Values of a result tile. Larger ones compile for many minutes."""

_ALTERNATING = "gemm_{}_rcr_compv5_{}_intrawave_False_False_False_False_64x64x64_1x1x2_32x32x16"
"""compv5 takes two groups of one wave, which no rule set has."""
_COMPILE_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class Chosen:
    """A kernel to verify. operation: gemm, or the direction of a convolution."""

    folder: str
    operation: str
    pipeline: str
    kernel: TiledKernel


@dataclass(frozen=True)
class Outcome:
    """A kernel's verdict. functions: kernels and device functions in its code. why_not: "" if verified."""

    chosen: Chosen
    functions: int = 0
    rules: Mapping[str, int] | None = None
    why_not: str = ""


def choices(api: CkTileApi, folder: str) -> Iterator[Chosen]:
    """Two kernels of each operation and pipeline that this version builds: bf16 and fp16, both schedules."""
    for operation, kinds in _kinds():
        if operation in api.missing:
            continue
        for pipeline in api.pipelines:
            pools = [[one for one in _pool(kind) if one.pipeline == pipeline] for kind in kinds]
            if pipeline == "compv5" and operation == "gemm":
                epilogues = ("cshuffle", "default")
                pools = [[_tiled(_ALTERNATING.format("bf16", epilogue)) for epilogue in epilogues]]
                pools += [[_tiled(_ALTERNATING.format("fp16", "default"))]]
            taken: list[TiledKernel] = []
            for pool in pools:
                taken += _first_that_builds(api, pool, {one.scheduler for one in taken})
            for kernel in taken:
                yield Chosen(folder, operation, pipeline, kernel)


def _kinds() -> Iterator[tuple[str, tuple[Kind, ...]]]:
    yield "gemm", tuple(Kind.of("gemm", dtype=dtype, layout="rcr") for dtype in ("bf16", "fp16"))
    for direction in ("forward", "bwd_data", "bwd_weight"):
        fields = {"direction": direction, "ndim": 2}
        yield direction, tuple(Kind.of("grouped_conv", dtype=dtype, **fields) for dtype in ("bf16", "fp16"))


@cache
def _pool(kind: Kind) -> list[TiledKernel]:
    found = [cast(TiledKernel, one) for one in pool_of_kind(kind, ARCH, "full")]
    small = [one for one in found if one.tile[0] * one.tile[1] <= LARGEST and one.tile[2] <= 64]
    random.Random(f"{SEED} {kind.words['dtype']}").shuffle(small)
    return small


def _tiled(name: str) -> TiledKernel:
    return cast(TiledKernel, parse_kernel_name(name))


def _first_that_builds(api: CkTileApi, pool: Sequence[TiledKernel], seen: set[str]) -> list[TiledKernel]:
    """The pool's first kernel that the headers have; one of another schedule, if there is any."""
    for kernel in sorted(pool, key=lambda one: one.scheduler in seen):
        try:
            source_for(api, kernel)
        except KernelError:
            continue
        return [kernel]
    return []


class Bench:
    """Compiles and verifies kernels of one version of the headers; assembly is kept in a folder."""

    def __init__(self, made: Path, folder: str, out: Path) -> None:
        self.api = detect(find_headers(made / folder))
        self._out = out
        self._source = CkTileSource(ARCH, self.api, with_races=True)
        self._toolchain = find_ck_tile_toolchain("ziglang", ARCH, self.api.headers, {HIP_HEADERS: str(made)})

    def verify(self, chosen: Chosen) -> Outcome:
        """Compiles the kernel, unless its assembly is there, and verifies it."""
        try:
            report = verify_assembly(self._assembly(chosen.kernel))
        except BuildError as error:
            return Outcome(chosen, why_not=" ".join(str(error).split()))
        rules = Counter(finding.rule for finding in report.findings)
        unread = sorted({line.rpartition(": ")[2] for line in report.incomplete})
        return Outcome(chosen, len(report.functions), rules, "; ".join(unread))

    def _assembly(self, kernel: TiledKernel) -> str:
        made_of = self._source.unit(kernel) + self._toolchain.fingerprint + self._source.identity
        path = self._out / f"{kernel.name}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}.s.gz"
        refused = path.with_suffix(".log")
        if refused.is_file():
            raise BuildError(refused.read_text("utf-8"))
        if not path.is_file():
            with Builder(
                ARCH,
                toolchain=self._toolchain,
                build_dir=self._out / "cache",
                runs_here=False,
                source=self._source,
                timeout_s=_COMPILE_TIMEOUT_S,
            ) as builder:
                try:
                    text = builder.assembly(kernel)
                except BuildError as error:
                    write_atomically(refused, str(error).encode())
                    raise
            write_atomically(path, gzip.compress(text.encode(), mtime=0))
        return gzip.decompress(path.read_bytes()).decode()


def table(found: Sequence[Outcome]) -> list[str]:
    """Return a Markdown table: a row for each version, operation and pipeline."""
    rows = ["| version | operation | pipeline | kernels | findings |", "|---|---|---|---|---|"]
    for (folder, operation, pipeline), group in groupby(
        found, lambda one: (one.chosen.folder, one.chosen.operation, one.chosen.pipeline)
    ):
        outcomes = list(group)
        kernels = ", ".join(map(_short, outcomes))
        findings = _together(outcomes)
        rows.append(f"| {VERSIONS[folder]} | {operation} | {pipeline} | {kernels} | {findings} |")
    return rows


def _together(outcomes: Sequence[Outcome]) -> str:
    """What was found in the kernels of a row; with their data types if it differs."""
    said = [_said(one) for one in outcomes]
    if len(set(said)) == 1:
        return said[0]
    return "; ".join(f"{one.chosen.kernel.dtype}: {what}" for one, what in zip(outcomes, said, strict=True))


def _short(one: Outcome) -> str:
    kernel = one.chosen.kernel
    schedule = " interwave" if kernel.scheduler == "interwave" else ""
    persistent = " persistent" if getattr(kernel, "persistent", False) else ""
    return f"{kernel.dtype} {'x'.join(map(str, kernel.tile))}{schedule}{persistent}"


def _said(one: Outcome) -> str:
    if one.rules is None:
        return f"not verified: {one.why_not[:200]}"
    said = ", ".join(f"{count} of `{rule}`" for rule, count in sorted(one.rules.items())) or "none"
    return f"{said} ({one.why_not})" if one.why_not else said


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="keeps assembly")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="compilers at once (default: %(default)s)")
    args = parser.parse_args(arguments)
    args.output.mkdir(parents=True, exist_ok=True)
    made = prepared_folder(os.environ)
    benches = [(folder, Bench(made, folder, args.output)) for folder in VERSIONS]
    work = [(bench, chosen) for folder, bench in benches for chosen in choices(bench.api, folder)]
    found = []
    with ThreadPoolExecutor(max(1, args.jobs)) as pool:
        for outcome in pool.map(lambda pair: pair[0].verify(pair[1]), work):
            found.append(outcome)
            kernel = f"{VERSIONS[outcome.chosen.folder]}: {outcome.chosen.kernel.name}"
            said = f"{outcome.functions} functions, {_said(outcome)}"
            print(f"{len(found)}/{len(work)} {kernel}: {said}", file=sys.stderr, flush=True)
    print("\n".join(table(found)))
    return 1 if any(one.rules is None for one in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
