"""Tables of CK Tile's benchmark of attention (`fmha_benchmark.py`):

    kernel,dtype,hdim_q,hdim_v,pipeline,mode,mask,bias,tile_m0,...,batch,nhead_q,nhead_k,seqlen_q,seqlen_k,
        latency_ms,tflops,max_err,status

Kernels are of the source ck, with tiles, pipeline and splits in their names. A causal mask is ours where
query i sees the keys up to i + seqlen_k - seqlen_q: that of the bottom right, or of the top left of a square.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tile_oracle.foreign.contract import ANOTHER, MORE, UNUSED, Field, is_false, number_of, one_of
from tile_oracle.foreign.entry import Entry, entry_of
from tile_oracle.foreign.list_file import ListFile, quoted
from tile_oracle.problem.dtype_words import dtype_named

COLUMNS = frozenset(("hdim_q", "hdim_v", "nhead_q", "nhead_k", "seqlen_q", "seqlen_k", "batch"))
_SIZES = {
    "batch": "batch", "heads": "nhead_q", "kv_heads": "nhead_k", "seq_q": "seqlen_q", "seq_kv": "seqlen_k",
    "head_dim": "hdim_q",
}  # fmt: skip
_OF_KERNEL = (
    *("pipeline", "tile_m0", "tile_n0", "tile_k0", "tile_n1", "tile_k1", "tile_k0max"),
    *("warp_m0", "warp_n0", "warp_k0", "block_per_cu", "num_splits"),
)
_OF_PROBLEM = (*COLUMNS, "dtype", "mask")
_FIGURES = ("kernel", "latency_ms", "tflops")
_CAUSAL = {"no": 0, "none": 0, "0": 0, "causal": 1, "bottom_right": 1, "top_left": 1}
FIELDS: Mapping[str, Field] = {
    "mode": Field(holds=one_of("batch"), why=ANOTHER),
    **dict.fromkeys(
        ("bias", "lse", "dropout", "logits", "logits_soft_cap", "sink", "skip", "qscale", "paged_kv", "rope"),
        Field(holds=is_false, why=MORE),
    ),
    **dict.fromkeys(("max_err", *_OF_KERNEL, *_OF_PROBLEM), UNUSED),
}
"""What a row states besides its problem, kernel and figures. An absolute error is not compared: status is."""


def fmha_entries(listed: ListFile) -> Iterator[Entry]:
    """Yields every row. Raises ProblemSetError for text that is no table."""
    for row, text in listed.table():
        yield _entry(row, text)


def _entry(row: Mapping[str, str], text: str) -> Entry:
    mask, dtype = row.get("mask") or "no", row.get("dtype", "")
    causal = _CAUSAL.get(mask.lower())
    if causal is None or (mask.lower() == "top_left" and row["seqlen_q"] != row["seqlen_k"]):
        return Entry(why=f"the mask {quoted(mask)} is neither none nor causal to the last key", text=text)
    if row["hdim_q"] != row["hdim_v"]:
        return Entry(why="heads of Q and V have different sizes", text=text)
    sizes = {ours: row[name] for ours, name in _SIZES.items()}
    return entry_of(
        "attention",
        {"dtype": dtype_named(dtype), **sizes, "causal": causal},
        ("ck", "fmha_fwd", {name: row.get(name, "") for name in _OF_KERNEL}),
        times_ms=[number_of(row.get("latency_ms"))],
        # Programs count the masked half of a causal product, or do not.
        figures={} if causal else {"tflops": number_of(row.get("tflops"))},
        stated={n: cell for n, cell in row.items() if n not in (*_OF_PROBLEM, *_OF_KERNEL, *_FIGURES)},
        source=row.get("kernel", ""),
        text=text,
    )
