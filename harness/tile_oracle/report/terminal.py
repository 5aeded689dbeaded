"""The terminal summary, for the end of a session and for `tile-oracle report`."""

from __future__ import annotations

from tile_oracle.report import wording
from tile_oracle.report.data import HELD, THROTTLED, ReportData
from tile_oracle.report.sources import source_figures
from tile_oracle.terminal.text_table import text_table

_NAMED_FAILURES = 3
_LABEL_WIDTH = 14


def summary_lines(data: ReportData, width: int = 100, *, with_baseline: bool = True) -> list[str]:
    """The summary of a run as lines of at most `width` characters (at least 60), without colour.

    Only a line with a long word, such as a path, may be wider. with_baseline: name the baseline's file.
    """
    width = max(width, 60)
    files = _files(data, with_baseline=with_baseline)
    blocks = [_head(data), _figures(data), _worst(data), _failures(data), _verdict(data), files]
    lines: list[str] = []
    for block in blocks:
        if block and lines:
            lines.append("")
        lines += [part for line in block for part in _wrap(line, width)]
    return lines


def _head(data: ReportData) -> list[str]:
    return [
        wording.title(data),
        f"  {wording.pairs_sentence(data)}",
        f"  {wording.one_line(data.ranked_by.sentence, 400)}",
        *_throttled(data),
    ]


def _throttled(data: ReportData) -> list[str]:
    """A warning about throttled clocks, which make measurements unrepresentative of the device."""
    throttled = data.run.environment.get(THROTTLED)
    return [f"  the GPU was throttled during {wording.one_line(throttled, 200)}"] if throttled else []


def _figures(data: ReportData) -> list[str]:
    figures = data.efficiency
    lines = []
    if figures.covered:
        for name, part in wording.efficiencies(data):
            lines.append(
                _pairs(
                    name,
                    ("mean", wording.percent(part.mean_percent)),
                    ("median", wording.percent(part.median_percent)),
                    ("P10", wording.percent(part.p10_percent)),
                    ("min", wording.percent(part.min_percent)),
                )
            )
        if data.time_weighted_percent is not None:
            weighted = wording.percent(data.time_weighted_percent)
            lines.append(_pairs("time-weighted", ("", weighted), (wording.TIME_WEIGHTED, "")))
        found = [("top-1", wording.percent(figures.top_1_percent))]
        if data.ranked_by.kind != HELD:  # a baseline holds picks and no ranking
            found += [
                ("top-5", wording.percent(figures.top_5_percent)),
                ("efficiency of measuring the top 3", wording.percent(figures.measure_top_percent[2])),
            ]
        lines.append(_pairs("oracle found", *found))
    if data.fixed_mean_percent is not None:
        compare = [("one kernel for all", wording.percent(data.fixed_mean_percent))]
        if data.repeatability_percent is not None:
            compare.append(
                ("the sweep's winners, measured again", wording.percent(data.repeatability_percent))
            )
        compare += [
            (wording.beside_name(one, data), wording.percent(one.mean_percent)) for one in data.beside
        ]
        lines.append(_pairs("to compare", *compare))
    over_median, over_worst = wording.speed_ups(data)
    if over_median is not None:
        lines.append(
            _pairs(
                "the choice",
                ("oracle over median kernel", wording.times(over_median)),
                ("over worst", wording.times(over_worst)),
            )
        )
    lines += [
        _pairs(
            "sources" if not place else "",
            (f"{one.source}: fastest on", f"{one.wins} of {wording.count(one.problems, 'problem')}"),
            ("its best, geometric mean", wording.percent(one.mean_percent)),
            ("worst", wording.percent(one.worst_percent)),
        )
        for place, one in enumerate(source_figures(data.by_source))
    ]
    lines.append(_pairs("coverage", ("", wording.coverage_sentence(data))))
    counts = ", ".join(f"{number:,} {status}" for status, number in wording.status_counts(data))
    lines.append(_pairs("pairs", ("", counts or "none measured")))
    return lines


