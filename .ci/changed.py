"""Runs a command unless it has passed with the same files before.

    python .ci/changed.py [--all] NAME PATH... [WHAT=DIGEST...] -- COMMAND...

For each NAME .ci/passed.json has the digest of the files below its paths with which its command passed last;
:!PATH leaves the files below PATH out. WHAT=DIGEST stands for what code makes: the code may change while it
makes the same. The file is written when a command has passed, and is committed. With --all the command
runs in any case.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PASSED = ROOT / ".ci" / "passed.json"
LEFT_OUT = ":!"


def digest(paths: list[str]) -> str:
    """Returns the SHA-256 of the kind of machine, of each file below the paths that git would keep, and of
    the digests among them."""
    made = [path for path in paths if "=" in path]
    paths = [path for path in paths if path not in made]
    names: set[str] = set()
    for path in paths:
        if not path.startswith(LEFT_OUT):
            names.update(_files(path))
    for path in paths:
        if path.startswith(LEFT_OUT):
            names.difference_update(_files(path.removeprefix(LEFT_OUT)))
    found = hashlib.sha256("\0".join((platform.machine(), *made)).encode())
    for name in sorted(names):
        file = ROOT / name
        if file.is_file():
            found.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def _files(path: str) -> set[str]:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", path]
    told = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    if not told:
        raise SystemExit(f".ci/changed.py: there is no {path}: name the place where it went")
    return set(filter(None, told.split("\0")))


def main(arguments: list[str]) -> int:
    """Returns the command's exit status, or 0 where it does not run."""
    always = arguments[:1] == ["--all"]
    name, *rest = arguments[always:]
    border = rest.index("--")
    paths, command = rest[:border], rest[border + 1 :]
    passed = json.loads(PASSED.read_text(encoding="utf-8")) if PASSED.exists() else {}
    before = digest(paths)
    if passed.get(name) == before and not always:
        print(f"{name}: passed with these files before; .ci/run --all runs it", flush=True)
        return 0
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if status == 0:
        PASSED.write_text(
            json.dumps({**passed, name: before}, indent=2, sort_keys=True) + "\n", encoding="utf-8"
        )
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
