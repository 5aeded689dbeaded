"""`tile-oracle doctor`: what this machine has, what works, what is missing and how to get it."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tile_oracle.commands.arguments import BUILD_DIR, ONLY_JSON, show
from tile_oracle.compiling import gpu_toolchain
from tile_oracle.compiling.cache import check_runs_code, default_cache_folder
from tile_oracle.compiling.ck_tile.api import CkTileApi, detect
from tile_oracle.compiling.ck_tile.headers import find_headers
from tile_oracle.compiling.ck_tile.kernel_source import source_for
from tile_oracle.compiling.ck_tile.toolchain import find_ck_tile_toolchain
from tile_oracle.compiling.isa import AMD_ARCHS, GPU_MACHINES
from tile_oracle.compiling.nvcc import find_cuda_program
from tile_oracle.compiling.toolchain import find_toolchain
from tile_oracle.errors import GateError, HarnessError, KernelError, ModelError
from tile_oracle.features.schemas import op_of_model
from tile_oracle.files.lock_folder import describe_lock_folder
from tile_oracle.files.trusted_folder import check_trusted
from tile_oracle.files.vouched_files import seal_baseline, seal_folder
from tile_oracle.measure.child import what_holds
from tile_oracle.measure.containment import VARIABLE as CONTAINMENT_VARIABLE
from tile_oracle.measure.containment import containment_for
from tile_oracle.model import store
from tile_oracle.model.model_folder import read_spec
from tile_oracle.operation import Kind
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS
from tile_oracle.pool import pool_of_kind
from tile_oracle.targets.device_state import why_not_readable
from tile_oracle.targets.gpu_presence import Presence, amd_presence, nvidia_presence
from tile_oracle.targets.resolve import amd_targets
from tile_oracle.terminal.argument_table import argument_table
from tile_oracle.terminal.counts import count
from tile_oracle.version import __version__

EXAMPLES = """\
examples:
  tile-oracle doctor                         every target: device, compiler, what is missing
  tile-oracle doctor --ck-tile /opt/rocm     the same, and what can be measured of this CK Tile
  tile-oracle doctor --json                  for programs
  tile-oracle doctor --seal models/mine      a model folder whose files were changed by hand

