"""Pickers by name: files, adapters to those of other makers, and what installed packages offer."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pandas as pd

from tile_oracle.errors import HarnessError, ModelError
from tile_oracle.evaluation.folder_model import without_refused
from tile_oracle.judge.picker import COLUMNS, NO_MODEL, PICKER, Origin, Picker, Pool
from tile_oracle.kernel import Kernel
from tile_oracle.pickers.of_records import file_of_picks
from tile_oracle.pickers.picker import EXACT, NEAREST, Asked, Configuration, Distance, nearest
from tile_oracle.problem import Problem

# ---- Pickers of other makers: asked a problem at a time, timed, mapped to the pool ---------------


@dataclass(frozen=True)
class Chosen(Picker):
    """The choices of another maker's picker. A first choice that the pool lacks is not replaced by the second
    one: such a problem has no pick. Candidates that no dispatcher would pick (`without_refused`) are none."""

    asked: Asked
    arch: str

    def rank(
        self, problems: Sequence[Problem], pool: Pool, records: pd.DataFrame | None = None
    ) -> tuple[pd.DataFrame | None, Origin]:
        """As Picker.rank."""
        rows, mapped, lacking = list[tuple[str, str, float]](), dict[str, str](), dict[str, str]()
        fallback, same_tile, spent_us = [], [], []
        for problem, kernels in self._pools(problems, pool, records):
            began = time.perf_counter()
            choices = self._choices(problem, kernels)
            spent_us.append(1e6 * (time.perf_counter() - began))
            found = [_in_pool(choice, kernels, maps=self.asked.maps) for choice in choices]
            if not choices:
                continue
            first = choices[0]
            if isinstance(first, Configuration) and first.fallback:
                fallback.append(problem.id)
            if found[0] is None:
                lacking[problem.id] = _text(first)
                continue
            away = found[0][1]
            if away != EXACT:
                mapped[problem.id] = _text(first)
                same_tile += [problem.id] if away[0] == 0 else []
            names = dict.fromkeys(one[0].name for one in found if one is not None)
            rows += [(problem.id, name, -float(place)) for place, name in enumerate(names)]
        origin = Origin(
            PICKER if rows else NO_MODEL,
            self.name,
            "" if rows else f"{self.name} has no choice for these problems that the pool has",
            order_only=True,
            identity=self.asked.identity,
            us_per_pick=statistics.median(spent_us) if spent_us else None,
            rule=NEAREST if mapped else "",
            mapped=mapped,
            same_tile=tuple(same_tile),
            lacking=lacking,
            fallback=tuple(fallback),
        )
        return pd.DataFrame(rows, columns=list(COLUMNS)) if rows else None, origin

    def _pools(
        self, problems: Sequence[Problem], pool: Pool, records: pd.DataFrame | None
    ) -> Iterator[tuple[Problem, Sequence[Kernel]]]:
        """Yields the candidates of each problem that its dispatcher would not refuse."""
        pools = [(problem, pool(problem)) for problem in problems]
        if records is None:
            yield from pools
            return
        pairs = [(problem.id, kernel.name, 0.0) for problem, kernels in pools for kernel in kernels]
        table = pd.DataFrame(pairs, columns=list(COLUMNS))
        kept = without_refused(table, records, self.arch) if pairs else table
        able = set(zip(kept["problem"], kept["kernel"], strict=True))
        for problem, kernels in pools:
            yield problem, [kernel for kernel in kernels if (problem.id, kernel.name) in able]

    def _choices(self, problem: Problem, kernels: Sequence[Kernel]) -> Sequence[Kernel | Configuration]:
        try:
            return self.asked.pick(problem, kernels)
        except HarnessError:
            raise
        except Exception as error:  # whatever another maker's code does
            name = f"the picker {self.name} has failed on {problem.id}"
            raise ModelError(f"{name}: {type(error).__name__}: {error}") from None


def _in_pool(
    choice: Kernel | Configuration, kernels: Sequence[Kernel], *, maps: bool
) -> tuple[Kernel, Distance] | None:
    """Returns the kernel of the pool that a choice means, and how far it is from it; None where the pool
    lacks it."""
    if isinstance(choice, Configuration):
        found = nearest(choice, kernels)
        return found if found is not None and (maps or found[1] == EXACT) else None
    return (choice, EXACT) if any(kernel.name == choice.name for kernel in kernels) else None


def _text(choice: Kernel | Configuration) -> str:
    return str(choice) if isinstance(choice, Configuration) else choice.name


ENTRY_POINTS = "tile_oracle.pickers"
_FILE = re.compile(r"(?P<path>.+\.(?:csv|log|json|jsonl|txt))(?::(?P<layout>[rc]{3}))?")
"""A word that names a file of picks, and the layout of one that does not state it."""
_OWN = {
    **{name: f"tile_oracle.pickers.{name}:picker" for name in ("nvmatmul", "origami")},
    **{name: f"tile_oracle.pickers.expert_files:{name}" for name in ("vllm", "sglang")},
}


def picker_names() -> tuple[str, ...]:
    """Returns the names of all pickers that can be asked for."""
    return (*_OWN, *_declared())


def _asked(name: str, arch: str) -> Asked | None:
    """Returns what a name means for an architecture; None for an unknown name. Raises ModelError for a picker
    that cannot be used here."""
    if name in _OWN:
        module, _, function = _OWN[name].partition(":")
        own: Asked = getattr(import_module(module), function)(arch)
        return own
    point = _declared().get(name)
    if point is None:
        return None
    where = f"entry point {name} = {point.value} of {ENTRY_POINTS}"
    try:
        found: Asked = point.load()()
    except HarnessError:
        raise
    except Exception as error:  # whatever the module does when it is imported
        raise ModelError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from None
    if missing := [part for part in ("name", "identity", "maps", "pick") if not hasattr(found, part)]:
        raise ModelError(f"{where} is no picker: it lacks {', '.join(missing)} (tile_oracle.pickers.picker)")
    return found


def file_of(word: str) -> Path | None:
    """Returns the file of picks that a word names, whether it exists or not; None for a word that names
    none."""
    named = _FILE.fullmatch(word)
    return Path(named["path"]).expanduser().resolve() if named else None


def picker_of(word: str, arch: str, problems: Sequence[Problem]) -> Picker | None:
    """Returns the picker of a name or a file, for these problems; None for what is neither. Raises
    ModelError."""
    named, path = _FILE.fullmatch(word), file_of(word)
    if named is None or path is None:
        asked = _asked(word, arch)
    elif not path.is_file():
        raise ModelError(f"{word}: there is no such file of picks")
    else:
        from tile_oracle.pickers.table import picker_of_file  # every reader of foreign files

        asked = picker_of_file(path, arch, named["layout"] or "")
        if asked is None:
            return file_of_picks(path, problems)
    return None if asked is None else Chosen(asked.name, asked, arch, known=False)


def _declared() -> Mapping[str, EntryPoint]:
    found = {one.name: one for one in entry_points(group=ENTRY_POINTS)}
    if taken := sorted(found.keys() & _OWN.keys()):
        raise ModelError(
            f"entry point {taken[0]} of {ENTRY_POINTS} has the name of a picker of tile-oracle: rename it"
        )
    return found