def _worst(data: ReportData) -> list[str]:
    rows = wording.worst_rows(data)
    if not rows:
        seen = ", on problems that the model was trained on" if data.in_sample else ""
        return [f"every pick is as fast as the oracle{seen}"] if data.efficiency.covered else []
    lines = ["worst problems"]
    for row in rows:
        pick, oracle = (wording.short_kernel(row[f"{whose}_kernel"], row) for whose in ("pick", "oracle"))
        lines += [
            f"  {wording.percent(100 * row['efficiency']):>7}  {wording.one_line(row['problem'])}",
            f"           pick    {_speed(row['pick_tflops'])}{pick}",
            f"           oracle  {_speed(row['oracle_tflops'])}{oracle}",
            f"           {wording.why(row)}",
        ]
    return lines


def _failures(data: ReportData) -> list[str]:
    lines = []
    for heading, failures in (
        ("failures", data.verdict.new_failures),
        ("known failures", data.verdict.known_failures),
    ):
        groups = wording.by_status(failures)
        lines += [heading] if groups else []
        for status, members in groups.items():
            lines.append(f"  {status}: {wording.count(len(members), 'pair')}")
            for one in members[:_NAMED_FAILURES]:
                detail = f": {wording.one_line(one.detail)}" if one.detail else ""
                lines.append(f"    {wording.kernel_on(one)} on {wording.one_line(one.problem)}{detail}")
            if len(members) > _NAMED_FAILURES:
                lines.append(f"    and {len(members) - _NAMED_FAILURES:,} more")
    return lines


def _verdict(data: ReportData) -> list[str]:
    verdict = data.verdict
    lines = [f"verdict {wording.headline(data)}"]
    if verdict.criteria:
        table: list[tuple[str, ...]] = [("criterion", "value", "baseline", "limit", "change", "")]
        for one in verdict.criteria:
            *figures, outcome = (cell.replace(" points", "") for cell in wording.comparison(one))
            table.append((one.name, *figures, wording.interval(one), outcome))
        lines += [f"  {line}" for line in text_table(table, range(1, len(table[0])))]
        lines += [f"  {one.name}: {one.note}" for one in verdict.criteria if one.note]
    for loss in verdict.losses[:5]:
        change = f"{loss.baseline_percent:.1f} % -> {loss.efficiency_percent:.1f} %"
        lines.append(f"    {wording.one_line(loss.problem)}: {change}")
    if len(verdict.losses) > 5:
        lines.append(f"    and {len(verdict.losses) - 5:,} more problems")
    lines += [f"  {line}" for line in wording.open_lines(verdict)]
    return lines + [f"  {note}" for note in wording.verdict_notes(data)]


def _files(data: ReportData, *, with_baseline: bool) -> list[str]:
    lines = []
    if data.run.folder:
        lines.append(_pairs("report", ("", f"{wording.one_line(data.run.folder, 1000)}/report.html")))
    if data.run.baseline_file and with_baseline:
        path = wording.one_line(data.run.baseline_file, 1000)
        found = path if data.baseline else f"none yet; --update-baseline writes {path}"
        lines.append(_pairs("baseline", ("", found)))
    return lines


def _speed(tflops: float | None) -> str:
    shown = wording.tflops(tflops)
    return f"{shown:>7} {'TFLOPS' if shown != '-' else '':6}  "


def _pairs(name: str, *pairs: tuple[str, str]) -> str:
    return f"{name:<{_LABEL_WIDTH}}" + "   ".join(f"{label} {value}".strip() for label, value in pairs)


def _wrap(line: str, width: int) -> list[str]:
    """Wraps a line that is too long: indented by two more than its start, or under the first value.

    Breaks between values if possible, and never inside a word, so that paths and names can be copied.
    """
    line = line.rstrip()
    is_figures = line[:1].strip() != "" and line[_LABEL_WIDTH - 2 : _LABEL_WIDTH] == "  "
    indent = _LABEL_WIDTH if is_figures else min(len(line) - len(line.lstrip()) + 2, 24)
    lines = []
    while len(line) > width:
        cut = line.rfind("   ", indent + 1, width + 3) if is_figures else -1
        if cut < 0:
            cut = line.rfind(" ", indent + 1, width + 1)
        if cut < 0:
            cut = line.find(" ", max(width, indent + 1))
        if cut < 0:
            break
        lines.append(line[:cut].rstrip())
        line = " " * indent + line[cut:].lstrip()
    return [*lines, line]
