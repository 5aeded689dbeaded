"""The pairs of a session: every problem with every kernel of its kind's pool, or those of --pairs."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tile_oracle.arch.table import fp8_refusal
from tile_oracle.compiling.kernel_source import KernelSource
from tile_oracle.errors import KernelError, LacksFieldError, ProblemError, ProblemSetError, RuleError
from tile_oracle.files.spreadsheet import cell_text
from tile_oracle.files.table_file import csv_text
from tile_oracle.judge.baseline import slug
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.libraries.libraries import LIBRARIES
from tile_oracle.libraries.offers import Offers, load_offers, offers_file
from tile_oracle.pool import list_of_kernels, load_rule_set, pool_of_kind, rules_of
from tile_oracle.pool.kernel_filter import KernelFilter
from tile_oracle.problem import Kind, Problem, kind_text, problem_from_id
from tile_oracle.problem_set import ProblemSet, reading_notes
from tile_oracle.session.options import SessionOptions

Rankings = dict[str, tuple[Kernel, ...]]


def rankings_of(offers: Iterable[Offers], problems: Iterable[Problem]) -> Rankings:
    """Problem id -> the ranking of the first library that ranks it, its first choice first."""
    libraries = tuple(offers)
    found: Rankings = {}
    for problem in problems:
        for one in libraries:
            if problem.id not in found and (ranked := one.ranking(problem)):
                found[problem.id] = ranked
    return found


def recorded_offers(paths: Iterable[Path]) -> list[Offers]:
    """Returns the offers in the folders of runs. Raises RecordError for a damaged file."""
    files = [offers_file(path, name) for path in paths if path.is_dir() for name in LIBRARIES]
    return [load_offers(file) for file in files if file.is_file()]


def read_pairs(path: Path, pools: Mapping[str, Sequence[Kernel]]) -> dict[str, frozenset[str]]:
    """Problem id -> names of its kernels, from a CSV file with the columns `problem` and `kernel`.

    pools: the candidates of every problem of the session, by problem id. Kernels are named by their full or
    short name. Raises RuleError for a file that cannot be read, and for a pair that is not part of the
    session.
    """
    listed: dict[str, set[str]] = {}
    names: dict[int, dict[str, str]] = {}
    for line, problem, kernel in _rows(path):
        try:
            found: str = problem_from_id(problem).id
            if (pool := pools.get(found)) is None:
                raise RuleError(f"{problem[:200]} is in none of the problem sets of --problem-set")
            known = names.setdefault(id(pool), {n: k.name for k in pool for n in (k.name, k.short_name)})
            name = known.get(kernel) or known.get(parse_kernel_name(kernel).name)
            if name is None:
                raise RuleError(
                    f"{kernel[:200]} is not a candidate for {found}: choose the --kernel-set (and target) "
                    "that it is from"
                )
        except (RuleError, ProblemError, KernelError) as error:
            raise RuleError(f"{path}:{line}: {error}") from None
        listed.setdefault(found, set()).add(name)
    if not listed:
        raise RuleError(f"{path} lists no pair: it needs rows below the header problem,kernel")
    return {problem: frozenset(kernels) for problem, kernels in listed.items()}


def _rows(path: Path) -> list[tuple[int, str, str]]:
    try:
        with io.StringIO(csv_text(path), newline="") as file:
            reader = csv.DictReader(file)
            missing = {"problem", "kernel"} - set(reader.fieldnames or ())
            if missing:
                raise RuleError(
                    f"{path} has no column {sorted(missing)[0]}: it needs the columns problem and kernel"
                )
            return [
                (reader.line_num, cell_text(row["problem"].strip()), cell_text(row["kernel"].strip()))
                for row in reader
            ]
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)[:200]
        raise RuleError(f"cannot read the pairs in {path}: {why}") from None


def set_name(part: ProblemSet, parts: Sequence[ProblemSet]) -> str:
    """Returns a set's name as a file name; with a digest if several sets have this name."""
    same = sum(other.name == part.name for other in parts) > 1
    return slug(f"{part.name} {part.sha256}") if same else slug(part.name)


Offered = Mapping[str, tuple[Kernel, ...]]


