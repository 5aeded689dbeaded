"""Packs what a machine with a GPU and without a compiler needs for the figures of this folder.

    python benchmarks/gpu/make_kit.py gpu-kit            (make gpu-kit) here, with a compiler and ptxas
    python benchmarks/gpu/run.py gpu-kit                 there, in a copy of this checkout

    gpu-kit/kernels.tar.xz     the default pool, compiled; the harness's own device code
    gpu-kit/evil.tar.xz        the kernels of tests/gpu
    gpu-kit/packages.tar.xz    nvidia-ml-py, Kernel Tuner and what that needs, as folders to import
    gpu-kit/kit.json           what made it

A later call only compiles what has changed: binaries are kept in the cache of kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 64 << 20
KERNEL_TUNER = (
    *("kernel-tuner", "python-constraint2", "xmltodict", "jsonschema", "jsonschema-specifications"),
    *("referencing", "rpds-py", "attrs", "typing-extensions", "packaging"),
)
NOTES_CLOCKS = ("nvidia-ml-py",)


def main() -> int:
    """Returns 1 when kernels do not compile, or the folder is larger than it may be."""
    parser = argparse.ArgumentParser(description="Packs the figures of benchmarks/gpu for another machine.")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--arch",
        default="sm_90",
        choices=("sm_90", "gfx950", "gfx942", "gfx90a", "cpu"),
        help="cpu: a dry run",
    )
    parser.add_argument("--kernel-set", default=None, help="default: default; with --arch cpu: tiny")
    parser.add_argument("--dtype", default="bf16,fp16", help="of bf16, fp16 (default: both)")
    parser.add_argument("--direction", default="forward,bwd_data,bwd_weight", help="default: all")
    parser.add_argument("--ndim", default="2,3", help="of 2, 3 (default: %(default)s)")
    parser.add_argument(
        "--kernel-filter",
        default="",
        help="only kernels for which it is true; enough for faults and sessions",
    )
    parser.add_argument("--build-dir", type=Path, help="cache of binaries (default: the user's)")
    parser.add_argument("--jobs", type=int, help="compilers at once (default: of tile-oracle build)")
    parser.add_argument("--python", default="3.12", help="of the other machine, for packages")
    parser.add_argument("--no-packages", action="store_true", help="neither nvidia-ml-py nor Kernel Tuner")
    args = parser.parse_args()
    args.folder = args.folder.absolute()  # what is started below works in folders of its own
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
        work = Path(scratch)
        if not build(args, work / "kernels"):
            return 1
        pack(work / "kernels", args.folder / "kernels.tar.xz")
        if args.arch != "cpu":
            command = [sys.executable, str(ROOT / "tests" / "gpu" / "test_on_gpu.py"), args.arch]
            subprocess.run([*command, str(work / "evil")], check=True, env=environment(), cwd=work)
            pack(work / "evil", args.folder / "evil.tar.xz")
        if not args.no_packages:
            packages(work / "packages", args.python)
            pack(work / "packages", args.folder / "packages.tar.xz")
    facts = {"arch": args.arch, "kernel_set": kernel_set(args), "python": args.python, "dtype": args.dtype}
    facts["kernel_filter"] = args.kernel_filter
    (args.folder / "kit.json").write_text(json.dumps(facts, indent=1) + "\n")
    size = sum(path.stat().st_size for path in args.folder.rglob("*") if path.is_file())
    print(f"{args.folder}: {size / 2**20:.1f} MiB")
    if size > MOST_BYTES:
        print(f"that is more than {MOST_BYTES >> 20} MiB: leave something out", file=sys.stderr)
        return 1
    return 0


def kernel_set(args: argparse.Namespace) -> str:
    return args.kernel_set or ("tiny" if args.arch == "cpu" else "default")


def build(args: argparse.Namespace, folder: Path) -> bool:
    command = [sys.executable, "-m", "tile_oracle.cli", "build", "-o", str(folder), f"--arch={args.arch}"]
    command += [f"--kernel-set={kernel_set(args)}", f"--direction={args.direction}"]
    command += [f"--dtype={args.dtype}", f"--ndim={args.ndim}"]
    if args.jobs is not None:
        command.append(f"--jobs={args.jobs}")
    if args.kernel_filter:
        command.append(f"--kernel-filter={args.kernel_filter}")
    if args.build_dir is not None:
        command.append(f"--build-dir={args.build_dir}")
    return subprocess.run(command, check=False, env=environment()).returncode == 0


def packages(folder: Path, python: str) -> None:
    """Installed side by side into a folder, without what they do not need here."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += [f"--python-version={python}", f"--target={folder}", "--disable-pip-version-check"]
    subprocess.run([*command, *NOTES_CLOCKS, *KERNEL_TUNER], check=True)


def environment() -> dict[str, str]:
    search = os.pathsep.join(
        filter(None, [str(ROOT / "harness"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    )
    return {**os.environ, "PYTHONPATH": search}


def pack(folder: Path, archive: Path) -> None:
    """One stream, so that what kernels have in common is stored once; sorted, so that equal is equal."""
    with tarfile.open(archive, "w:xz", preset=6) as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                tar.add(path, path.relative_to(folder).as_posix())
        if not tar.getmembers():
            raise SystemExit(f"there is nothing in {folder} to pack")


if __name__ == "__main__":
    sys.exit(main())
