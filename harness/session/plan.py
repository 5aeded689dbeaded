"""Which pairs a session is about: every problem of the sets with every kernel of its kind's pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.errors import RuleError
from harness.kernel import GroupedConvKernel
from harness.kernel_filter import KernelFilter
from harness.pool import kernel_pool
from harness.problem import GroupedConvProblem
from harness.problem_set import ProblemSet, load_problem_sets
from harness.session.options import SessionOptions

Kind = tuple[str, str, int]


def kind_of(problem: GroupedConvProblem) -> Kind:
    """What problem and kernel must share: direction, dtype, rank."""
    return (problem.direction, problem.dtype, problem.ndim)


@dataclass(frozen=True)
class Plan:
    """problems: of all sets, each once. pools: kernels by kind, in the order in which they run."""

    problem_set: ProblemSet
    pools: dict[Kind, tuple[GroupedConvKernel, ...]]

    @property
    def sets(self) -> tuple[ProblemSet, ...]:
        return self.problem_set.parts or (self.problem_set,)

    @property
    def problems(self) -> tuple[GroupedConvProblem, ...]:
        return self.problem_set.problems

    def kernels(self, problem: GroupedConvProblem) -> tuple[GroupedConvKernel, ...]:
        """The candidates for a problem; none when no set of the plan has problems of its kind."""
        return self.pools.get(kind_of(problem), ())

    def pairs(self) -> Iterator[tuple[GroupedConvProblem, GroupedConvKernel]]:
        for problem in self.problems:
            for kernel in self.kernels(problem):
                yield problem, kernel

    @property
    def pair_count(self) -> int:
        return sum(len(self.kernels(problem)) for problem in self.problems)


def make_plan(options: SessionOptions, arch: str) -> Plan:
    """Raises ProblemSetError and RuleError for sets, rules and filters that cannot be used."""
    problem_set = load_problem_sets(options.problem_set)
    where = KernelFilter(options.kernel_filter) if options.kernel_filter else None
    pools = {
        kind: kernel_pool(*kind, arch=arch, rules=options.kernel_set, where=where)
        for kind in dict.fromkeys(kind_of(problem) for problem in problem_set.problems)
    }
    for kind, pool in pools.items():
        if not pool:
            direction, dtype, ndim = kind
            narrowed = f" with --kernel-filter {options.kernel_filter!r}" if where is not None else ""
            raise RuleError(
                f"--kernel-set {options.kernel_set}{narrowed} has no kernel for {direction} {dtype} {ndim}d "
                f"on {arch}: see `tile-oracle kernels`"
            )
    return Plan(problem_set, pools)