@dataclass(frozen=True)
class Plan:
    """problems: those of all sets, without duplicates. pools: kernels by kind, in the order in which they
    run. offered: problem id -> the algorithms that libraries offer for it, candidates besides those of the
    pools. rankings: problem id -> a library's own ranking of some of them, its first choice first. listed:
    the pairs of --pairs, problem id -> kernel names; None for all pairs."""

    problem_set: ProblemSet
    pools: dict[Kind, tuple[Kernel, ...]]
    listed: Mapping[str, frozenset[str]] | None = None
    notes: tuple[str, ...] = ()
    """Notes on the problem sets and the kernel set for the summary."""
    offered: Offered = field(default_factory=dict)
    rankings: Offered = field(default_factory=dict)

    @property
    def sets(self) -> tuple[ProblemSet, ...]:
        return self.problem_set.parts or (self.problem_set,)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self.problem_set.problems

    def kernels(self, problem: Problem) -> tuple[Kernel, ...]:
        """Returns the candidates for a problem; none if no set of the plan has problems of its kind."""
        return (*self.pools.get(problem.kind, ()), *self.offered.get(problem.id, ()))

    @property
    def all_kernels(self) -> tuple[Kernel, ...]:
        """The candidates of all problems, each once."""
        several = (*self.pools.values(), *self.offered.values())
        return tuple(dict.fromkeys(kernel for kernels in several for kernel in kernels))

    def asked(self, problem: Problem) -> tuple[Kernel, ...]:
        """Returns the candidates to measure: all of them, or those that --pairs lists."""
        kernels = self.kernels(problem)
        if self.listed is None:
            return kernels
        names = self.listed.get(problem.id, frozenset())
        return tuple(kernel for kernel in kernels if kernel.name in names)

    def pairs(self) -> Iterator[tuple[Problem, Kernel]]:
        for problem in self.problems:
            for kernel in self.asked(problem):
                yield problem, kernel

    @property
    def pair_count(self) -> int:
        return sum(len(self.kernels(problem)) for problem in self.problems)

    @property
    def listed_count(self) -> int | None:
        """Number of pairs in --pairs; None without it."""
        return None if self.listed is None else sum(map(len, self.listed.values()))


def without(plan: Plan, names: Collection[str]) -> Plan:
    """Returns the plan without the kernels of these names."""
    if not names:
        return plan
    pools = {kind: tuple(k for k in pool if k.name not in names) for kind, pool in plan.pools.items()}
    offered = {one: tuple(k for k in several if k.name not in names) for one, several in plan.offered.items()}
    return replace(plan, pools=pools, offered=offered)


Pools = dict[Kind, tuple[Kernel, ...]]


def _as_recorded(of_rules: Pools, recorded: Iterable[Kernel], where: KernelFilter | None) -> Pools:
    """Returns the recorded candidates: those of the rules in the rules' order, then the others. A kind
    without recorded kernels keeps the rules' pool."""
    by_kind: dict[Kind, dict[str, Kernel]] = {}
    for kernel in kept(recorded, where):
        by_kind.setdefault(kernel.kind, {})[kernel.name] = kernel
    pools = {}
    for kind, pool in of_rules.items():
        own = by_kind.get(kind, {})
        known = [kernel for kernel in pool if kernel.name in own]
        names = {kernel.name for kernel in known}
        pools[kind] = (*known, *(kernel for name, kernel in own.items() if name not in names)) or pool
    return pools


def kept(kernels: Iterable[Kernel], where: KernelFilter | None) -> tuple[Kernel, ...]:
    """Returns the kernels for which a filter holds. Of several sources, one whose kernels all lack the
    filter's fields is kept whole. Raises RuleError for other kernels without them."""
    if where is None:
        return tuple(kernels)
    of_source: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        of_source.setdefault(kernel.source, []).append(kernel)
    found: list[Kernel] = []
    for own in of_source.values():
        try:
            found += [kernel for kernel in own if where.matches(kernel)]
        except LacksFieldError:
            if len(of_source) == 1 or any(_has_fields(kernel, where) for kernel in own):
                raise
            found += own
    return tuple(found)


def _has_fields(kernel: Kernel, where: KernelFilter) -> bool:
    with suppress(LacksFieldError):
        where.matches(kernel)
        return True
    return False


