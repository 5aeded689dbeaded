"""`tile-oracle pool list`: the kernels of a rule set, the refused ones, and names.

Counts the kernels of a rule set by architecture and kind of problem; for one kind, by tile and pipeline.
Also lists names, explains refusals, and explains a kernel's name.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tile_oracle.arch import Arch, known_archs, load_arch
from tile_oracle.commands import kernel_pools
from tile_oracle.commands.arguments import BUILD_DIR, KERNELS, ONLY_JSON, TOOLCHAIN, show
from tile_oracle.commands.kernel_code import show_code
from tile_oracle.commands.kernel_verify import file_lines, verified_document, verified_status, verify_file
from tile_oracle.commands.kinds import KINDS, kinds_of
from tile_oracle.compiling.drift import Drift, drift, read_version
from tile_oracle.errors import KernelError
from tile_oracle.features.schemas import SCHEMAS, schema_named
from tile_oracle.kernel import Kernel, kernel_of_kind, parse_kernel_name, tiled
from tile_oracle.operation import operation_named, operation_names
from tile_oracle.pool import explain_pool_of_kind, list_rule_sets, load_rule_set
from tile_oracle.pool.kernel_filter import filter_fields
from tile_oracle.terminal.argument_table import argument_table
from tile_oracle.terminal.counts import count
from tile_oracle.terminal.text_table import first_few, text_table

_EXAMPLES = """\
examples:
  tile-oracle pool list                                      counts of the default set, each architecture
  tile-oracle pool list --arch gfx950 --kernel-filter "tile_n >= 128 and pipeline == 'compv5'" --list
                                                           the names that pass a filter, one per line
  tile-oracle pool list --arch gfx950 --refused              what the rules propose and gfx950 refuses
  tile-oracle pool list --arch gfx950 --dtype bf16 --kernel-filter "tile_m==16 and pipeline=='compv4'" --facts
                                                           compile them: registers, LDS, spills, occupancy
  tile-oracle pool list --kernels my_kernels.py --arch gfx950 --verify --sample 20
                                                           verify the waits of 20 kernels in Triton
  tile-oracle pool list --diff kernels-old kernels-new       what changed between two folders of a build
  tile-oracle pool list grouped_conv_forward_bf16_2d_64x64x64_compv4_intrawave
                                                           a name's fields, and which architectures allow it

