"""The algorithms that cuDNN offers for a problem: its own rankings, and every engine as it is."""

from __future__ import annotations

import itertools

from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.library.cudnn import (
    RANKINGS,
    Choices,
    Convolution,
    Cudnn,
    Graph,
    algorithm_name,
    as_data,
)
from tile_oracle.device.library.cudnn_attention import Attention
from tile_oracle.libraries.offers import WORKSPACE_BYTES, Offer, ProblemOffers
from tile_oracle.problem import Problem


def graph_of(library: Cudnn, problem: Problem) -> Graph:
    """Returns the problem as the library sees it. Raises Unlaunchable, LibraryFailure."""
    return Attention(library, problem) if problem.op == "attention" else Convolution(library, problem)


def offers_for(library: Cudnn, graph: Graph, most: int) -> ProblemOffers:
    """At most `most` offers: the ranking of mode A, then those of the other modes, then the other engines.

    An algorithm counts as accepted when an execution plan can be made of it. Raises LibraryFailure.
    """
    rankings = [graph.ranking(mode) for mode in RANKINGS]
    ranked = next((several for several in rankings if several), [])
    others: list[tuple[int, Choices]] = [(engine, ()) for engine in range(graph.engines)]
    offers: list[Offer] = []
    too_large = 0
    for engine, choices in dict.fromkeys(itertools.chain(*rankings, others)):
        if len(offers) == most:
            break
        try:
            plan = graph.plan(engine, choices)
        except Unlaunchable:
            continue
        needed = plan.workspace_bytes
        plan.close()
        if needed > WORKSPACE_BYTES["cudnn"]:
            too_large += 1
            continue
        rank = sum(one.rank is not None for one in offers) if (engine, choices) in ranked else None
        name = algorithm_name(engine, choices)
        offers.append(Offer(name, as_data(engine, choices), needed, rank))
    return ProblemOffers.of(offers, len(offers) + too_large, too_large)
