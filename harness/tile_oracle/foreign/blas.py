"""GEMMs of rocBLAS and hipBLASLt: logs of calls, command lines and results of their benchmark programs.

    - { rocblas_function: "rocblas_gemm_ex", a_type: "bf16_r", transA: 'T', transB: 'N', M: 4096, N: ... }
    ./rocblas-bench -f gemm -r f16_r --transposeA N --transposeB N -m 128 -n 128 -k 64 ...
    [0]:transA,transB,grouped_gemm,batch_count,m,n,k,...,a_type,b_type,...,hipblaslt-Gflops,hipblaslt-GB/s,us
        N,N,0,1,4096,4096,4096,...,bf16_r,bf16_r,...,591344,576.241,88.9724
        --Solution index: 300662
        --Solution name:  Cijk_Ailk_Bljk_BBS_BH_...

ROCBLAS_LAYER=4 (YAML) or 2, and HIPBLASLT_LOG_MASK=32, print the calls of a program. Other lines are ignored.
A result's kernel is the library's solution: gemm_bf16_rrr_hipblaslt.s300662. hipblaslt-bench prints it with
--print_kernel_info or --algo_method; a tuning file (HIPBLASLT_TUNING_FILE, read again by
HIPBLASLT_TUNING_OVERRIDE_FILE) has it in its last columns, for many results below one header. rocblas-bench
does not: a line with its command, before the result, gives --solution_index, and the types where the result
has none (--log_datatype).

A problem is the dense product; beta and padded leading dimensions are counted in lists of problems, and
refused in records.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tile_oracle.errors import ProblemError
from tile_oracle.foreign.contract import MORE, UNUSED, Field, is_false, number_of, same_dtype
from tile_oracle.foreign.dialect import GEMM_FIELDS, batch_of
from tile_oracle.foreign.entry import Entry, kernel_of
from tile_oracle.operations.gemm import blas_call

_NUMBERED = re.compile(r"\s*\[\d+\]:")
_SPEEDS = {"hipblaslt-Gflops": "hipblaslt", "rocblas-Gflops": "rocblas"}
_SOLUTION = re.compile(r"\s*--Solution (?P<what>index|name):\s*(?P<value>\S+)")
_WINNER = "Winner:"
_FP8 = ("f8_r", "f8_fnuz_r", "f8_ocp_r")
"""Their results are of another type."""
_READ = frozenset(
    {*blas_call.READ.values(), *blas_call.SIZES, "splitK", "wgm", "us", "hot_iters", "rotating_buffer"}
    | {"d_type", "atol", "rtol"}
    | {f"{library}-{what}" for library in _SPEEDS.values() for what in ("Gflops", "GB/s")}
)
"""Members that name the pair, or become figures and status."""


FIELDS: Mapping[str, Field] = {
    **dict.fromkeys(map(str.lower, _READ), UNUSED),
    "alpha": GEMM_FIELDS["alpha"],
    **dict.fromkeys(
        ("activation_type", "bias_vector", "swizzle_a", "swizzle_b", "use_e", "gradient", "scalea", "scaleb",
         "scalec", "scaled", "scalealpha_vector", "amaxd"),
        Field(holds=is_false, why=MORE),
    ),
    "d_type": Field(holds=same_dtype, of="problem", why="is not the type of A and B"),
    "compute_type": Field(holds=lambda text, _: not re.search("xf32|fast", text), why="is not exact in fp32"),
    **dict.fromkeys(("c_type", "bias_type", "norm_error", "cpu-us", "cpu-gflops", "cold_iters"), UNUSED),
}  # fmt: skip
"""What a result states besides sizes and figures. Other columns mean what they mean in any table."""
_LONGEST_DETAIL = 300


@dataclass
class _Result:
    """One line of values, and what belongs to it. A call alone has no library."""

    library: str
    members: dict[str, str]
    line: str
    solution: dict[str, str] = field(default_factory=dict)


def _header(line: str) -> tuple[str, str] | None:
    """Returns the library and the names of the values in the next lines; None for other lines."""
    if "-Gflops" not in line:
        return None
    names = [name.strip() for name in _NUMBERED.sub("", line, count=1).split(",")]
    library = next((_SPEEDS[name] for name in names if name in _SPEEDS), None)
    return (library, ",".join(names)) if library and {"transA", "transB"} <= set(names) else None


def has_results(text: str) -> bool:
    """Returns whether a text has a header of results."""
    return "-Gflops" in text and any(_header(line) is not None for line in text.splitlines())


def has_calls(text: str) -> bool:
    """Returns whether the beginning of a text has a call of these libraries."""
    return any(blas_call.members_of(line) is not None for line in text.splitlines())


def blas_entries(lines: Iterable[str]) -> Iterator[Entry]:
    """Yields every result, and every call without one."""
    for number, result in _results(lines):
        if result.library:
            yield of_result(result.library, result.members, result.line, result.solution)
        else:
            yield of_call(result.members, f"line {number}")


def of_call(members: Mapping[str, str], source: str) -> Entry:
    """Returns the entry of a call."""
    text = " ".join(f"{name}: {value}" for name, value in members.items())
    if why := blas_call.why_no_gemm(members):
        return Entry(why=why, text=text)
    try:
        problem, why = batch_of(blas_call.gemm_of(members), members.get("batch_count", "1"))
    except ProblemError as error:
        return Entry(why=str(error)[:300], damaged=True, text=text)
    if problem is None:
        return Entry(why=why, text=text)
    return Entry(problem, more=tuple(blas_call.not_dense(members)), source=source, text=text)


def _results(lines: Iterable[str]) -> Iterator[tuple[int, _Result]]:
    """Yields every result once, since the winner is printed again at the end, and the calls without a
    result."""
    called: dict[str, str] = {}
    header: tuple[str, str] | None = None
    result: _Result | None = None
    alone = again = False
    number = at = 0
    for number, line in enumerate(lines, 1):
        solution = _SOLUTION.match(line)
        if solution and result is not None:
            result.solution[solution["what"]] = solution["value"]
        elif (found := _header(line)) is not None:
            header = found
        elif header is not None and line.count(",") == header[1].count(","):
            if result is not None:
                yield at, result
            library, names = header[0], header[1].split(",")
            values = (value.strip().strip('"') for value in line.split(","))
            members = {
                **called,
                **dict(zip((blas_call.READ.get(name, name) for name in names), values, strict=True)),
            }
            index = {"index": members["solution_index"]} if "solution_index" in names else {}
            result = None if again else _Result(library, members, line.strip(), index)
            again, alone, at = False, False, number
        elif line.strip() == _WINNER:
            again = True
        elif (command := blas_call.members_of(line)) is not None:
            if result is not None:
                yield at, result
            elif alone:
                yield at, _Result("", called, "")
            called, alone, result, at = command, True, None, number
    if result is not None:
        yield at, result
    elif alone:
        yield at, _Result("", called, "")


def _solution_of(members: Mapping[str, str], solution: Mapping[str, str]) -> int | None:
    text = solution.get("index", members.get("solution_index", ""))
    # 0 and less ask rocBLAS and hipBLASLt for their own choice.
    least = 0 if "index" in solution else 1
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) and int(text) >= least else None


def of_result(library: str, members: Mapping[str, str], line: str, solution: Mapping[str, str]) -> Entry:
    """Returns the entry of one result. solution: the index of the library's solution, and its name, where
    they are known besides what the members say."""
    typed = "precision" in members or "a_type" in members or members.get("function") in ("hgemm", "sgemm")
    if not typed and not blas_call.why_no_gemm(members):
        return Entry(why="no data type: print it by --log_datatype", text=line)
    one = of_call(members, "")
    if one.problem is None:
        return replace(one, text=line)
    index = _solution_of(members, solution)
    values = {name: members[name] for name in ("splitK", "wgm") if members.get(name, "").isdigit()}
    failed = "failed" in (members.get("atol"), members.get("rtol"))
    gflops, gb_per_s = (members.get(f"{library}-{what}") or None for what in ("Gflops", "GB/s"))
    named = kernel_of(one.problem, library, "" if index is None else f"s{index}", values)
    return Entry(
        one.problem,
        **{"why_no_kernel": _NO_SOLUTION, **named},
        times_ms=[number_of(members.get("us")) / 1000.0],
        figures={
            "status": "wrong" if failed else "ok",
            "detail": solution.get("name", "")[:_LONGEST_DETAIL],
            "samples": members.get("hot_iters") or None,
            "cache": "cold" if members.get("rotating_buffer", "0") not in ("0", "") else "warm",
            **{name: value for name, value in (("gflops", gflops), ("gb_per_s", gb_per_s)) if value},
        },
        stated={
            **{name: value for name, value in members.items() if name not in _READ},
            "d_type": "" if members.get("a_type") in _FP8 else members.get("d_type", ""),
        },
        more=one.more,
        text=line,
    )


_NO_SOLUTION = (
    "no solution index: hipblaslt-bench --print_kernel_info or rocblas-bench --solution_index has it"
)
