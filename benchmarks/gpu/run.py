"""Measures the figures of this folder with what make_kit.py packed. Needs no compiler and no installation.

    python benchmarks/gpu/run.py gpu-kit                      all steps
    python benchmarks/gpu/run.py gpu-kit numerics speed       some of numerics, speed, throughput, tuner,
                                                              faults, sessions
    python benchmarks/gpu/run.py gpu-kit --target cpu         a dry run, with a kit made for cpu

Figures, records and logs go to $OUT, else to reports/gpu-figures; the exit status is pytest's.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import time
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = "benchmarks/gpu"
STEPS = {
    "numerics": [f"{HERE}/test_gpu_numerics.py"],
    "speed": [f"{HERE}/test_gpu_speed.py"],
    "throughput": [f"{HERE}/test_gpu_throughput.py", "-k", "busy"],
    "tuner": [f"{HERE}/test_gpu_throughput.py", "-k", "kernel_tuner"],
    "faults": ["tests/gpu/test_on_gpu.py"],
    "sessions": ["tests/gpu/test_sessions_on_gpu.py"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures the figures of benchmarks/gpu.")
    parser.add_argument("kit", type=Path)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    parser.add_argument("--target", default=None, help="gfx950, sm_90, or cpu (default: the kit's)")
    args = parser.parse_args()
    unknown = [step for step in args.steps if step not in STEPS]
    if unknown:
        parser.error(f"{unknown[0]!r} is not one of {', '.join(STEPS)}")
    if not (args.kit / "kit.json").is_file():
        parser.error(f"{args.kit} holds no kit.json: make it with benchmarks/gpu/make_kit.py")
    facts = json.loads((args.kit / "kit.json").read_text())
    out = Path(os.environ.get("OUT") or ROOT / "reports" / "gpu-figures").resolve()
    out.mkdir(parents=True, exist_ok=True)
    # Not below $OUT: what lies there is copied back. Kept, so that a second call begins at once.
    unpacked = args.kit.resolve() / "unpacked"
    for archive in sorted(args.kit.glob("*.tar.xz")):
        unpack(archive, unpacked / archive.name.removesuffix(".tar.xz"))
    environment = session_environment(args.target or facts["arch"], unpacked, out)
    environment["TILE_ORACLE_FIGURES_DTYPES"] = facts["dtype"]
    environment["TILE_ORACLE_FIGURES_FILTER"] = facts.get("kernel_filter", "")
    statuses = {}
    for step in args.steps or STEPS:
        print(f"== {step}", flush=True)
        began = time.monotonic()
        done = subprocess.run([*pytest(out), *STEPS[step]], cwd=ROOT, env=environment, check=False)
        statuses[step] = done.returncode
        print(f"== {step}: status {done.returncode}, {time.monotonic() - began:.0f} s", flush=True)
    print(json.dumps(statuses))
    return max(statuses.values())


def unpack(archive: Path, folder: Path) -> None:
    # Beside it: a folder that tile-oracle build made holds nothing else.
    mark = folder.parent / f".{folder.name}"
    made = str(archive.stat().st_mtime_ns)
    if mark.exists() and mark.read_text() == made:
        return
    folder.mkdir(parents=True, exist_ok=True)
    # Python 3.11 has filters from 3.11.4 on only; Debian 12 has 3.11.2. A kit holds plain files either way.
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as tar:
        tar.extractall(folder, **safely)
    mark.write_text(made)


def pytest(out: Path) -> list[str]:
    """With a configuration of its own: the checkout's asks for packages that only developers have."""
    ini = out / "figures.ini"
    ini.write_text("[pytest]\naddopts = --import-mode=importlib\n")
    command = [sys.executable, "-m", "pytest", "-c", str(ini), f"--rootdir={ROOT}", "-p", "no:cacheprovider"]
    if importlib.util.find_spec("pytest_benchmark") is not None:
        command += ["-p", "no:benchmark"]
    return [*command, *load_plugin(), "-v", "-s", "-rs"]


def load_plugin() -> list[str]:
    """The options that load the plugin where it is not installed, as in a copy of the checkout."""
    installed = any(point.name == "tile_oracle" for point in entry_points(group="pytest11"))
    return [] if installed else ["-p", "tile_oracle.plugin"]


def session_environment(target: str, unpacked: Path, out: Path) -> dict[str, str]:
    search = [str(ROOT / "harness"), str(ROOT), str(unpacked / "packages"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, search)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TILE_ORACLE_FIGURES_TARGET": target,
        "TILE_ORACLE_FIGURES_KERNELS": str(unpacked / "kernels"),
        "TILE_ORACLE_FIGURES_OUT": str(out),
        "TILE_ORACLE_GPU_TEST_KERNELS": str(unpacked / "evil"),
    }


if __name__ == "__main__":
    sys.exit(main())
