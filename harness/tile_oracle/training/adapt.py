"""Corrects a model by a few measurements made elsewhere: with another compiler, device or driver.

The trees stay. Every kernel gets a shift of its score, estimated from the residuals of the new measurements:

    ln(time) = level of the problem + scale x score + shift of the kernel + noise

A shift is the sum of three effects: of the pipeline and its flags, of the tile, and of the kernel itself, so
that kernels that were not measured are corrected, too. The effects are shrunk towards 0 by empirical Bayes:
their variances and the noise's are estimated from the measurements (EM). Where the new side measures as the
old one, the variances and with them the shifts become small. The noise is Student's t (Lange, Little and
Taylor, Robust statistical modeling using the t distribution, 1989): a kernel that a compiler makes twice as
slow for one problem says little about its other problems.

A fourth effect is that of the binaries. A compiler that does not unroll a main loop leaves fewer matrix
instructions in it and makes the kernel much slower, which the kernel's own effect would take for an exception
until it is measured often. So a shift has a part proportional to the change of ln(matrix instructions of the
main loop) between the binary that the model remembers and the one at hand.

Scores of models that only order kernels have no unit; `scale` makes ln(time) of them (`stated_scale`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from threadpoolctl import threadpool_limits

from tile_oracle.errors import ModelError
from tile_oracle.features.code_table import CodeTable
from tile_oracle.features.feature_table import Array
from tile_oracle.features.groups import group_codes
from tile_oracle.files.table_file import read_parquet
from tile_oracle.files.user_file import open_regular, read_bytes
from tile_oracle.files.vouched_files import FILES, MANIFEST_FILE, check_bytes
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.model.made_by import MADE_BY_KEY, MadeBy
from tile_oracle.model.physics import nearness
from tile_oracle.model.predictor import Predictor
from tile_oracle.model.store import (
    CODE_FILE,
    NETWORK_FILE,
    OUT_OF_FOLD_FILE,
    SPEC_FILE,
    TRAINING_FILE,
    json_bytes,
    read_manifest,
    write_folder,
)
from tile_oracle.problem import problem_from_id
from tile_oracle.record.dataset import load_records
from tile_oracle.training.trained_on import PROBLEMS_KEY, problem_digests, trained_on
from tile_oracle.training.training_rows import training_rows

# ---- The unit of a model's scores: ln(time) per unit, within a problem ---------------------------
# A few measurements elsewhere do not tell it: the kernels' shifts there hide it. The model's own
# cross-validation does, over all its training problems, each predicted while held out.

Codes = npt.NDArray[np.int64]

ADAPTED_KEY = "adapted"
"""In train_manifest.json of an adapted model: how it was adapted. Its `scale` is that of the scores."""

_LEAST_SCALE, _MOST_SCALE = 1e-4, 1e2
_PREDICTED = "predicted_tflops"


def stated_scale(folder: Path) -> float | None:
    """Returns the scale by which a model was adapted before, or that of its cross-validation, if the folder
    has it and the training records. None if it is unknown. Raises ModelError or RecordError for an unreadable
    file.
    """
    before = read_manifest(folder).get(ADAPTED_KEY)
    if isinstance(before, dict) and isinstance(before.get("scale"), float):
        return float(before["scale"])
    if not all((folder / name).is_file() for name in (OUT_OF_FOLD_FILE, TRAINING_FILE)):
        return None
    rows = training_rows(load_records(folder / TRAINING_FILE)).table[["problem", "kernel", "latency_ms"]]
    table = _predictions(folder / OUT_OF_FOLD_FILE).merge(rows, on=["problem", "kernel"])
    table = table[table[_PREDICTED] > 0]
    if table.empty:
        return None
    # ln(TFLOPS) is -score and a constant of the problem.
    problems = pd.factorize(table["problem"])[0]
    log_time = np.log(table["latency_ms"].to_numpy(dtype=np.float64))
    slope = slope_within(problems, -np.log(table[_PREDICTED].to_numpy(dtype=np.float64)), log_time)
    return slope if _LEAST_SCALE < slope < _MOST_SCALE else None


def measured_scale(problems: Codes, score: Array, log_time: Array) -> float:
    """Returns the scale in some measurements. Raises ModelError if the scores do not order them."""
    slope = slope_within(problems, score, log_time)
    if not _LEAST_SCALE < slope < _MOST_SCALE:
        raise ModelError(
            "the model's order of these kernels has nothing to do with their times here: train a model of "
            "its own on these records"
        )
    return slope


def slope_within(problems: Codes, score: Array, log_time: Array) -> float:
    """Returns the slope of ln(time) over the score within problems. Kernels near a problem's best have the
    largest weights."""
    root = np.sqrt(nearness(log_time, problems))
    x, y = within(problems, score, root), within(problems, log_time, root)
    return float(x @ y / max(float(x @ x), 1e-300))


def within(problems: Codes, values: Array, root: Array) -> Array:
    """Weighted values without the weighted mean of their problem. root: square roots of the weights."""
    weight = root**2
    total = np.bincount(problems, weight)
    columns = values.reshape(len(values), -1)
    centred = np.empty(columns.shape)
    for number in range(columns.shape[1]):
        mean = np.bincount(problems, weight * columns[:, number]) / np.maximum(total, 1e-300)
        centred[:, number] = (columns[:, number] - mean[problems]) * root
    return centred.reshape(values.shape)


def _predictions(path: Path) -> pd.DataFrame:
    try:
        columns = ["problem", "kernel", _PREDICTED]
        with open_regular(path) as file:
            table = read_parquet(file, columns).select(columns).to_pandas()
    except (OSError, pa.ArrowException, KeyError) as error:
        reason = (str(error).splitlines() or ["unreadable"])[0]
        raise ModelError(f"{path} cannot be read: {reason}") from None
    return table.astype({"problem": str, "kernel": str})


LEAST_MEASUREMENTS = 20
"""Fewer pairs say nothing about variances."""

_ROUNDS, _ROUNDS_OF_T = 20, 10
"""First with normal noise: before the effects are known, what they explain would count as exceptions."""

_FREEDOM_OF_T = 4.0
_MEDIAN_OF_SQUARES = 0.455
"""Of a standard normal variable."""
_MOST_BYTES = 256 << 20
_START_VARIANCE = 0.01
_LEAST_VARIANCE = 1e-8
_LOOP = "loop_matrix_instructions"
_LOOP_VARIANCE = 0.3**2
"""Of the binaries' effect, in ln(time) by ln(instructions). It is one number, so its variance cannot be
estimated; a loop of a quarter of the instructions may take half as long again."""

SHARES = (0.25, 0.5, 0.75, 1.0)
"""Shares of the shifts that are tried."""

_FOLDS = 10
_MOST_JUDGED = 200
_LEAST_JUDGED = 8
"""Fewer problems say nothing about a gain."""

_TILE = ("tile_m", "tile_n", "tile_k")
_NOT_OF_THE_CODE = frozenset({*_TILE, "direction", "dtype", "ndim", "op", "layout"})


@dataclass(frozen=True)
class Gain:
    """What a correction gains on problems that it did not see. `share`: of the shifts that is kept, 0 to 1.
    `points`: of the picks' mean efficiency in percent, from `low` to `high` (90 %); None if too few problems
    were judged. `judged`: problems with a measurement of the model's own pick."""

    share: float
    points: float | None
    low: float | None
    high: float | None
    judged: int


