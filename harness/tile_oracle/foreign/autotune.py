"""Choices of Triton's, Inductor's and rocKE's tuners: caches, AUTOTUNE blocks of logs, and lookup tables.

    {"key": [3968, 3968, 3968, "torch.float16", ...], "configs_timings": [[{"kwargs": {...}}, [0.5, ...]]]}

    AUTOTUNE mm(128x4096, 4096x4096)
    strides: [4096, 1], [1, 4096]
    dtypes: torch.float16, torch.float16
      triton_mm_27 0.0233 ms 94.5% ACC_TYPE='tl.float32', BLOCK_K=128, BLOCK_M=64, num_stages=5, num_warps=4

    {"NVIDIA H200+((torch.float16, [128, 4096], [4096, 1]), ...)+mm": [{"template_id": "triton::mm", ...}]}

    {"<hash>": {"key_repr": "(4096, 4096, 4096, 'fp16')", "winner": "t256x128x32", "ms": 0.5, "all": {...}}}

Triton's and rocKE's keys are the function's own: they are read as M, N, K and data types, and the layout has
to be given where it is not in the key. So has that of a log without strides. Times are milliseconds, of
Triton the median. A lookup table of Inductor has none: its choices are in the order in which they are tried.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tile_oracle.errors import ProblemError
from tile_oracle.foreign.aiter import TORCH, Winner
from tile_oracle.foreign.contract import number_of
from tile_oracle.foreign.entry import Entry, gemm_entry
from tile_oracle.foreign.list_file import ListFile
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.operations.gemm.problem import RESULT_DTYPES, GemmProblem
from tile_oracle.problem.dtype_words import dtype_named

_BLOCK = re.compile(r"AUTOTUNE (?P<op>\w+)\((?P<shapes>[^)]*)\)")
_STRIDES = re.compile(r"strides: (?P<lists>\[.*\])")
_DTYPES = re.compile(r"dtypes: (?P<names>\S.*)")
_CHOICE = re.compile(r"(?P<name>[A-Za-z_]\w*) (?P<ms>[\d.]+|inf) ms [\d.]+% *(?P<config>.*)")
_OPTION = re.compile(r"(\w+)=('[^']*'|[^,\s]+)")
_NO_LAYOUT = "the file does not state the layout: give it (--layout rcr, or FILE.json:rcr for a problem set)"
_NOT_A_WORD = re.compile(r"[^A-Za-z0-9_]")
_OPERAND = re.compile(r"\((torch\.\w+), \[([\d, ]*)\], (\[[\d, ]*\])\)")
_NO_CHOICE = ("template_id", "template_hash", "ALLOW_TF32")
"""Beside what a kernel of Inductor is made by. torch 2.11 sets ALLOW_TF32 itself: an entry that has
it, too, ends the compilation."""
_LAYOUT = re.compile(r"[RCrc]{3}")
Kernel = tuple[str, str, Mapping[str, Any]]
"""A kernel's source, function and configuration."""
_WORDS, _NUMBERS = re.compile(r"'([^']*)'"), re.compile(r"(?<![\w'.])\d+(?![\w'.])")


def triton_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every configuration."""
    document = json.loads(listed.text())
    key = document["key"]
    sizes = [str(one) for one in key if isinstance(one, int) and not isinstance(one, bool)]
    dtypes = [str(one) for one in key if str(one).startswith(("torch.", "fp", "bf"))]
    function = _NOT_A_WORD.sub("_", listed.path.name.partition(".")[0])
    for config, times in document["configs_timings"]:
        values = config.get("kwargs", {}) | {n: one for n, one in config.items() if n != "kwargs"}
        time = number_of(times[0] if isinstance(times, list) and times else times)
        yield _gemm(listed.asked, sizes, dtypes, ("triton", function, values), time, text=json.dumps(config))


def rocke_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every configuration of a cache."""
    for one in json.loads(listed.text()).values():
        key = str(one["key_repr"])
        words, sizes = _WORDS.findall(key), _NUMBERS.findall(_WORDS.sub("", key))
        dtype = next((word for word in words if dtype_named(word) in RESULT_DTYPES), "")
        layout = next((word.lower() for word in words if _LAYOUT.fullmatch(word)), listed.asked)
        gfx = next((word for word in words if word.startswith("gfx")), "")
        for name, time_ms in {**one["all"], one["winner"]: one["ms"]}.items():
            kernel: Kernel = ("rocke", _NOT_A_WORD.sub("_", name), {})
            time, text = number_of(time_ms), f"{key} {name}"
            yield _gemm(layout, sizes, [dtype, dtype], kernel, time, gfx=gfx, text=text)


