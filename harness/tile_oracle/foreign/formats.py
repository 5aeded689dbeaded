"""The formats of other programs that are known: how a file is recognised, and which commands take it.

Commands that read files ask here, so that a file is the same thing to all of them, and a file that a command
does not take is named, with the command that does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tile_oracle.files.user_file import open_regular
from tile_oracle.foreign import (
    aiter,
    autotune,
    blas,
    cutlass,
    flashinfer_bench,
    fmha,
    kernel_tuner,
    miopen_db,
    miopen_driver,
    nvbench,
    origami,
    tilewright,
    tunable_op,
)
from tile_oracle.foreign.contract import FIELDS, KERNEL_COLUMNS, Field
from tile_oracle.foreign.entry import KERNEL_WORDS, Entry
from tile_oracle.foreign.list_file import ListFile

IMPORT, PROBLEMS, KERNELS, MODEL = "tile-oracle runs import", "--problem-set", "--kernel-set", "--model"
"""The commands and options that read files."""
HEAD_BYTES = 64 * 2**10
"""A file is recognised by its beginning."""


_JSON = re.compile(r'\s*(?:\{\s*["}]|\[\s*[{\["\]])')
"""How JSON begins. A line of a log may begin with a number in brackets."""


@dataclass(frozen=True)
class Head:
    """A file's path and its text, or the beginning of it."""

    path: Path
    text: str

    @cached_property
    def begin(self) -> str:
        """The beginning, which most formats are recognised by."""
        return self.text[:HEAD_BYTES]

    @cached_property
    def columns(self) -> frozenset[str]:
        """The names in the first line that is no comment, in lower case."""
        lines = (line for line in self.begin.splitlines() if line.strip())
        first = next((line for line in lines if not line.startswith("#")), "")
        return frozenset(name.strip().lower() for name in first.split(","))

    @cached_property
    def is_json(self) -> bool:
        """Whether the text begins as JSON does."""
        return _JSON.match(self.begin) is not None

    def has(self, *keys: str) -> bool:
        """Returns whether the text begins as JSON does and has all of these keys."""
        return self.is_json and all(f'"{key}"' in self.begin for key in keys)


@dataclass(frozen=True)
class Format:
    """One format. what: a file of it, for messages. taken_by: the commands that take it; why: the reason
    where none does. entries: its reader. fields: what its rows state besides those of all formats.
    asks_layout: the user may have to state the layout."""

    what: str
    found: Callable[[Head], bool]
    taken_by: tuple[str, ...] = ()
    why: str = ""
    entries: Callable[[ListFile], Iterator[Entry]] | None = None
    fields: Mapping[str, Field] = field(default_factory=dict)
    asks_layout: bool = False

    def _rows(self, listed: ListFile, read: Callable[[ListFile], Iterator[Entry]]) -> Iterator[Entry]:
        try:
            yield from read(listed)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
            why = f"{type(error).__name__} {error}"[:200]
            raise listed.error(f"this begins as {self.what}, but is none: {why}") from None

    def entries_in(self, listed: ListFile) -> Iterator[Entry] | None:
        """Returns the rows of a file; None if it is not read by this module. Raises ProblemSetError."""
        return None if self.entries is None else self._rows(listed, self.entries)

    @property
    def said(self) -> str:
        """What a file of it is, and what takes it."""
        by = " and ".join(filter(None, (", ".join(self.taken_by[:-1]), *self.taken_by[-1:])))
        verb = "take" if len(self.taken_by) > 1 else "takes"
        takes = f"{by} {verb} it" if by else f"nothing takes it, since {self.why}"
        return f"this is {self.what}: {takes}"


def _of_lines(read: Callable[[Iterator[str]], Iterator[Entry]]) -> Callable[[ListFile], Iterator[Entry]]:
    return lambda listed: read(listed.lines())


def _columns(*names: str) -> Callable[[Head], bool]:
    return lambda head: head.columns >= set(names)


def _keys(*names: str) -> Callable[[Head], bool]:
    return lambda head: head.has(*names)


def _ending(*ends: str) -> Callable[[Head], bool]:
    return lambda head: head.path.name.lower().endswith(ends)


def _is_aiter(head: Head) -> bool:
    if {"kernel", "kernel_name", "name"} & head.columns:
        return False
    is_named = aiter.FILE.search(head.path.stem.lower()) is not None
    return head.columns >= aiter.SIZES and bool(head.columns & aiter.OF_AITER or is_named)


def _is_bench_yaml(head: Head) -> bool:
    is_yaml = head.path.suffix.lower() in (".yaml", ".yml")
    return is_yaml and not (blas.has_calls(head.begin) and not _MORE_THAN_CALLS.search(head.begin))


