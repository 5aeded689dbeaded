"""The Triton kernels that ship, `--kernels triton`: those of all files in this folder.

A file in Gluon is left out where Triton is too old to have what it uses.
"""

from importlib import import_module
from pathlib import Path

for file in sorted(Path(__file__).parent.glob("*.py")):
    if file.name != Path(__file__).name:
        try:
            import_module(file.stem)
        except ImportError as error:
            if not (error.name or "").startswith("triton.experimental"):
                raise