@dataclass(frozen=True)
class Shifts:
    """`shift`: kernel -> change of its score. `scale`: ln(time) per unit of the score. `deviation`: standard
    deviations of the effects (pipeline, tile, kernel) and of the noise, in ln(time). `loop`: change of
    ln(time) by that of ln(matrix instructions of the main loop)."""

    shift: Mapping[str, float]
    scale: float
    deviation: Mapping[str, float]
    measurements: int
    problems: int
    loop: float = 0.0
    gain: Gain | None = None

    @property
    def share(self) -> float:
        """The share of the correction that is kept; 0: the model stays as it is."""
        return 1.0 if self.gain is None else self.gain.share


def estimate_shifts(
    problems: Codes,
    kernels: Iterable[str],
    score: Array,
    log_time: Array,
    known: Iterable[str] = (),
    *,
    scale: float | None = None,
    loop: Mapping[str, float] | None = None,
) -> Shifts:
    """Returns the shifts of these kernels and of `known` ones.

    problems: the problem number of each measurement, (rows,). score: the model's, (rows,). log_time:
    ln(latency in ms), (rows,). scale: None to estimate it. loop: as of `loop_changes`. Raises ModelError for
    too few measurements.
    """
    names = [str(name) for name in kernels]
    pairs_of = np.bincount(problems)
    if len(names) < LEAST_MEASUREMENTS or (pairs_of > 1).sum() < 2:
        raise ModelError(
            f"{len(names)} ok measurements of {int((pairs_of > 0).sum())} problems cannot correct a model: "
            f"it takes {LEAST_MEASUREMENTS}, with several kernels of a problem"
        )
    root = np.sqrt(nearness(log_time, problems))
    if scale is None:
        scale = measured_scale(problems, score, log_time)
    every = sorted({*names, *map(str, known), *(loop or {})})
    effects = effects_of(every)
    place = {name: row for row, name in enumerate(every)}
    at = np.array([place[name] for name in names])
    changed = np.array([[(loop or {}).get(name, 0.0)] for name in every])
    design = np.concatenate([*map(_one_hot, effects.values()), changed], axis=1)
    part = np.repeat(np.arange(len(effects) + 1), [*(codes.max() + 1 for codes in effects.values()), 1])
    columns = design[at]
    # The effect of a level that was not measured is 0, and says nothing about the variances.
    measured = columns.any(axis=0)
    freedom = len(names) - int((pairs_of > 0).sum())
    found = np.zeros(len(part))
    residual = log_time - scale * score
    # One thread: such matrices gain nothing by more, and the bits do not depend on their number.
    with threadpool_limits(limits=1, user_api="blas"):
        found[measured], variances, noise = _empirical_bayes(
            problems, columns[:, measured], residual, root, part[measured], freedom, len(effects)
        )
    deviation = {name: float(np.sqrt(one)) for name, one in zip(effects, variances, strict=True)}
    return Shifts(
        {name: float(value / scale) for name, value in zip(every, design @ found, strict=True)},
        scale,
        {**deviation, "noise": float(np.sqrt(noise))},
        len(names),
        int((pairs_of > 0).sum()),
        float(found[-1]),
    )


