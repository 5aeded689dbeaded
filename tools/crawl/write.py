"""Writes the chosen problems as problem-set files with their provenance."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tile_oracle.errors import ProblemSetError
from tile_oracle.files.atomic_file import write_atomically
from tile_oracle.problem_set import format_problem_set
from tools.crawl.select import (
    BAND_EDGES_GFLOP,
    KIND_SHARES,
    PINNED_TO_TRAINING,
    TRAINING_LIMITS,
    VALIDATION_LIMITS,
    Chosen,
    Limits,
    Selection,
    band_of,
    kind_of,
)
from tools.crawl.trace import Trace


def write_selection(
    selection: Selection, traces: Sequence[Trace], folder: Path, command: str, versions: Mapping[str, str]
) -> list[Path]:
    """Writes `{direction}_training.csv` and `{direction}_validation_{count}.csv`, each atomically. An empty
    set is not written. Returns the paths. Raises ProblemSetError if a file cannot be written."""
    direction = selection.options.direction
    sets = (
        (f"{direction}_training", selection.training, _training_text(selection), TRAINING_LIMITS),
        (
            f"{direction}_validation_{len(selection.validation)}",
            selection.validation,
            _validation_text(selection),
            VALIDATION_LIMITS,
        ),
    )
    written = []
    for name, chosen, purpose, limits in sets:
        if chosen:
            head = [f"{name}: {len(chosen):,} {selection.options.dtype} problems {purpose}", ""]
            prose = head + _origin(selection, traces, command, versions)
            # textwrap drops empty lines
            wrapped = [part for line in prose for part in textwrap.wrap(line, 108) or [""]]
            lines = wrapped + _strata(chosen, limits)
            text = format_problem_set(
                [c.problem for c in chosen], [c.source for c in chosen], "\n".join(lines)
            )
            written.append(folder / f"{name}.csv")
            _write_whole(written[-1], text)
    return written


def _training_text(selection: Selection) -> str:
    return f"to train a model of {selection.options.direction} kernels on."


def _validation_text(selection: Selection) -> str:
    training = f"{selection.options.direction}_training"
    return f"to judge such a model by. None of its layers, at any batch size, can be in {training}."


def _origin(
    selection: Selection, traces: Sequence[Trace], command: str, versions: Mapping[str, str]
) -> list[str]:
    options = selection.options
    good = [trace for trace in traces if trace.layers]
    made_with = ", ".join(f"{library} {version}" for library, version in sorted(versions.items()))
    held_out = ", ".join(selection.held_out) or "none"
    batch_sizes = " ".join(map(str, options.batch_sizes))
    additions = ", and deliberate additions (source synthetic:<why>)" if options.synthetic else ""
    return [
        f"Made by: {command} --direction {options.direction}",
        f"with {made_with}; seed {options.seed}.",
        f"From {len({t.architecture for t in good}):,} architectures of {selection.families} families, "
        "traced on PyTorch's meta device, without weights, at "
        f"{len(good):,} pairs of architecture and resolution, and taken at batch sizes "
        f"{batch_sizes}{additions}.",
        "source: the first architecture by name that has the problem @ image height x width (video: frames "
        "first).",
        "",
        f"Held out for validation, whole families: {held_out}. The rule: of the image families and of the "
        'video families the first quarter by sha256("seed:family"), but '
        f"{', '.join(sorted(PINNED_TO_TRAINING))} are always for training.",
        f"{selection.shared_layers:,} layers of the held-out families that others have too are for training "
        "only. A fifth of the additions, by layer, is for validation.",
        "",
    ]


def _strata(chosen: Sequence[Chosen], limits: Limits) -> list[str]:
    edges = [f"<{edge:g}" for edge in BAND_EDGES_GFLOP] + [f">={BAND_EDGES_GFLOP[-1]:g}"]
    counts = Counter((kind_of(c.problem), band_of(c.problem.flops)) for c in chosen)
    rows = [("kind", *edges, "all")]
    for kind in KIND_SHARES["forward"]:
        in_bands = [counts[kind, band] for band in range(len(edges))]
        rows.append((kind, *map(str, in_bands), str(sum(in_bands))))
    return [
        "Chosen by strata, kind of layer x band of GFLOP, the families of a stratum taking turns.",
        f"A problem has at most {limits.max_gflop:g} GFLOP and {limits.max_bytes // 10**6} MB.",
        *(row[0].ljust(14) + "".join(cell.rjust(8) for cell in row[1:]) for row in rows),
        "Order: a fixed shuffle, so that the first problems are a fair sample of all.",
    ]


def _write_whole(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    except OSError as error:
        raise ProblemSetError(f"{path} cannot be written: {error.strerror}") from None
