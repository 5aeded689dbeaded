"""The kernels of a dispatcher of the user's own: a file of names, and which of them a model can rank.

The order of the file is the order of the dispatcher's array. Names that the model cannot rank keep their
places there and are never picked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.errors import KernelError, ModelError
from tile_oracle.features.schemas import op_of_model
from tile_oracle.files.user_file import read_bytes
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.model_folder import read_spec
from tile_oracle.model.predictor import check_kind
from tile_oracle.model.store import read_manifest

_NAMED = 3
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class SolutionNames:
    """A dispatcher's names and what a model makes of them. `never_picked`: name -> reason. `untrained`: those
    of `candidates` that no measurement of the model's training has; it ranks them by their features."""

    names: tuple[str, ...]
    candidates: tuple[Kernel, ...]
    never_picked: tuple[tuple[str, str], ...]
    untrained: tuple[str, ...]

    @classmethod
    def of_model(cls, folder: Path, names: Sequence[str]) -> SolutionNames:
        """Raises ModelError when the folder cannot be read or the model can rank none of the names."""
        spec = read_spec(folder)
        op = op_of_model(spec.op_type)
        candidates: dict[str, Kernel] = {}
        never: list[tuple[str, str]] = []
        for name in names:
            if name in candidates:
                never.append((name, "the list names it before"))
                continue
            try:
                kernel = parse_kernel_name(name)
                if kernel.name != name:
                    raise KernelError(f"its full name is {kernel.name}")
                if kernel.op != op:
                    raise ModelError(f"the model is for {op}")
                check_kind(folder, spec, kernel.kind)
            except KernelError as error:
                never.append((name, str(error)))
            except ModelError as error:
                never.append((name, str(error).removeprefix(f"{folder} ")))
            else:
                candidates[name] = kernel
        if not candidates:
            why = f": {never[0][0]}: {never[0][1]}" if never else ""
            raise ModelError(f"{folder} can rank none of the {len(names):,} kernels named{why}")
        trained = set(read_manifest(folder).get("kernels") or candidates)
        untrained = tuple(name for name in candidates if name not in trained)
        return cls(tuple(names), tuple(candidates.values()), tuple(never), untrained)

    def remarks(self) -> list[str]:
        """Returns a line for each thing that the author of the list should know."""
        lines = [f"never picked: {name} ({reason})" for name, reason in self.never_picked[:_NAMED]]
        if len(self.never_picked) > _NAMED:
            lines.append(f"never picked: {len(self.never_picked) - _NAMED:,} more, listed in manifest.json")
        if self.untrained:
            named = ", ".join(self.untrained[:_NAMED]) + ", ..." * (len(self.untrained) > _NAMED)
            lines.append(
                f"ranked although the model was not trained on them: {len(self.untrained):,} ({named})"
            )
        return lines


def read_names(file: Path | str) -> list[str]:
    """Read the names of a file, one per line; empty lines do not count. Raises ModelError."""
    try:
        lines = read_bytes(file, _MOST_BYTES).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"cannot read {file}: {reason}") from None
    return [name for line in lines if (name := line.strip())]
