"""The Triton kernels that ship, `--kernels triton`: those of all files in this folder."""

from importlib import import_module
from pathlib import Path

for file in sorted(Path(__file__).parent.glob("*.py")):
    if file.name != Path(__file__).name:
        import_module(file.stem)
