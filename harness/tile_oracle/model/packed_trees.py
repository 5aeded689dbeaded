"""Packed LightGBM models, a fifth smaller than gzip: `model_{target}.lgbm.zst`.

The file is a zstd stream. Its first line is `tile-oracle trees LINES CRC32`. LINES is the number of lines of
each tree. If all trees have the same number, lines of one kind (all thresholds, all leaf values, ...) are
stored together: a line with the number of trees and the length of the text before them, these lines, and the
text before and after the trees. If not, LINES is 0 and LightGBM's text follows unchanged. CRC32 is that of
the text, which `unpacked` gives back to the byte.
"""

from __future__ import annotations

import io
import zlib
from itertools import chain
from pathlib import Path

from tile_oracle.errors import ModelError

_MAGIC = b"tile-oracle trees "
_LEVEL = 22
_TREE, _END = b"\nTree=", b"\nend of trees"


def packed(text: bytes) -> bytes:
    """LightGBM's text of a model as the bytes of a .lgbm.zst file."""
    import pyarrow as pa

    before, trees, after = _parts(text)
    lines = [tree.split(b"\n") for tree in trees]
    count = len(lines[0]) if len({len(tree) for tree in lines}) == 1 else 0
    if count:
        columns = chain.from_iterable(zip(*lines, strict=True))
        text_stored = b"\n".join((b"%d %d" % (len(trees), len(before)), *columns)) + b"\n" + before + after
    else:
        text_stored = text
    stored = b"%s%d %08x\n%s" % (_MAGIC, count, zlib.crc32(text), text_stored)
    return bytes(pa.Codec("zstd", _LEVEL).compress(stored, asbytes=True))


def unpacked(path: Path, data: bytes, most_bytes: int) -> bytes:
    """The text in the bytes of a .lgbm.zst file. Raises ModelError if they are damaged or unpack to more than
    `most_bytes`."""
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(io.BytesIO(data), "zstd") as stream:
            stored = bytes(stream.read(most_bytes + 1))
    except (OSError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or ["unreadable"])[0]
        raise ModelError(f"{path} is not a whole zstd file ({reason}): copy it again") from None
    if len(stored) > most_bytes:
        raise ModelError(f"{path} unpacks to more than {most_bytes >> 20} MiB: not a model")
    try:
        first, _, rest = stored.partition(b"\n")
        count, crc = first.removeprefix(_MAGIC).split()
        text = _in_tree_order(rest, int(count)) if int(count) else rest
        whole = first.startswith(_MAGIC) and zlib.crc32(text) == int(crc, 16)
    except ValueError:
        whole = False
    if not whole:
        raise ModelError(f"{path} is damaged or is not a model of tile-oracle: copy it again")
    return text


def _parts(text: bytes) -> tuple[bytes, list[bytes], bytes]:
    """The text before the trees, the trees, and the text after them. The list is empty if there are none."""
    end = text.rfind(_END)
    begin = text.find(_TREE)
    if begin < 0 or end < begin:
        return text, [], b""
    return text[:begin], text[begin + len(_TREE) : end].split(_TREE), text[end:]


def _in_tree_order(stored: bytes, count: int) -> bytes:
    """The text of a model whose trees have `count` lines each. Raises ValueError."""
    first, _, rest = stored.partition(b"\n")
    trees, before = map(int, first.split())
    if not 0 < trees * count <= len(rest) or before < 0:
        raise ValueError("no such number of lines")
    *lines, tail = rest.split(b"\n", trees * count)
    ordered = [b"\n".join(lines[tree::trees]) for tree in range(trees)]
    return tail[:before] + b"".join(_TREE + tree for tree in ordered) + tail[before:]
