"""Rule sets: data files that propose kernels (kernels/rules/*.json, or a user's file).

A rule set is a list of blocks. A block is a cross product, every tile x every value of every other axis, for
the architectures, directions, data types and ranks that it names. Kernels that the architecture refuses are
dropped and counted, never changed.

    {"about": "...", "blocks": [{
        "arch": ["gfx950"],                          names in kernels/arch_specs.json
        "direction": [...], "dtype": [...], "ndim": [2, 3],         default: all
        "tiles": [{"tile": "64x128x64", "waves": "2x2x1", "warp_tile": "32x32x16"}, ...],
        "pipeline": ["compv3", "compv4"],
        "vectors": ["4x8x8"], ...}]}

`tiles` may name one of the file's "tile_lists": {"name": [...]}. A tile's `waves` and `warp_tile` may be
lists; a tile "64x128" takes its depths from the block's `tile_k`; a warp tile "32x32" takes the deepest K
that the architecture lists for the data type and that divides the tile. `vectors` are widths, or a strategy:
"max", "channels_multiple_of_4", "input_channels_multiple_of_1", "output_channels_multiple_of_2" (the widest
load that such channel counts allow). The default of `double_smem_buffer` is what the pipeline requires. The
other axes and their defaults: `scheduler` ["intrawave"], `epilogue` ["cshuffle"], `split_image` [false],
`num_groups_to_merge` [1], `explicit_gemm` [false], `two_stage` [false], `padding` ["111"] (one digit for each
of pad_m, pad_n, pad_k), `specialization` ["Default"].

Blocks of GEMM kernels are in a separate list, "gemm" beside "blocks"; either list may be omitted:

    {"gemm": [{
        "arch": ["gfx950"],
        "dtype": [...], "layout": ["rcr"],                          default: all
        "tiles": [...], "pipeline": ["compv3", "preshufflev2"], ...}]}

with `tile_k`, `scheduler`, `epilogue` and `padding` as above, and `persistent` [false].

The sets `profiler` and `tests` do not ship with tile-oracle: they are read from a checkout's CK Builder
config files (tile_oracle.pool.ck_builder), and their names include the checkout: `profiler@DIR` (`rules_of`).
A set may also be one such file, by its path (`nhwgc_bf16.conf`, or `nhwgc_bf16.conf@DIR` with a checkout). A
.json file may also be a kernel list of Composable Kernel's dispatcher or tile_engine
(tile_oracle.pool.rule_parts), a sweep of tile_engine (tile_oracle.pool.sweep), or a list of kernel
names (tile_oracle.pool.named_kernels).
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from types import ModuleType

from tile_oracle.errors import RuleError
from tile_oracle.files.data_files import data_folder
from tile_oracle.files.json_tree import JsonTree, shown
from tile_oracle.operation import operation_named, operations
from tile_oracle.operation.descriptor import RuleBlock
from tile_oracle.pool.ck_builder import (
    BUILDER_SETS,
    SUFFIXES,
    BuilderConfigs,
    read_builder_configs,
    read_builder_file,
)
from tile_oracle.pool.named_kernels import KERNELS, read_named_kernels
from tile_oracle.pool.rule_parts import INSTANCES, RuleSet
from tile_oracle.pool.sweep import TILES, TRAITS, sweep_rules
from tile_oracle.terminal.did_you_mean import did_you_mean

_LISTED_OP = "grouped_conv"
"""The operation of kernel lists and CK Builder config files, which do not name it."""

MAX_CANDIDATES = 250_000
"""Limit on the candidates of all blocks of a set. More is probably a mistake, and would take minutes to
check."""


def list_rule_sets() -> tuple[str, ...]:
    """Returns the names of the shipped rule sets, sorted."""
    return tuple(sorted(path.stem for path in (data_folder("kernels") / "rules").glob("*.json")))


def set_name(kernel_set: str) -> str:
    """Returns the name under which a kernel set's results are kept: that of a list is its file's stem.

    A list that is called like a shipped set keeps its whole name, so that the two never share a baseline.
    """
    path = Path(kernel_set)
    listed = path.suffix == ".json" and path.stem not in list_rule_sets()
    return path.stem if listed else kernel_set


def rules_of(kernel_set: str, ck_tile: Path | None) -> str:
    """Returns the argument of `load_rule_set` for a kernel set and a checkout, which `profiler` and `tests`
    need."""
    read_with_it = kernel_set in BUILDER_SETS or kernel_set.endswith((*SUFFIXES, ".json"))
    return f"{kernel_set}@{ck_tile}" if read_with_it and ck_tile is not None else kernel_set


def list_of_kernels(kernel_set: str) -> RuleSet:
    """Returns the rule set of a .json file; for every other kernel set an empty one, which narrows nothing.

    Raises RuleError.
    """
    is_list = Path(kernel_set).suffix == ".json"
    return load_rule_set(kernel_set) if is_list else RuleSet(kernel_set, "", {})


def sources_of_list(path: str) -> tuple[bool, bool]:
    """Returns whether a .json file has kernels of the package's families, and whether it has kernels in
    Triton.

    A missing file counts as one of the families': `load_rule_set` refuses it where the kernels are needed.
    Raises RuleError.
    """
    if not Path(path).is_file():
        return True, False
    listed = load_rule_set(path)
    return bool(listed.blocks), bool(listed.triton)


def load_rule_set(name_or_path: str) -> RuleSet:
    """Loads a rule set: a shipped one by name, a user's by the path of its .json or .conf file, or one of a
    checkout (`rules_of`).

    Raises RuleError.
    """
    set_name, at, checkout = name_or_path.partition("@")
    if set_name in BUILDER_SETS:
        if not at:
            raise RuleError(
                f"kernel set {set_name} is read from the CK Builder config files of a checkout of Composable "
                "Kernel: name it with --ck-tile DIR"
            )
        return _builder_set(set_name, Path(checkout))
    file = _FILE.fullmatch(name_or_path)
    if file is None:
        known = list_rule_sets()
        if name_or_path in known:
            path = data_folder("kernels") / "rules" / f"{name_or_path}.json"
            return _with_installed(_read(path, name_or_path, 0, 0))
        hint = did_you_mean(name_or_path, known, f"shipped sets: {', '.join(known)}")
        raise RuleError(
            f"kernel set {shown(name_or_path)} is not known; {hint} (a file's name ends in .json or .conf)"
            + _other_kind(Path(name_or_path))
        )
    source = f"kernel set {shown(file[1])}"
    try:
        path = Path(file[1]).absolute()
        stat = path.stat()
    except (OSError, ValueError):
        raise RuleError(f"{source}: there is no such file") from None
    if not S_ISREG(stat.st_mode):
        raise RuleError(f"{source} is not a file")
    if path.suffix != ".json":
        return _read_config(name_or_path, path, file[2], stat.st_mtime_ns, stat.st_size)
    try:
        return _read(path, file[1], stat.st_mtime_ns, stat.st_size, file[2] or "")
    except RuleError as error:
        what = _other_kind(path)
        is_other = what and not what.endswith("of no known kind")
        raise RuleError(f"{f'{source} has no kernels' if is_other else error}{what}") from None


def _other_kind(path: Path) -> str:
    from tile_oracle.foreign.formats import KERNELS, refusal  # every reader of foreign files

    return refusal(path, KERNELS)


@lru_cache(maxsize=64)
def _read(path: Path, name: str, mtime_ns: int, size_bytes: int, checkout: str = "") -> RuleSet:
    # Time and size are part of the cache's key only: an edited file is read again.
    tree = JsonTree.read(path, _MOST_BYTES)
    keys = tree.value.keys() if isinstance(tree.value, dict) else set[str]()
    if TILES in keys:
        tree = sweep_rules(tree)
        keys = tree.value.keys()
    if INSTANCES in keys:
        found: RuleSet = _kernel_lists().read_kernel_list(tree, f"{name}@{checkout}" if checkout else name)
        return replace(found, of_library=bool(checkout))
    if TRAITS in keys:
        raise tree.error("a list of traits names no kernels: narrow a kernel set by --kernel-filter")
    if KERNELS in keys:
        return read_named_kernels(tree, name)
    readers = {one.rules_key: one for one in operations()}
    given = [key for key in readers if key in keys]
    needed = given[0] if given else next(iter(readers))
    top = tree.known_members((needed,), ("about", "tile_lists", *(key for key in readers if key != needed)))
    tile_lists = top["tile_lists"].members() if "tile_lists" in top else {}
    blocks: dict[str, tuple[RuleBlock, ...]] = {}
    for key in given:
        of_op = blocks[readers[key].name] = tuple(
            readers[key].read_rules(item, tile_lists) for item in top[key].items()
        )
        candidates = sum(block.candidates for block in of_op)
        if candidates > MAX_CANDIDATES:
            raise top[key].error(
                f"the blocks propose {candidates:,} kernels for each kind of problem; the limit is "
                f"{MAX_CANDIDATES:,}: shorten their lists"
            )
    if not any(blocks.values()):
        raise top[needed].error("a rule set needs at least one block")
    return RuleSet(name, top["about"].text() if "about" in top else "", blocks)


def _kernel_lists() -> ModuleType:
    lists = operation_named(_LISTED_OP).kernel_lists
    assert lists is not None
    return lists()


@lru_cache(maxsize=64)
def _with_installed(rule_set: RuleSet) -> RuleSet:
    """Adds to a shipped set the blocks that installed operations have for a set of this name."""
    more: dict[str, tuple[RuleBlock, ...]] = {}
    for operation in operations():
        if operation.rules_folder is not None:
            path = operation.rules_folder / f"{rule_set.name}.json"
            if path.is_file():
                more |= _read(path, rule_set.name, 0, 0).blocks
    return replace(rule_set, blocks={**rule_set.blocks, **more}) if more else rule_set


_MOST_BYTES = 16 << 20
_FILE = re.compile(r"(.*\.(?:json|conf|config))(?:@(.*))?", re.DOTALL)
"""A file, and perhaps a checkout."""


@lru_cache(maxsize=4)
def _builder_set(name: str, folder: Path) -> RuleSet:
    return _of_configs(f"{name}@{folder}", read_builder_configs(name, folder), of_library=True)


@lru_cache(maxsize=4)
def _read_config(name: str, path: Path, checkout: str | None, mtime_ns: int, size_bytes: int) -> RuleSet:
    # Time and size are part of the cache's key only: an edited file is read again.
    configs = read_builder_file(path, Path(checkout) if checkout else None)
    return _of_configs(name, configs, of_library=bool(checkout))


def _of_configs(name: str, configs: BuilderConfigs, *, of_library: bool) -> RuleSet:
    made = _kernel_lists().builder_block
    blocks = {_LISTED_OP: tuple(made(line, configs.archs) for line in configs.lines)}
    about = f"{configs.files} config files in {configs.folder}"
    return RuleSet(name, about, blocks, configs.notes, configs.left_out, of_library)
