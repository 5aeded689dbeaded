"""Prints a digest of all that `make pool` compiles: names, translation units and headers.

    python .ci/pool_units.py ARCH KERNEL_SET DTYPE

These are the convolutions of a data type and, for gfx9, all GEMMs, of which `make pool` compiles a sample.
While they stay equal, the code that makes them may change without compiling them again.
"""

from __future__ import annotations

import hashlib
import sys
from contextlib import redirect_stdout
from io import StringIO

from tile_oracle.cli import main
from tile_oracle.compiling.native import native_source
from tile_oracle.errors import KernelError
from tile_oracle.kernel import parse_kernel_name


def digest(arch: str, kernel_set: str, dtype: str) -> str:
    """Returns it. Kernels without code on the architecture count by their names."""
    source = native_source(arch)
    found = hashlib.sha256(source.headers.digest.encode())
    gemms = [["--op", "gemm"]] if arch.startswith("gfx9") else []
    for options in (["--kernel-set", kernel_set, "--dtype", dtype], *gemms):
        with redirect_stdout(StringIO()) as listed:
            if main(["pool", "list", "--list", "--arch", arch, *options]):
                raise SystemExit(f".ci/pool_units.py: no list of {arch} {options}")
        for name in listed.getvalue().split():
            try:
                unit = source.unit(parse_kernel_name(name))
            except KernelError:
                unit = ""
            found.update(f"{name}\0{unit}\0".encode())
    return found.hexdigest()


if __name__ == "__main__":
    print(digest(*sys.argv[1:]))