Exit status: 0 if a target can run here, else 1.
"""

GOOD, BAD, NOTE = "ok", "missing", "note"
DEVICE = "device and runtime"

_MOST_WHYS = 6
_LOW_DISK_BYTES = 2 << 30


@dataclass(frozen=True)
class Finding:
    """The result of one check. state: ok, missing, or note (for information)."""

    state: str
    what: str
    text: str


@dataclass(frozen=True)
class TargetFindings:
    """What was found for one target, and whether kernels can run on it here."""

    target: str
    findings: tuple[Finding, ...]

    @property
    def runs(self) -> bool:
        """Whether kernels can be built and run."""
        return all(finding.state != BAD for finding in self.findings)

    @property
    def device_is_there(self) -> bool:
        """Whether at least prebuilt kernels can run."""
        return all(finding.state != BAD for finding in self.findings if finding.what == DEVICE)

    @property
    def verdict(self) -> str:
        """What can be done here, in words."""
        if self.runs:
            return "kernels can run here"
        if self.device_is_there:
            return "runs kernels built elsewhere (tile-oracle build there, --build-dir here)"
        return "cannot run here"


def _tried(what: str, find: Callable[[], object], said: str = "") -> Finding:
    """Returns a finding with what a call returns (said: instead of it), or with the error that it raises."""
    try:
        found = find()
        return Finding(GOOD, what, said or str(found))
    except HarnessError as error:
        return Finding(BAD, what, str(error))


ARGUMENTS = argument_table(f"""
{BUILD_DIR}
--ck-tile DIR  a checkout of Composable Kernel or a ROCm install to look at (default: ROCm's, if it is there)
--json  print the findings {ONLY_JSON}
--seal FOLDER...  trust the files of these model folders as they are, and write their digests into
    train_manifest.json and into the baselines. For files changed on purpose; what writes models and oracles
    does it itself; without --json
""")


def run(args: argparse.Namespace) -> int:
    """Prints what was found; returns 1 when no target can run here."""
    if args.seal:
        return _seal(args.seal)
    targets = examine_targets(args.build_dir)
    chosen = next((target.target for target in targets if target.device_is_there), None)
    runs = any(target.runs for target in targets)
    ck_tile = {str(folder): examine_ck_tile(folder) for folder in _ck_tile_folders(args.ck_tile)}
    further = {
        "installation": ("this installation:", examine_installation(args.build_dir)),
        "containment": ("kernels are contained by:", examine_containment()),
        "models": ("models (a session's header says which it takes, and why):", examine_models()),
    }
    python, system = platform.python_version(), platform.platform()
    document = {
        **{"tile_oracle": __version__, "python": python, "platform": system},
        "auto": chosen if runs else None,
        "targets": [
            {"target": one.target, "runs": one.runs, "verdict": one.verdict, "findings": one.findings}
            for one in targets
        ],
        "ck_tile": ck_tile,
        **{name: findings for name, (_, findings) in further.items()},
    }
    parts = [(f"target {one.target}: {one.verdict}", one.findings) for one in targets]
    parts += [(f"CK Tile in {folder}:", findings) for folder, findings in ck_tile.items()]
    lines = [f"tile-oracle {__version__}, Python {python}, {system}"]
    for heading, findings in (*parts, *further.values()):
        lines += ["", heading, *(f"  {one.state:8}{one.what}: {one.text}" for one in findings)]
    lines += ["", f"--target auto takes {chosen}" if runs else "no target can run here"]
    return show(args, document, lines, 0 if runs else 1)


def _seal(folders: Sequence[Path]) -> int:
    """Seals the folders and says how many files each has. Raises HarnessError."""
    for folder in folders:
        if not store.is_model_folder(folder):
            raise ModelError(f"{folder} is not a model folder: it has no {store.SPEC_FILE}")
        files = seal_folder(folder, ModelError)
        baselines = store.baseline_files(folder)
        for baseline in baselines:
            seal_baseline(baseline, GateError)
        print(f"{folder}: {files} files and {len(baselines)} baselines sealed")
    return 0


def examine_targets(build_dir: Path | None = None) -> tuple[TargetFindings, ...]:
    """Returns every target that can be here, in the order in which `auto` prefers them: of AMD's the
    architectures that there are. Touches no device. build_dir: the cache of kernels, if not the user's."""
    amd, nvidia = amd_presence(), nvidia_presence()
    loading = _tried("loading", lambda: check_runs_code(_cache(build_dir)))
    return (
        *(TargetFindings(arch, (*_gpu(arch, amd.of(arch)), _clocks("amd"))) for arch in _amd_shown(amd)),
        TargetFindings("sm_90", (*_gpu("sm_90", nvidia), *_cuda_programs(), _clocks("nvidia"))),
        TargetFindings(
            "cpu",
            (
                _tried("compiler", lambda: find_toolchain().identity),
                *([loading] if loading.state == BAD else []),
            ),
        ),
    )


def _cache(build_dir: Path | None) -> Path:
    return default_cache_folder() if build_dir is None else build_dir.absolute()


def _amd_shown(found: Presence) -> tuple[str, ...]:
    """Returns the targets that AMD's GPUs are; the newest one when there is none."""
    return amd_targets(found) or AMD_ARCHS[:1]


def _ck_tile_folders(given: Path | None) -> list[Path]:
    if given is not None:
        return [given.absolute()]
    return [f for f in gpu_toolchain.rocm_folders() if (f / "include" / "ck_tile" / "core.hpp").is_file()][:1]


def examine_ck_tile(folder: Path) -> tuple[Finding, ...]:
    """Which of CK Tile's kernels can be built from a checkout or an install, and what of the adapter's
    assumptions does not hold there. Nothing is compiled."""
    try:
        api = detect(find_headers(folder))
    except HarnessError as error:
        return (Finding(BAD, "headers", str(error)),)
    headers = api.headers
    found = [Finding(GOOD, "headers", f"{headers.identity}, {headers.count} files in {headers.include}")]
    for operation in (*DIRECTIONS, "gemm"):
        why = api.missing.get(operation)
        found += [Finding(BAD, operation, why)] if why else _of_the_pool(api, operation)
    pipelines = ", ".join(
        f"{name} ({'/'.join(sorted(pipeline.schedulers)) or 'one schedule'})"
        for name, pipeline in sorted(api.pipelines.items())
    )
    found.append(Finding(NOTE, "pipelines", pipelines or "none that are known"))
    arch = _amd_shown(amd_presence())[0]
    found.append(_tried("compiler", lambda: find_ck_tile_toolchain("auto", arch, headers).identity))
    # hipcc's identity is HIP's version; the fingerprint has the clang's.
    if _loses_waits(_tried("", lambda: find_ck_tile_toolchain("auto", arch, headers).fingerprint).text):
        check = f"tile-oracle build --ck-tile {shlex.quote(str(folder))} --verify ..."
        found.append(Finding(NOTE, _WAITS, f"{_LOST}; check yours: {check}"))
    return tuple(found)


def _of_the_pool(api: CkTileApi, operation: str) -> list[Finding]:
    """Returns how many kernels of the default pool a version of CK Tile has, and what the others assume of
    it."""
    gemm = operation == "gemm"
    of_conv = Kind.of("grouped_conv", direction=operation, dtype="bf16", ndim=2)
    pool = pool_of_kind(Kind.of("gemm", dtype="bf16", layout="rcr") if gemm else of_conv, "gfx950")
    refused: Counter[str] = Counter()
    for kernel in pool:
        try:
            source_for(api, kernel)
        except KernelError as error:
            refused[str(error)] += 1
    there, kind = len(pool) - refused.total(), "bf16 rcr" if gemm else "2D, bf16"
    said = f"{there} of the {len(pool)} in the default pool ({kind})"
    made = Finding(GOOD, operation, f"kernels can be made, {said}")
    found = [made if there else Finding(BAD, operation, f"no kernel can be made: {said}")]
    return found + [
        Finding(NOTE, f"{operation} lacks {n}", why) for why, n in refused.most_common(_MOST_WHYS)
    ]


def _gpu(arch: str, presence: Presence) -> Iterator[Finding]:
    devices = presence.devices if presence.usable else 0
    counted = f"; {count(devices, 'device')}" if devices else ""
    yield Finding(GOOD if presence.usable else BAD, DEVICE, f"{presence.why}{counted}")
    compiler, *others = (
        _tried(name, lambda name=name: gpu_toolchain.find_gpu_toolchain(name, arch).identity)  # type: ignore[misc]
        for name in ("auto", *gpu_toolchain.gpu_toolchain_names(GPU_MACHINES[arch])[1:])
    )
    yield replace(compiler, what="compiler")
    if arch in AMD_ARCHS and compiler.state == GOOD and _loses_waits(compiler.text):
        own = "tile-oracle's kernels work around it; check yours: tile-oracle pool list --verify FILE"
        yield Finding(NOTE, _WAITS, f"{_LOST}; {own}")
    if found := [f"--toolchain {one.what} ({one.text})" for one in others if one.state == GOOD]:
        yield Finding(NOTE, "also there", ", ".join(found))


def _loses_waits(said: str) -> bool:
    """Returns whether a compiler for AMD's GPUs has known bugs in its waits, by its identity or
    fingerprint."""
    match = re.search(r"clang (?:version )?(\d+)\.(\d+)\.(\d+)", said)
    return match is not None and tuple(map(int, match.groups())) <= _LAST_WITH_LOST_WAITS


_WAITS = "its waits"
_LOST = "known bug: this clang can drop LDS waits"
_LAST_WITH_LOST_WAITS = (22, 1, 8)
"""The newest clang known to have both bugs (LLVM issue 211684, pull request 179305)."""


def _clocks(vendor: str) -> Finding:
    """Returns whether clocks can be recorded with measurements."""
    missing = why_not_readable(vendor)
    said = f"not recorded with measurements: {missing}" if missing else "recorded with measurements"
    return Finding(NOTE, "clocks", said)


_NO_PTXAS = (
    "not there: the driver assembles each kernel when it is loaded, and whether it spills is not known here "
    "(pip install 'tile-oracle[cuda]')"
)


def _cuda_programs() -> Iterator[Finding]:
    """Yields what ptxas is good for, and why an installed nvcc cannot be used."""
    path = gpu_toolchain.find_ptxas()
    yield Finding(NOTE, "ptxas", f"{path}: kernels are assembled when they are built" if path else _NO_PTXAS)
    if find_cuda_program("nvcc") is not None:
        nvcc = _tried("nvcc", lambda: gpu_toolchain.find_gpu_toolchain("nvcc", "sm_90"))
        yield from [replace(nvcc, state=NOTE)] if nvcc.state == BAD else []


def examine_containment() -> tuple[Finding, ...]:
    """Returns which containment works here and which does not, with reasons; starts a worker to find out."""
    try:
        held = containment_for("cpu")
    except HarnessError as error:
        return (Finding(BAD, "containment", str(error)),)
    around = what_holds(held)
    limits = f"files of {held.file_bytes / 2**30:.0f} GiB, {held.most_tasks:,} processes and threads"
    return (
        _namespaces(held.namespaces, around),
        Finding(NOTE, "namespaces, GPU targets", f"none unless {CONTAINMENT_VARIABLE}=full"),
        Finding(GOOD, "limits", f"{held.memory_bytes / 2**30:.1f} GiB of memory (target cpu), {limits}"),
        Finding(GOOD, "guardian", "ends all processes of a worker, and one that stops the harness"),
    )


def _namespaces(wanted: bool, around: frozenset[str]) -> Finding:
    what = "namespaces, target cpu"
    if not wanted:
        return Finding(NOTE, what, f"not used: {CONTAINMENT_VARIABLE} says so")
    if "pid" not in around:
        return Finding(NOTE, what, "not used: this system lets its users make none")
    hidden = "" if "proc" in around else "; it still sees the processes outside in /proc"
    return Finding(GOOD, what, f"a worker cannot signal what is outside, and has no network{hidden}")


def examine_models() -> tuple[Finding, ...]:
    """Returns the model folders that sessions and picks consider: those in models/, then the shipped ones."""
    places = (Path("models"), store.shipped_models())
    folders = (folder.resolve() for place in places for folder in store.model_folders(place))
    return tuple(map(_model, dict.fromkeys(folders)))


def _model(folder: Path) -> Finding:
    whose = "shipped" if folder.parent == store.shipped_models().resolve() else f"your own, {folder}"
    try:
        spec, manifest = read_spec(folder), store.read_manifest(folder)
    except HarnessError as error:
        return Finding(BAD, folder.name, f"{whose}; no session can use models until it is mended: {error}")
    count = len(store.kernels_trained_on(folder))
    kind = " ".join(
        filter(None, (op_of_model(spec.op_type), spec.direction, spec.dtype, "/".join(spec.layouts)))
    )
    known = f"trained on {count:,} kernels" if count else "does not list its kernels"
    on = f", measured on {', '.join(spec.devices)}" if spec.devices else ""
    when = str(manifest.get("timestamp") or "undated")[:10]
    return Finding(GOOD, folder.name, f"{whose}; {kind} on {spec.arch}; {known}{on}, {when}")


def examine_installation(build_dir: Path | None = None) -> tuple[Finding, ...]:
    """The cache folder and its disk, and the folder of locks."""
    line = describe_lock_folder()
    locks = Finding(NOTE if line.startswith("none") else GOOD, "locks of cores and GPUs", line)
    what = "cache of kernels"
    if (cache := _tried(what, lambda: _cache(build_dir))).state == BAD:
        return cache, locks
    folder = _cache(build_dir)
    there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
        text = f"{folder} cannot be written: set TILE_ORACLE_CACHE or give --build-dir"
        return Finding(BAD, what, text), locks
    trusted = _tried(what, lambda: check_trusted(folder, "the binaries"), str(folder))
    free_bytes = shutil.disk_usage(there).free
    low = ": make room, a pool of kernels takes up to 2 GiB" if free_bytes < _LOW_DISK_BYTES else ""
    return trusted, Finding(NOTE if low else GOOD, "disk", f"{free_bytes / 2**30:.1f} GiB free{low}"), locks
