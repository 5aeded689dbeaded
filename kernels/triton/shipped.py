"""The Triton kernels that ship, `--kernels triton`: those of all files in this folder."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

GLUON = find_spec("triton.experimental") and find_spec("triton.experimental.gluon")

for file in sorted(Path(__file__).parent.glob("*.py")):
    if file.stem == "gemm_warps" and not GLUON:
        continue  # Triton older than 3.4
    if file.name != Path(__file__).name:
        import_module(file.stem)