_MORE_THAN_CALLS = re.compile(r"(?m)^(?:Tests|Definitions|include)\s*:|:\s*[\[*&]|\d\s*\.\.\s*\d")
"""What no log has: sections, lists of values, aliases, ranges."""
_EXPERTS_FILE = re.compile(r"E=\d+,N=\d+,device_name=")
_HEURISTIC = re.compile(
    r"^(?:def (?:autotune|select_config)_\w+\(|class \w+\(LearnedHeuristic)", re.MULTILINE
)
_OF_KERNELS = ("instances", "tile_config", "tile_lists", "kernels", "blocks", "tiles")
_SIZES = ({"m", "n", "k"}, {"n", "c", "k", "hi"})
_TIMES = {name for name, one in FIELDS.items() if one.fills in ("latency", "latency_ms")}
_BOTH = (IMPORT, PROBLEMS)
_ALL = (*_BOTH, MODEL)

TUNED = "an AITER table of tuned GEMMs"

FORMATS: tuple[Format, ...] = (
    Format("a heuristic of Helion or Inductor", lambda head: _HEURISTIC.search(head.begin) is not None,
           why="it is code, which a picker of your own can call"),
    Format("a list of tile_engine's problems", _ending(".py"),
           why="it is code; print its problems as a CSV table"),
    Format("a CK Builder config file", _ending(".conf"), (KERNELS,)),
    Format("a model of tilewright", _ending(".tilewright.bin"), why="it ranks hipBLASLt's solutions alone"),
    Format("a TunaNet model of MIOpen", _ending(".tn.model"),
           why="it ranks MIOpen's solvers, which a find-db has the times of"),
    Format("a tree model without its feature_spec.json", lambda head: head.begin.startswith("tree\n"),
           why="--model takes a folder with both"),
    Format("a log of tilewright's picks", lambda head: tilewright.PICK.search(head.begin) is not None,
           (MODEL,), entries=tilewright.pick_entries),
    Format("measurements that tilewright learns from", _columns(*tilewright.CHUNK), _ALL,
           entries=tilewright.chunk_entries, fields=tilewright.FIELDS),
    Format("a list of MIOpenDriver lines", lambda head: miopen_driver.is_driver_list(head.begin), (PROBLEMS,),
           entries=miopen_driver.driver_entries),
    Format("an AITER table of fused experts", _columns(*aiter.EXPERTS), (PROBLEMS,),
           entries=aiter.expert_entries, fields=aiter.OF_EXPERTS),
    Format("an AITER table of another operation than GEMM",
           lambda head: {"gfx", "cu_num"} <= head.columns and not head.columns >= aiter.SIZES,
           why="its operation is none of tile-oracle's"),
    Format("an AITER list of shapes to tune", lambda head: _is_aiter(head) and "us" not in head.columns,
           (PROBLEMS,), entries=aiter.aiter_entries, fields=aiter.FIELDS),
    Format(TUNED, _is_aiter, _ALL,
           entries=aiter.aiter_entries, fields=aiter.FIELDS),
    Format("a table of CK Tile's benchmark of attention", lambda head: head.columns >= fmha.COLUMNS, _ALL,
           entries=fmha.fmha_entries, fields=fmha.FIELDS),
    Format("a YAML file of rocblas-bench or hipblaslt-bench", _is_bench_yaml,
           why="only its program knows the calls: give the log of a run"),
    Format("a tuning file of hipBLASLt", lambda head: head.begin.startswith("Git Version:"), _ALL,
           entries=_of_lines(blas.blas_entries), fields=blas.FIELDS),
    Format("what hipblaslt-bench or rocblas-bench prints", lambda head: blas.has_results(head.text), _ALL,
           entries=_of_lines(blas.blas_entries), fields=blas.FIELDS),
    Format("a log of calls of rocBLAS or hipBLASLt", lambda head: blas.has_calls(head.begin), (PROBLEMS,),
           entries=_of_lines(blas.blas_entries), fields=blas.FIELDS),
    Format("a TunableOp file of PyTorch", lambda head: tunable_op.is_tunable_op(head.begin), _ALL,
           entries=_of_lines(tunable_op.tunable_entries)),
    Format("a table of CUTLASS's profiler", lambda head: cutlass.HEADER in head.text, _ALL,
           entries=_of_lines(cutlass.profiler_entries), fields=cutlass.FIELDS),
    Format("a list of problems for CUTLASS's heuristics", _keys("m", "n", "k", "layout", "dtype_a"),
           (PROBLEMS,), entries=cutlass.heuristic_entries, fields=cutlass.FIELDS),
    Format("a cache of Kernel Tuner", _keys("tune_params_keys"), _BOTH,
           entries=kernel_tuner.cache_entries),
    Format("a file of T4 results", _keys("results", "configuration"), _BOTH, entries=kernel_tuner.t4_entries),
    Format("NVBench's JSON output", _keys("benchmarks", "states"), _BOTH, entries=nvbench.state_entries),
    Format("JSON with measurements", lambda head: head.is_json and any(
        head.has(name, time) for name in KERNEL_COLUMNS for time in _TIMES), (IMPORT,)),
    Format("a file of Triton's autotuner", _keys("configs_timings"), _ALL, entries=autotune.triton_entries,
           asks_layout=True),
    Format("a cache of rocKE's autotuner", _keys("key_repr", "winner"), _ALL, entries=autotune.rocke_entries,
           asks_layout=True),
    Format("a lookup table of Inductor", _keys("template_id"), (PROBLEMS, MODEL),
           entries=autotune.lookup_entries),
    Format("a log of Inductor's autotuner", lambda head: autotune.is_inductor_log(head.text), _ALL,
           entries=autotune.inductor_entries, asks_layout=True),
    Format("a find-db of MIOpen", lambda head: miopen_db.is_find_db(head.path, head.begin), _ALL,
           entries=miopen_db.find_entries),
    Format("a perf-db of MIOpen, which has no times", lambda head: miopen_db.is_db(head.begin),
           (PROBLEMS,), entries=miopen_db.perf_entries),
    Format("a trace of flashinfer-bench", _keys("definition", "workload", "axes"), _ALL,
           entries=flashinfer_bench.trace_entries),
    Format("a definition of flashinfer-bench", _keys("op_type", "axes", "inputs", "outputs"),
           why="a problem needs the sizes that its traces have"),
    Format("a ranking of Origami, whose times are predicted", _columns("problem", "rank", "latency", "mt_m"),
           (PROBLEMS, MODEL), entries=origami.ranking_entries, fields=origami.FIELDS),
    Format("a table of vLLM's or SGLang's fused experts",
           lambda head: _EXPERTS_FILE.match(head.path.name) is not None,
           why="--model vllm and --model sglang take its folder"),
    Format("a sweep of tile_engine's attention", _keys("trait_config", "mask"),
           why="Composable Kernel's own generator makes its kernels; runs import takes its results"),
    Format("a dispatcher's list of traits",
           lambda head: head.has("trait_config") and not any(map(head.has, _OF_KERNELS)),
           why="it names no kernels: --kernel-filter narrows a kernel set"),
    Format("a list or a rule set of kernels", lambda head: any(map(head.has, _OF_KERNELS)), (KERNELS,)),
    Format("a model's feature specification", _keys("feature_names"),
           why="it is a part of a model: --model takes the folder with all parts"),
    Format("a list of problems in JSON", lambda head: head.has("problems") or head.has("M", "N", "K"),
           (PROBLEMS,)),
    Format("a file of picks", _columns("predicted_tflops"), (MODEL, PROBLEMS)),
    Format("a sweep of CK DSL", _columns("tile_m", "tile_n", "tile_k", "pipeline", "latency_us", "c"), _BOTH),
    Format("a table of measurements",
           lambda head: bool(head.columns & {*KERNEL_WORDS} and head.columns & _TIMES), _BOTH),
    Format("a table of problems", lambda head: any(head.columns >= sizes for sizes in _SIZES), (PROBLEMS,)),
)  # fmt: skip
"""All formats; the first that is found counts."""


def recognised(path: Path, text: str) -> Format | None:
    """Returns the format of a file with this beginning; None for one that is not known."""
    head = Head(path, text.removeprefix("\ufeff"))
    return next((one for one in FORMATS if one.found(head)), None)


def format_of(path: Path) -> Format | None:
    """Returns the format of a file; None for one that is not known. Raises OSError."""
    return recognised(path, _begin(path))


def refusal(path: Path, door: str) -> str:
    """Returns the end of a message on a file that a command did not take: what it is, and what takes it; ""
    if it is not known, or is what that command takes."""
    try:
        text = _begin(path)
    except OSError:
        return ""
    known = recognised(path, text)
    if known is None:
        return "; this is JSON of no known kind" if Head(path, text).is_json else ""
    return "" if door in known.taken_by else f"; {known.said}"


def _begin(path: Path) -> str:
    with open_regular(path) as file:
        return file.read(HEAD_BYTES).decode("utf-8", "replace")