def safe_shifts(
    problems: Codes,
    kernels: Iterable[str],
    score: Array,
    log_time: Array,
    picks: Mapping[int, str],
    known: Iterable[str] = (),
    *,
    scale: float | None = None,
    loop: Mapping[str, float] | None = None,
) -> Shifts:
    """As `estimate_shifts`, with the share of the shifts that helps in cross-validation over the problems.

    picks: problem number -> the model's pick among all its kernels. A problem is judged if its pick was
    measured: how the model orders kernels drawn at random says little about its picks. The share with the
    largest gain is kept if even the lower end of the gain's interval is positive, else 0.
    """
    names = np.array([str(name) for name in kernels])
    judged = np.unique(problems[np.array([picks.get(int(one)) for one in problems]) == names])
    changes = np.zeros((len(SHARES), len(judged)))
    fold_of = np.random.default_rng(0).permutation(problems.max() + 1) % _FOLDS
    for fold in range(_FOLDS):
        kept = fold_of[problems] != fold
        held = [place for place, one in enumerate(judged) if fold_of[one] == fold]
        if not held:
            continue
        try:
            found = estimate_shifts(
                np.unique(problems[kept], return_inverse=True)[1],
                names[kept],
                score[kept],
                log_time[kept],
                names,
                scale=scale,
                loop=loop,
            )
        except ModelError:  # too few measurements for a part of them to be judged
            judged = judged[:0]
            break
        for place in held:
            rows = np.flatnonzero(problems == judged[place])
            shift = np.array([found.shift[name] for name in names[rows]])
            efficiency = 100 * np.exp(log_time[rows].min() - log_time[rows])
            before = efficiency[np.argmin(score[rows])]
            for number, share in enumerate(SHARES):
                changes[number, place] = efficiency[np.argmin(score[rows] + share * shift)] - before
    whole = estimate_shifts(problems, names, score, log_time, known, scale=scale, loop=loop)
    gain = _gain(changes, len(judged))
    kept_shift = {name: gain.share * value for name, value in whole.shift.items()}
    return replace(whole, shift=kept_shift, gain=gain)