def lookup_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every choice of a lookup table."""
    for key, choices in json.loads(listed.text()).items():
        operands = _OPERAND.findall(key)[-2:]
        shapes = [shape.replace(", ", "x") for _, shape, _ in operands]
        layout = _layout(shapes, [json.loads(strides) for _, _, strides in operands])
        dtypes = [dtype for dtype, _, _ in operands]
        for place, choice in enumerate(choices):
            function = choice["template_id"].replace("aten::", "").replace("::", "_")
            text = f"{key}: {json.dumps(choice)}"[:300]
            one = _product(key.rpartition("+")[2], shapes, layout, dtypes, (function, choice), math.nan, text)
            yield replace(one, rank=place, gfx=key.partition("((")[0].rstrip("+"))


def lookup_table(winners: Iterable[Winner], before: str) -> tuple[str, list[str]]:
    """Inductor's kernels as its lookup table, for any device, and why others are none.

    before: the table that there is, whose other entries stay. Raises ProblemError for a text that is none, or
    without any entry.
    """
    try:
        table = json.loads(before) if before else {}
    except ValueError as error:
        raise ProblemError(f"not a lookup table: {error}") from None
    left_out = []
    for one in winners:
        kernel, problem = parse_kernel_name(one.kernel), one.problem
        if kernel.source != "inductor":
            left_out.append(f"{problem.id} is left out: {one.kernel} is no kernel of Inductor")
            continue
        function, configuration = kernel.function, kernel.configuration
        library, _, template = function.partition("_") if configuration else ("aten", "", function)
        values = {
            name: value.replace("tl_", "tl.") if isinstance(value, str) else value
            for name, value in configuration.items()
        }
        table[_lookup_key(problem)] = [{"template_id": f"{library}::{template}", **values}]
    if not table:
        raise ProblemError(f"no entry could be written; {left_out[0] if left_out else 'there is none'}")
    return json.dumps(table, indent=1) + "\n", left_out


def _lookup_key(problem: GemmProblem) -> str:
    operands = [
        (TORCH[problem.dtype], [rows, columns], [columns, 1] if order == "r" else [1, rows])
        for order, rows, columns in zip(
            problem.layout, (problem.M, problem.K), (problem.K, problem.N), strict=False
        )
    ]
    return "(" + ", ".join(f"({dtype}, {shape}, {strides})" for dtype, shape, strides in operands) + ")+mm"


def _gemm(
    layout: str, sizes: Sequence[str], dtypes: Sequence[str], kernel: Kernel, time_ms: float,
    more: tuple[str, ...] = (), **further: Any,
) -> Entry:  # fmt: skip
    if len(sizes) != 3:
        return Entry(why=f"the key has {len(sizes)} sizes, not M, N and K", **further)
    names = [dtype_named(one) for one in dtypes]
    if not layout or len(names) < 2 or names[0] != names[1]:
        return Entry(why=f"the data types of A and B are {names[:2]}" if layout else _NO_LAYOUT, **further)
    if len(names) > 2 and names[2] != RESULT_DTYPES.get(names[0]):
        more = (*more, f"a result of {names[2]}")
    function, values = kernel[1], {name: _NOT_A_WORD.sub("_", str(one)) for name, one in kernel[2].items()}
    status = "unsupported" if time_ms == float("inf") else "ok"
    return gemm_entry(
        (names[0], layout, *sizes), kernel=(kernel[0], function, values), times_ms=[time_ms],
        figures={"status": status}, more=more, source=function, **further,
    )  # fmt: skip


def is_inductor_log(text: str) -> bool:
    """Returns whether a text has a block of choices."""
    return "AUTOTUNE " in text and _BLOCK.search(text) is not None


def inductor_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every choice. Those of other functions than mm and addmm are none of ours."""
    op, shapes, layout = "", [""], listed.asked
    dtypes: list[str] = []
    for line in listed.lines():
        if block := _BLOCK.search(line):
            op, shapes, layout = block["op"], block["shapes"].split(", "), listed.asked
            dtypes = []
        elif strides := _STRIDES.search(line):
            layout = _layout(shapes[-2:], json.loads(f"[{strides['lists']}]")[-2:])
        elif named := _DTYPES.search(line):
            dtypes = named["names"].split(", ")[-2:]
        elif op and (choice := _CHOICE.search(line)):
            yield _choice(op, shapes[-2:], layout, dtypes, choice)
        elif "AUTOTUNE benchmarking" in line:
            op = ""


def _choice(
    op: str, shapes: Sequence[str], layout: str, dtypes: Sequence[str], choice: re.Match[str]
) -> Entry:
    values = {name: value.strip("'") for name, value in _OPTION.findall(choice["config"])}
    function = re.sub(r"_\d+$", "", choice["name"]) if values else choice["name"]
    text, time_ms = choice[0].strip(), number_of(choice["ms"])
    return _product(op, shapes, layout, dtypes, (function, values), time_ms, text)


def _product(
    op: str, shapes: Sequence[str], layout: str, dtypes: Sequence[str],
    kernel: tuple[str, Mapping[str, Any]], time_ms: float, text: str,
) -> Entry:  # fmt: skip
    """Returns the entry of a choice for mm or addmm of operands with these shapes, MxK and KxN."""
    (m, _, k), (k_of_b, _, n) = (
        (shape.partition("x") for shape in shapes) if len(shapes) == 2 else [("",) * 3] * 2
    )
    if op not in ("mm", "addmm") or k != k_of_b:
        return Entry(why=f"{op} of {' and '.join(shapes)} is not a single GEMM", text=text)
    if layout == "?":
        return Entry(why="a matrix is not dense in memory", text=text)
    more = ("a bias",) if op == "addmm" else ()
    values = {name: value for name, value in kernel[1].items() if name not in _NO_CHOICE}
    return _gemm(layout, (m, n, k), dtypes, ("inductor", kernel[0], values), time_ms, more, text=text)


def _layout(shapes: Sequence[str], strides: Sequence[Sequence[int]]) -> str:
    """Returns the layout of dense matrices with these shapes and strides in elements; "?" for others."""
    letters = ""
    for shape, steps in zip(shapes, strides, strict=False):
        rows, _, columns = shape.partition("x")
        orders = {f"[{columns}, 1]": "r", f"[1, {rows}]": "c"}
        letters += orders.get(str(steps), "?")
    return "?" if "?" in letters or len(letters) != 2 else letters + "r"
