"""Choices of Triton's and Inductor's tuners: `KERNEL.autotune.json`, and AUTOTUNE blocks of logs.

    {"key": [3968, 3968, 3968, "torch.float16", ...], "configs_timings": [[{"kwargs": {...}}, [0.5, ...]]]}

    AUTOTUNE mm(128x4096, 4096x4096)
    strides: [4096, 1], [1, 4096]
    dtypes: torch.float16, torch.float16
      triton_mm_27 0.0233 ms 94.5% ACC_TYPE='tl.float32', BLOCK_K=128, BLOCK_M=64, num_stages=5, num_warps=4

Triton's key is the function's own: it is read as M, N, K and data types, and the layout has to be given. So
has that of a log without strides. Times are milliseconds, of Triton the median.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tile_oracle.foreign.contract import number_of
from tile_oracle.foreign.entry import Entry, gemm_entry
from tile_oracle.foreign.list_file import ListFile
from tile_oracle.operations.gemm.problem import RESULT_DTYPES
from tile_oracle.problem.dtype_words import dtype_named

_BLOCK = re.compile(r"AUTOTUNE (?P<op>\w+)\((?P<shapes>[^)]*)\)")
_STRIDES = re.compile(r"strides: (?P<lists>\[.*\])")
_DTYPES = re.compile(r"dtypes: (?P<names>\S.*)")
_CHOICE = re.compile(r"(?P<name>[A-Za-z_]\w*) (?P<ms>[\d.]+|inf) ms [\d.]+% *(?P<config>.*)")
_OPTION = re.compile(r"(\w+)=('[^']*'|[^,\s]+)")
_NO_LAYOUT = "the file does not state the layout: give it (--layout rcr, or FILE.json:rcr for a problem set)"
_NOT_A_WORD = re.compile(r"[^A-Za-z0-9_]")


def triton_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every configuration. Raises ProblemSetError for text that is not such JSON."""
    try:
        document = json.loads(listed.text())
        key, timings = document["key"], document["configs_timings"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise listed.error(f"not the JSON of Triton's tuner: {error}", 0) from None
    sizes = [str(one) for one in key if isinstance(one, int) and not isinstance(one, bool)]
    dtypes = [str(one) for one in key if str(one).startswith(("torch.", "fp", "bf"))]
    function = _NOT_A_WORD.sub("_", listed.path.name.partition(".")[0])
    for config, times in timings:
        values = {
            **config.get("kwargs", {}),
            **{name: one for name, one in config.items() if name != "kwargs"},
        }
        time = number_of(times[0] if isinstance(times, list) and times else times)
        if len(sizes) != 3:
            yield Entry(why=f"the key has {len(sizes)} sizes, not M, N and K", text=str(key))
            continue
        yield _gemm(listed.asked, sizes, dtypes, ("triton", function, values), time, text=json.dumps(config))


def _gemm(
    layout: str, sizes: Sequence[str], dtypes: Sequence[str], kernel: tuple[str, str, Mapping[str, Any]],
    time_ms: float, more: tuple[str, ...] = (), **further: Any,
) -> Entry:  # fmt: skip
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
    """Whether a text has a block of choices."""
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
    text = choice[0].strip()
    values = {name: value.strip("'") for name, value in _OPTION.findall(choice["config"])}
    function = re.sub(r"_\d+$", "", choice["name"]) if values else choice["name"]
    (m, _, k), (k_of_b, _, n) = (
        (shape.partition("x") for shape in shapes) if len(shapes) == 2 else [("",) * 3] * 2
    )
    if op not in ("mm", "addmm") or k != k_of_b:
        return Entry(why=f"{op} of {' and '.join(shapes)} is not a single GEMM", text=text)
    if layout == "?":
        return Entry(why="a matrix is not dense in memory", text=text)
    more = ("a bias",) if op == "addmm" else ()
    kernel = ("inductor", function, values)
    return _gemm(layout, (m, n, k), dtypes, kernel, number_of(choice["ms"]), more, text=text)


def _layout(shapes: Sequence[str], strides: Sequence[Sequence[int]]) -> str:
    """The layout of dense matrices with these shapes and strides in elements; "?" for others."""
    letters = ""
    for shape, steps in zip(shapes, strides, strict=False):
        rows, _, columns = shape.partition("x")
        orders = {f"[{columns}, 1]": "r", f"[1, {rows}]": "c"}
        letters += orders.get(str(steps), "?")
    return "?" if "?" in letters or len(letters) != 2 else letters + "r"
