"""Trace files: JSON lines. The first line holds the library versions, each other line one trace.

Traces are appended as they finish, so that an interrupted crawl continues where it stopped. Problem sets can
be made from a trace file without PyTorch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tile_oracle.errors import HarnessError, ProblemError, ProblemSetError
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tools.crawl.trace import Trace

_MAX_LINE_BYTES = 4 * 2**20


class TraceFile:
    """The traces of one file. A last line that is incomplete after an interruption is dropped.

    versions: library -> version; {} accepts any. Raises ProblemSetError if the file is not a trace file or
    was made with other versions.
    """

    def __init__(self, path: Path, versions: Mapping[str, str]) -> None:
        self.path = path
        self.versions = dict(sorted(versions.items()))
        self.traces: dict[tuple[str, tuple[int, ...]], Trace] = {}
        self._whole_bytes = 0
        if path.exists():
            self._read()
        elif not versions:
            raise ProblemSetError(f"{path} does not exist; leave out --no-trace to make it")

    def add(self, trace: Trace) -> None:
        """Adds a trace and appends it to the file. Raises ProblemSetError if the file cannot be written."""
        lines = [] if self._whole_bytes else [json.dumps({"versions": self.versions})]
        lines.append(json.dumps(_as_json(trace)))
        data = "".join(line + "\n" for line in lines).encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.truncate(self._whole_bytes)
                file.write(data)
        except OSError as error:
            raise ProblemSetError(f"{self.path} cannot be written: {error.strerror}") from None
        self._whole_bytes += len(data)
        self.traces[trace.architecture, trace.resolution] = trace

    def _read(self) -> None:
        try:
            with self.path.open("rb") as file:
                for number, raw in enumerate(_whole_lines(file), 1):
                    self._take(number, raw)
                    self._whole_bytes += len(raw)
        except OSError as error:
            raise ProblemSetError(f"{self.path} cannot be read: {error.strerror}") from None

    def _take(self, number: int, raw: bytes) -> None:
        try:
            line = json.loads(raw)
            if number == 1:
                self._check_versions({str(k): str(v) for k, v in line["versions"].items()})
            else:
                trace = _from_json(line)
                self.traces[trace.architecture, trace.resolution] = trace
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reason = str(error)[:100] if isinstance(error, ProblemError) else "not a line of a trace file"
            raise ProblemSetError(
                f"{self.path}:{number}: {reason}; remove the file, or name another with --trace-file"
            ) from None

    def _check_versions(self, found: dict[str, str]) -> None:
        if self.versions and found != self.versions:
            raise ProblemSetError(
                f"{self.path} was made with {_words(found)}, but {_words(self.versions)} are installed: "
                "name another file with --trace-file"
            )
        self.versions = found


def default_trace_file(versions: Mapping[str, str]) -> Path:
    """The path in the user's cache folder, one file per set of library versions. Raises HarnessError."""
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    try:
        folder = Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        raise HarnessError("there is no home folder: name a file with --trace-file") from None
    name = "-".join(f"{library}{version}" for library, version in sorted(versions.items()))
    return folder / "tile-oracle" / "crawl" / f"{name}.jsonl"


def _whole_lines(file: Any) -> Iterator[bytes]:
    while raw := file.readline(_MAX_LINE_BYTES):
        if not raw.endswith(b"\n") and len(raw) < _MAX_LINE_BYTES:
            return
        yield raw


def _words(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{library} {version}" for library, version in sorted(versions.items()))


def _as_json(trace: Trace) -> dict[str, Any]:
    return {
        "architecture": trace.architecture,
        "family": trace.family,
        "resolution": list(trace.resolution),
        "layers": [layer.id for layer in trace.layers],
        "left_out": dict(trace.left_out),
        "error": trace.error,
        "seconds": round(trace.seconds, 3),
    }


def _from_json(line: Any) -> Trace:
    return Trace(
        architecture=_text(line["architecture"]),
        family=_text(line["family"]),
        resolution=tuple(int(extent) for extent in line["resolution"]),
        layers=tuple(GroupedConvProblem.from_id(id_) for id_ in line["layers"]),
        left_out=tuple(sorted((str(reason), int(n)) for reason, n in line["left_out"].items())),
        error=str(line["error"]),
        seconds=float(line["seconds"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError("not a text")
    return value