a rule set of your own (--kernel-set mine.json; the shipped ones are kernels/rules/*.json):
  {"blocks": [{"arch": ["cpu"], "pipeline": ["mem", "compv3"],
               "tiles": [{"tile": "64x64x64", "waves": "1x1x1", "warp_tile": ["4x32x1", "8x32x1"]}]}]}

fields of a filter:
"""


EXAMPLES = f"""{_EXAMPLES}  {", ".join(filter_fields("grouped_conv"))}
fields of GEMM kernels:
  {", ".join(filter_fields("gemm"))}"""
GOES_ON = "what is compiled is in the cache, and the same command goes on from there"
ARGUMENTS = argument_table(
    f"""
name [NAME]  a kernel's full or short name: explain it; with --verify: a file to verify; without --list,
    --refused, --facts, --diff, --features or --output
--features [SCHEMA]  list the feature schemas; of a SCHEMA its columns with their meaning; without --list,
    --refused, --facts, --verify, --diff or --output
--arch ARCH  one of {", ".join(known_archs())} (default: all of the set)
{KINDS}
--kernel-set SET=default  {", ".join(list_rule_sets())}, or the path of a .json or a .conf file
--ck-tile DIR  a checkout of Composable Kernel, whose CK Builder configs the sets profiler and tests are
{KERNELS}
--kernel-filter EXPR  only the kernels for which this is true
--list  print the names, one per line
--refused  explain which kernels the architectures refuse (with --list: one line per kernel)
-o --output FILE.{{json,txt}}  write the kernels: a dispatcher's instance list, or names, one per line;
    without --list, --refused, --facts, --verify or --json
--facts  compile the kernels for the GPU --arch and show the resources that each uses; exit status 1 when a
    kernel spills, uses scratch memory, needs too much LDS or does not compile
--verify  compile the kernels for an AMD GPU and prove from their machine code that loads are waited for,
    accesses to LDS are ordered, and wait states are kept; exit status 1 with findings (--list: all of them),
    3 if some kernels are not proven. With a path as NAME: verify that file, assembly, a code object or the
    archive of a kernel in Triton
--sample N  with --facts or --verify: of N of the kernels, chosen at random
--seed N=1  with --sample: another N chooses others
--diff DIR DIR  compare two versions of a pool, folders of tile-oracle build; exit status 1 when they differ;
    without --list, --refused, --facts, --verify or --output
--json  print everything that is shown, complete, {ONLY_JSON}
{TOOLCHAIN}
-j --jobs N  compilers at once (default: one per core)
{BUILD_DIR}
--first N=20  reasons or names shown
""",
    op=operation_names(),
)


def run(args: argparse.Namespace) -> int:
    """Prints what was asked for. Raises HarnessError."""
    if args.features is not None:
        features = _features_document(args.features)
        return show(args, features, _features_lines(features))
    if args.diff is not None:
        found = drift(*map(read_version, args.diff))
        return show(args, _diff_document(found), _diff_lines(found, args.first), 1 if found else 0)
    if args.name is not None and args.kernels is None:
        if args.verify:
            one = verify_file(Path(args.name))
            return show(args, verified_document([one]), file_lines(one), verified_status([one]))
        kernel, written = _kernel_named(args)
        document = _kernel_document(kernel, (load_arch(args.arch).name,) if args.arch else ())
        return show(args, document, _kernel_lines(document, written))
    pools = kernel_pools.find_pools(args)
    if args.facts or args.verify:
        return show_code(pools, args)
    if args.output is not None:
        print(kernel_pools.write_list(pools, args.output))
        return 0
    return show(args, kernel_pools.pools_document(pools, args), _pool_lines(pools, args))


def _pool_lines(pools: kernel_pools.Pools, args: argparse.Namespace) -> list[str]:
    """Returns the names, the refusals or the counts of the pools."""
    if args.list and args.refused:
        refused = (one for kind in pools.kinds for one in kind.pool.refused)
        return [
            *(f"{one.place}: {one.kernel.name}: {one.reason}" for one in refused),
            *(f"{place}: {reason}" for place, reason in pools.rules.left_out),
        ]
    if args.list:
        return [kernel.name for kernel in pools.accepted]
    if args.refused:
        return kernel_pools.explain_refusals(pools, first=args.first)
    return kernel_pools.count_kernels(pools, filtered=args.kernel_filter is not None)


# ---- --features and --diff ----------------------------------------------------------------------


def _features_document(name: str) -> list[dict[str, Any]]:
    """Returns the columns of a schema; without a name, the schemas. Raises ModelError."""
    if name:
        return [{"name": one.name, "meaning": one.meaning} for one in schema_named(name).features]
    return [{"schema": one.name, "operation": one.op, "columns": len(one.names)} for one in SCHEMAS.values()]


def _features_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"{one['schema']:<22}{one['operation']:<16}{one['columns']:>4} columns"
        if "schema" in one
        else f"{place:>3}  {one['name']:<34}  {one['meaning']}"
        for place, one in enumerate(found)
    ]


def _diff_lines(drift: Drift, first: int) -> list[str]:
    """Returns a table of counts, then the first names of each kind of difference and the first groups of
    twins."""
    sides = {"A": drift.a, "B": drift.b}
    rows = [("", "kernels", "distinct binaries", "made by")]
    for letter, one in sides.items():
        rows.append((letter, f"{len(one.kernels):,}", f"{len({*one.kernels.values()}):,}", one.made_by))
    lines = [f"{letter}: {one.where}" for letter, one in sides.items()]
    lines += ["", *text_table(rows, right_aligned=(1, 2))]
    groups: dict[str, Sequence[str]] = {
        "gained (only in B)": drift.gained,
        "lost (only in A)": drift.lost,
        "renamed (one binary, two names)": [f"{a} -> {b}" for a, b in drift.renamed],
        "changed (same name, other binary)": drift.changed,
        "groups of names in B that are one binary": [" = ".join(names) for names in drift.b.twins()],
    }
    for title, names in groups.items():
        if names:
            shown = first_few(names, first, "more (--first N)")
            lines += ["", f"{title}: {len(names):,}", *(f"  {name}" for name in shown)]
    if not drift:
        return [*lines, "", f"no difference in {count(len(drift.same), 'kernel')}"]
    counts = {name: len(getattr(drift, name)) for name in ("gained", "lost", "renamed", "changed")}
    said = [*(f"{number:,} {name}" for name, number in counts.items()), f"{len(drift.same):,} the same"]
    return [*lines, "", ", ".join(said)]


def _diff_document(drift: Drift) -> dict[str, object]:
    """Returns all differences as one JSON object."""
    sides = {"a": drift.a, "b": drift.b}
    return {
        **{
            name: {"where": one.where, "made_by": one.made_by, "kernels": len(one.kernels)}
            for name, one in sides.items()
        },
        **{name: getattr(drift, name) for name in ("gained", "lost", "changed")},
        "renamed": [{"a": before, "b": after} for before, after in drift.renamed],
        "same": len(drift.same),
        "twins": {name: one.twins() for name, one in sides.items()},
    }


def _kernel_named(args: argparse.Namespace) -> tuple[Kernel, str]:
    """Returns the kernel of a full name, or of a short one if the options name one kind, and its full name as
    given. Raises KernelError."""
    try:
        return parse_kernel_name(args.name), args.name
    except KernelError as error:
        of_kinds = {}
        for kind in kinds_of(args, defaults=False):
            with suppress(KernelError):
                of_kinds[kind] = kernel_of_kind(kind, args.name)
        if not of_kinds:
            raise error from None
    if len(of_kinds) > 1:
        first = next(iter(of_kinds.values()))
        raise KernelError(
            f"{args.name} is the short name of kernels for {len(of_kinds)} kinds of problems: add "
            f"{' and '.join('--' + name for name, _ in next(iter(of_kinds)).fields)}, or give a full name "
            f"such as {first.name}"
        )
    (kernel,) = of_kinds.values()
    return kernel, kernel.name


def _kernel_document(kernel: Kernel, archs: Sequence[str] = ()) -> dict[str, Any]:
    """Returns a kernel's fields, and for each architecture whether it is allowed and in which sets, or why
    not.
    archs: all, if none is named."""
    of_archs = {name: _on(kernel, load_arch(name)) for name in archs or known_archs()}
    return {"kernel": kernel.name, "op": kernel.op, "fields": kernel.as_row(), "archs": of_archs}


def _on(kernel: Kernel, arch: Arch) -> dict[str, Any]:
    refusals = arch.refusals(kernel)
    found: dict[str, Any] = {"allowed": not refusals, "refusals": refusals}
    if not refusals:
        found["sets"] = [name for name in list_rule_sets() if _is_in_set(kernel, arch, name)]
        if "pipeline" in operation_named(kernel.op).kernel_fields:
            found["threads"] = arch.workgroup_threads(tiled(kernel))
            found["lds_bytes"] = arch.lds_bytes(tiled(kernel))
    return found


def _is_in_set(kernel: Kernel, arch: Arch, name: str) -> bool:
    covers = load_rule_set(name).covers(kernel.kind, arch.name)
    return covers and kernel in explain_pool_of_kind(kernel.kind, arch, name).accepted


def _kernel_lines(document: dict[str, Any], written: str) -> list[str]:
    """Returns a kernel's document as text. written: the name as it was given."""
    lines = [document["kernel"]]
    if written != document["kernel"]:
        lines.append(f"  (written as {written}; the name above has every field)")
    fields = [(f"  {name}", str(value)) for name, value in document["fields"].items()]
    lines += ["", *text_table(fields, right_aligned=()), ""]
    for name, found in document["archs"].items():
        if not found["allowed"]:
            lines += [f"{name:<8} refused", *(f"           {reason}" for reason in found["refusals"])]
            continue
        takes = ""
        if "threads" in found:
            limit = load_arch(name).lds_limit_bytes
            takes = f"{found['threads']:,} threads, {found['lds_bytes']:,} of {limit:,} LDS bytes; "
        sets = ", ".join(found["sets"])
        lines.append(f"{name:<8} allowed; {takes}{f'in the sets {sets}' if sets else 'in no shipped set'}")
    return lines
