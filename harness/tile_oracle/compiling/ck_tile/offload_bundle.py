"""Reads and writes clang's offload bundles, which embed GPU code in a host library. Standard library only.

The format is documented under clang-offload-bundler: a magic, the number of entries, offset, size and target
of each entry, then the contents. As a program, this module writes a bundle with one AMD code object and the
empty host entry that the runtime expects:

    python offload_bundle.py CODE_OBJECT BUNDLE gfx950
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED = b"CCOB"
_ALIGNMENT = 4096
_HOST = "host-x86_64-unknown-linux-gnu-"
_MOST_ENTRIES = 64


def target_name(arch: str) -> str:
    """Returns the entry name of an architecture."""
    return f"hipv4-amdgcn-amd-amdhsa--{arch}"


def make_bundle(code: bytes, arch: str) -> bytes:
    """Returns a bundle of an empty host entry and one code object."""
    entries = ((_HOST, b""), (target_name(arch), code))
    size = len(MAGIC) + 8 + sum(24 + len(name) for name, _ in entries)
    offset = -(-size // _ALIGNMENT) * _ALIGNMENT
    head = MAGIC + struct.pack("<Q", len(entries))
    for name, content in entries:
        head += struct.pack("<3Q", offset, len(content), len(name)) + name.encode()
    return head.ljust(offset, b"\0") + code


def code_objects(data: bytes) -> dict[str, bytes]:
    """Target -> code object, over all bundles in the data. Raises ValueError for damaged data."""
    if data[: len(COMPRESSED)] == COMPRESSED:
        raise ValueError("the bundle is compressed")
    found: dict[str, bytes] = {}
    begin = data.find(MAGIC)
    if begin < 0:
        raise ValueError("not an offload bundle")
    while begin >= 0:
        found |= _entries(data, begin)
        begin = data.find(MAGIC, begin + len(MAGIC))
    return found


def _entries(data: bytes, begin: int) -> dict[str, bytes]:
    at = begin + len(MAGIC)
    try:
        (count,) = struct.unpack_from("<Q", data, at)
        if count > _MOST_ENTRIES:
            raise ValueError("the bundle has too many entries")
        at += 8
        found: dict[str, bytes] = {}
        for _ in range(count):
            offset, size, length = struct.unpack_from("<3Q", data, at)
            name = data[at + 24 : at + 24 + length].decode()
            at += 24 + length
            if begin + offset + size > len(data) or at > len(data):
                raise ValueError("an entry lies outside the bundle")
            if size:
                found[name] = data[begin + offset : begin + offset + size]
    except (struct.error, UnicodeDecodeError):
        raise ValueError("the bundle is damaged") from None
    return found


if __name__ == "__main__":
    source, output, machine = sys.argv[1:]
    Path(output).write_bytes(make_bundle(Path(source).read_bytes(), machine))
