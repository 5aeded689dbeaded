"""Starts the child processes that import Triton and the user's file. The parent imports neither."""

from __future__ import annotations

import json
import re
import signal
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from tile_oracle.compiling.compiler_message import compiler_message
from tile_oracle.compiling.process import CompilerProcesses
from tile_oracle.compiling.toolchain import package_folders
from tile_oracle.errors import BuildError

_PACKAGE = Path(__file__).resolve().parents[3]
_MOST_ANSWER_BYTES = 256 << 20
_TIMEOUT_S = 300.0
_PR_SET_PDEATHSIG = 1
_VERSION = re.compile(r"""^__version__\s*=\s*['"]([^'"\s]{1,80})['"]""", re.MULTILINE)
HOW_TO_GET_TRITON = "pip install 'tile-oracle[triton]', or give a folder of tile-oracle build"


@lru_cache(maxsize=1)
def triton_folder() -> Path | None:
    """Returns the folder of the installed package `triton`, found without importing it; None if there is
    none."""
    return next((one for one in package_folders("triton") if (one / "__init__.py").is_file()), None)


def triton_version() -> str:
    """Returns the version of the installed Triton. Raises BuildError."""
    folder = triton_folder()
    if folder is None:
        raise BuildError(f"Triton is not installed in this Python: {HOW_TO_GET_TRITON}")
    found = _VERSION.search((folder / "__init__.py").read_text("utf-8", "replace"))
    if found is None:
        raise BuildError(f"{folder} does not say its version: install Triton again")
    return found[1]


def child_command(program: str, *arguments: str) -> tuple[str, ...]:
    """Returns the command line of `main` of one of this folder's modules, in an interpreter of its own."""
    folder = triton_folder()
    places = [str(_PACKAGE), *([str(folder.parent)] if folder is not None else [])]
    # Orphaned, it would go on for minutes, and LLVM may take 13 GB.
    end_with_parent = f"import ctypes; ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {signal.SIGKILL:d}); "
    # The environment of a compiler has neither PYTHONPATH nor a home folder with packages.
    start = f"{end_with_parent}import sys; sys.path += {places!r}; "
    run = f"from {__package__}.{program} import main; sys.exit(main(*sys.argv[1:]))"
    return (sys.executable, "-P", "-E", "-c", start + run, *arguments)


def ask_child(file: Path, question: Path, what: str) -> Mapping[str, Any]:
    """Returns the answer of `describe` to a question about a user's file, a JSON object.

    what: the user's file, for messages. Raises BuildError with one line.
    """
    with tempfile.TemporaryDirectory(prefix="tile-oracle-") as name:
        work = Path(name)
        answer = work / "answer.json"
        ended = CompilerProcesses().run(
            child_command("describe", str(file), str(question), str(answer)), work, _TIMEOUT_S
        )
        try:
            if answer.stat().st_size > _MOST_ANSWER_BYTES:
                raise BuildError(f"{what}: it declares too many kernels")
            found = json.loads(answer.read_bytes())
        except FileNotFoundError:
            said = compiler_message(ended.log) or "it said nothing"
            raise BuildError(f"{what}: its process ended without an answer: {said}") from None
        except (OSError, ValueError, RecursionError):
            raise BuildError(f"{what}: its process left an answer that cannot be read") from None
    if not isinstance(found, dict):
        raise BuildError(f"{what}: its process left an answer that is no description")
    if "error" in found:
        raise BuildError(str(found["error"])[:1000])
    return found