def _gain(changes: Array, judged: int) -> Gain:
    """Returns the gain of the best share. changes: of each problem's efficiency by each share, (shares,
    problems)."""
    if judged < _LEAST_JUDGED:
        return Gain(0.0, None, None, None, judged)
    from scipy import stats  # not at the top: it is slow to import

    means = changes.mean(axis=1)
    best = int(np.argmax(means))
    half = float(stats.t.ppf(0.95, judged - 1) * changes[best].std(ddof=1) / np.sqrt(judged))
    mean = float(means[best])
    return Gain(SHARES[best] if mean - half > 0 else 0.0, mean, mean - half, mean + half, judged)


def loop_changes(before: CodeTable, now: CodeTable) -> dict[str, float]:
    """Kernel -> change of ln(1 + matrix instructions of the main loop), for kernels whose binaries' metrics
    both tables know."""
    return {
        name: float(np.log1p(facts[_LOOP]) - np.log1p(before.facts[name][_LOOP]))
        for name, facts in now.facts.items()
        if _LOOP in facts and _LOOP in before.facts.get(name, {})
    }


def adapted(
    folder: Path, records: pd.DataFrame, threads: int = 1, binaries: CodeTable | None = None
) -> tuple[Predictor, Shifts]:
    """Returns the model of a folder, corrected by records as far as that helps (`safe_shifts`), or unchanged.

    Metrics of binaries in the records, and of `binaries` that were not measured, replace the model's. Raises
    ModelError for records of another architecture, direction or type, and for too few measurements.
    """
    loaded = Predictor.load(folder, threads)
    code = CodeTable.of(records).over(binaries or CodeTable())
    predictor = loaded.knowing(code)
    spec = predictor.spec
    for name, wanted in (("arch", spec.arch), ("dtype", spec.dtype), ("direction", spec.direction)):
        if wanted is not None and name in records:
            others = sorted(set(records[name].dropna().astype(str)) - {wanted})
            if others:
                raise ModelError(f"{folder} is of {name} {wanted}, the records have {others[0]}")
    rows = training_rows(records).table
    groups = group_codes(rows)
    before = predictor.ranker
    score = before.log_time({str(name): rows[name].to_numpy() for name in rows}, groups, threads)
    shifts = safe_shifts(
        groups,
        rows["kernel"],
        score,
        np.log(rows["latency_ms"].to_numpy(dtype=np.float64)),
        _picks(predictor, rows, groups),
        predictor.measured_kernels,
        scale=stated_scale(folder) if before.orders_only else 1.0,
        loop=loop_changes(remembered(loaded), code),
    )
    if not shifts.share:
        return loaded, shifts
    old = before.aliases
    names = sorted({*old.shift, *shifts.shift})
    total = {name: old.shift.get(name, 0.0) + shifts.shift.get(name, 0.0) for name in names}
    aliases = replace(old, shift=total)
    changed = replace(predictor, spec=replace(spec, aliases=aliases))
    return replace(changed, ranker=replace(before, aliases=aliases)), shifts


def _picks(predictor: Predictor, rows: pd.DataFrame, groups: Codes) -> dict[int, str]:
    """Problem number -> the model's pick among the kernels that it or the records know, of at most
    `_MOST_JUDGED` problems."""
    numbers = dict(zip(rows["problem"].astype(str), groups.tolist(), strict=True))
    chosen = np.random.default_rng(0).permutation(sorted(numbers))[:_MOST_JUDGED]
    known = sorted({*rows["kernel"].astype(str), *predictor.measured_kernels})
    kernels = [parse_kernel_name(name) for name in known]
    found = {}
    for problem in map(problem_from_id, chosen.tolist()):
        pool = [kernel for kernel in kernels if kernel.kind == problem.kind]
        found[numbers[problem.id]] = predictor.select(problem, pool).name
    return found