def _of_sources(
    options: SessionOptions, arch: str, problem_set: ProblemSet, sources: Sequence[KernelSource | None]
) -> tuple[Pools, tuple[str, ...]]:
    """Returns the pools of all sources, each kernel once, and their notes. Raises RuleError."""
    kinds = tuple(dict.fromkeys(problem.kind for problem in problem_set.problems))
    found: dict[Kind, dict[Kernel, None]] = {kind: {} for kind in kinds}
    notes: list[str] = []
    own = any(source is not None and source.kinds is not None for source in sources)
    listed = list_of_kernels(options.kernel_set if own else "")
    for source in sources:
        rules = rules_of(options.kernel_set, options.ck_tile)
        if source is not None:
            source.expect(problem_set.problems)
            notes += source.notes_on({kind.op for kind in kinds})
        if source is not None and source.kinds is not None:
            rules = options.kernel_set
        else:
            notes += load_rule_set(rules).notes
        for kind in kinds:
            try:
                pool = pool_of_kind(kind, arch, rules) if source is None else source.pool(kind, rules)
            except RuleError as error:
                if len(sources) == 1:
                    raise
                notes.append(str(error))
                continue
            found[kind] |= dict.fromkeys(pool)
    missing = [one.name for one in listed.triton if one.kind in found and one not in found[one.kind]]
    if missing:
        notes.append(
            f"{len(missing)} of the kernels in {listed.name} are in no source, the first: {missing[0]}"
        )
    return {kind: tuple(pool) for kind, pool in found.items()}, tuple(dict.fromkeys(notes))


def make_plan(
    options: SessionOptions,
    arch: str,
    problem_set: ProblemSet,
    recorded: Iterable[Kernel] | None = None,
    offered: Offered | None = None,
    rankings: Offered | None = None,
    *,
    sources: Sequence[KernelSource | None] = (None,),
) -> Plan:
    """recorded: the candidates of a replay, which override the kernel set; None: those of the kernel set.
    offered, rankings: see Plan. sources: those whose kernels are candidates; None is the kernel set.

    Raises ProblemSetError and RuleError for sets, rules, filters and pairs that cannot be used.
    """
    where = KernelFilter(options.kernel_filter) if options.kernel_filter else None
    ops = dict.fromkeys(problem.op for problem in problem_set.problems)
    if len(ops) > 1:
        raise ProblemSetError(
            f"--problem-set {problem_set.name} has problems of {' and '.join(ops)}: a run records one "
            "operation, so run each on its own"
        )
    try:
        pools, notes = _of_sources(options, arch, problem_set, sources)
        # Asked about the kernels of all kinds at once, since a source may have none of some kinds.
        names = set(kept((kernel for pool in pools.values() for kernel in pool), where))
        pools = {kind: tuple(one for one in pool if one in names) for kind, pool in pools.items()}
    except RuleError:
        if recorded is None:
            raise
        # The recorded kernels suffice.
        pools, notes = dict.fromkeys((problem.kind for problem in problem_set.problems), ()), ()
    if recorded is not None:
        pools = _as_recorded(pools, recorded, where)
    if sources and (lacking := [kind for kind, pool in pools.items() if not pool]):
        raise RuleError(_why_none(options, arch, lacking[0], sources))
    every_note = (*reading_notes(problem_set), *notes)
    plan = Plan(problem_set, pools, notes=every_note, offered=offered or {}, rankings=rankings or {})
    if options.pairs is None:
        return plan
    of_problem = {problem.id: plan.kernels(problem) for problem in plan.problems}
    return replace(plan, listed=read_pairs(options.pairs, of_problem))


def _why_none(options: SessionOptions, arch: str, kind: Kind, sources: Sequence[KernelSource | None]) -> str:
    """Returns why there is no kernel for a kind."""
    narrowed = f" with --kernel-filter {options.kernel_filter!r}" if options.kernel_filter else ""
    none = f"{narrowed} has no kernel for {kind_text(kind)} on {arch}"
    if len(sources) > 1:
        return f"--kernels {options.pool_name}{none}"
    if sources[0] is not None and sources[0].kinds is not None:
        kinds = [one for one in sources[0].kinds if one.op == kind.op] or sources[0].kinds
        only = f"{options.kernel_set}{none}, only for {', '.join(map(kind_text, kinds))}"
        return fp8_refusal(kind, arch) or only
    return f"--kernel-set {options.kernel_set}{none}: see `tile-oracle pool list`"