def save_adapted(predictor: Predictor, shifts: Shifts, records: pd.DataFrame, out: Path | str) -> None:
    """Writes the folder of an adapted model: the old one's members, the shifts, and the metrics of binaries.

    The manifest keeps the old one's lists, adds the problems and the makers of the new measurements, and says
    how the model was adapted. Cross-validation and study of the old model are not copied: they do not judge
    this one. Raises ModelError.
    """
    old = predictor.folder
    manifest = read_manifest(old)
    made_by, now = MadeBy.of_model(old), MadeBy.of_records(records)
    files = {
        path.name: read_bytes(path, _MOST_BYTES)
        for path in sorted(old.iterdir())
        if path.name.startswith(("model_", "physical_", "feature_importances_")) or path.name == NETWORK_FILE
    }
    for path in files:
        check_bytes(old / path, files[path], ModelError)
    files[SPEC_FILE] = json_bytes(predictor.spec.as_json())
    if predictor.reads_code:
        files[CODE_FILE] = json_bytes(remembered(predictor).as_json())
    files[MANIFEST_FILE] = json_bytes(
        {
            **{name: value for name, value in manifest.items() if name != FILES},
            PROBLEMS_KEY: {**trained_on(old).problems, **problem_digests(training_rows(records).table)},
            MADE_BY_KEY: (made_by.and_of(now) if shifts.share else made_by).as_json(),
            ADAPTED_KEY: {
                "from": old.resolve().name,
                "by": now.as_json(),
                "measurements": shifts.measurements,
                "problems": shifts.problems,
                "scale": shifts.scale,
                "loop": shifts.loop,
                "deviation_log_time": dict(shifts.deviation),
                "share": shifts.share,
            },
        }
    )
    write_folder(Path(out), files)


def remembered(predictor: Predictor) -> CodeTable:
    """Returns the metrics of binaries that a model's trees read; empty if they read none."""
    codes = [member.code for member in predictor.ranker.trees if member.schema.optional]
    return codes[0] if codes else CodeTable()


def effects_of(names: list[str]) -> dict[str, Codes]:
    """Effect -> its level for every kernel, (kernels,)."""
    kernels = [parse_kernel_name(name) for name in names]
    return {
        "pipeline": pd.factorize(pd.Series(map(_pipeline, kernels), dtype=object))[0],
        "tile": pd.factorize(pd.Series(map(_tile, kernels), dtype=object))[0],
        "kernel": np.arange(len(names)),
    }


def _pipeline(kernel: Kernel) -> tuple[tuple[str, Any], ...]:
    """Returns the flags and the pipeline: the fields that are no sizes."""
    row = kernel.as_row()
    return tuple(
        (name, row[name])
        for name in sorted(row)
        if name not in _NOT_OF_THE_CODE and isinstance(row[name], str | bool)
    )


def _tile(kernel: Kernel) -> tuple[Any, ...]:
    return tuple(kernel.as_row().get(name) for name in _TILE)


def _one_hot(codes: Codes) -> Array:
    return np.eye(int(codes.max()) + 1)[codes]


def _empirical_bayes(
    problems: Codes, columns: Array, residual: Array, root: Array, part: Codes, freedom: int, parts: int
) -> tuple[Array, Array, float]:
    """Posterior means of the effects, the variance of each part's effects, and of the noise.

    columns: (rows, effects), the effect's value in a row. root: square roots of the rows' weights. part: the
    number of each effect's part; number `parts` is the binaries', whose variance is known.
    """
    size = np.maximum(np.bincount(part, minlength=parts)[:parts], 1)
    variance = np.append(np.full(parts, _START_VARIANCE), _LOOP_VARIANCE)
    mean = np.zeros(len(part))
    noise: float | None = None
    trust = np.ones(len(residual))
    for number in range(_ROUNDS + _ROUNDS_OF_T):
        if number == 0 or number >= _ROUNDS:
            weight = root * np.sqrt(trust)
            design, wanted = within(problems, columns, weight), within(problems, residual, weight)
            product = design.T @ design
        if noise is None:
            noise = max(float(wanted @ wanted) / max(freedom, 1), _LEAST_VARIANCE)
        spread = np.linalg.inv(product / noise + np.diag(1 / variance[part]))
        mean = spread @ (design.T @ wanted) / noise
        error = wanted - design @ mean
        noise = max(float(error @ error + np.sum(product * spread)) / max(freedom, 1), _LEAST_VARIANCE)
        second = mean**2 + np.diag(spread)
        variance[:parts] = np.bincount(part, second, minlength=parts)[:parts] / size
        variance = np.maximum(variance, _LEAST_VARIANCE)
        if number >= _ROUNDS - 1:
            trust = _trust(within(problems, residual - columns @ mean, weight) / weight)
    return mean, variance[:parts], float(noise or 0.0)


def _trust(error: Array) -> Array:
    """Weights of measurements with these errors under Student's t, whose scale is that of their median."""
    scale = max(float(np.median(error**2)) / _MEDIAN_OF_SQUARES, _LEAST_VARIANCE)
    return (_FREEDOM_OF_T + 1) / (_FREEDOM_OF_T + error**2 / scale)
