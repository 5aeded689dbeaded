"""What growing work costs: time of the driver, memory of the controller and time of a report, with simulated
devices that answer at once.

    python benchmarks/growth.py -o docs/growth.svg

Each point is a process of its own. Times are processor time, which depends less on other load than wall time.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_PANELS = (
    ("us_a_pair", "driver, µs of CPU a pair"),
    ("peak_mb", "controller, peak MB"),
    ("report_s", "report, s of CPU"),
)
_POINTS = "10000x1,100000x1,10000x8,100000x8,10000x64,100000x64,1000000x64"
_ROOT = Path(__file__).parents[1]
_COLOURS = ("#2166ac", "#d6604d", "#1a9850", "#762a83")


def measure(pairs: int, devices: int) -> dict[str, float]:
    """One point, in this process."""
    from benchmarks.fleet_devices import FastDevices, NothingToBuild
    from benchmarks.test_fleet_driver import tasks
    from tile_oracle.measure.driver import Driver
    from tile_oracle.measure.sweep_settings import SweepSettings
    from tile_oracle.process.arrow_memory import keep_arrow_small
    from tile_oracle.record.dataset import load_records
    from tile_oracle.record.run import RunLog, open_run
    from tile_oracle.report.data import RunInfo, analyse
    from tile_oracle.report.files import write_report

    keep_arrow_small()
    todo = tasks(pairs)
    with tempfile.TemporaryDirectory() as folder:
        run = open_run(Path(folder), {"target": "simulated"}, stem="s", name="grown", resume=False)
        log, engine = RunLog(run, "main"), FastDevices(devices)
        asked = (lambda kind: lambda problem: (), lambda one: one.as_row(), SweepSettings())
        driver = Driver(engine, NothingToBuild(), log, *asked)
        spent = 0.0
        began = time.process_time()
        driver.plan(todo)
        spent += time.process_time() - began
        while not driver.is_complete():
            events = engine.events(0.0)  # the devices' own time
            began = time.process_time()
            driver.step(events, time.monotonic())
            spent += time.process_time() - began
        began = time.process_time()
        log.close()
        spent += time.process_time() - began
        measured = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        began = time.process_time()
        records = load_records(run.folder, compact=True)
        data = analyse(records, [task.problem for task in todo], None, run=RunInfo("grown"))
        write_report(run.folder, data)
        report_s = time.process_time() - began
    count = sum(len(task.kernels) for task in todo)
    assert len(records) == count
    return {
        "pairs": count,
        "devices": devices,
        "us_a_pair": 1e6 * spent / count,
        "pairs_a_second": count / spent,
        "peak_mb": measured,
        "peak_with_report_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "report_s": report_s,
    }


def picture(points: Sequence[Mapping[str, float]]) -> str:
    """The points as an SVG: a panel for each quantity, a line for each number of devices; log-log."""
    width, height, left, top = 300, 220, 52, 34
    parts = []
    for place, (name, title) in enumerate(_PANELS):
        x0 = place * (width + 20) + left
        span = _decades(one["pairs"] for one in points), _decades(one[name] for one in points)

        def at(
            x: float, y: float, x0: int = x0, span: tuple[tuple[int, int], ...] = span
        ) -> tuple[float, float]:
            (x_low, x_high), (y_low, y_high) = span
            across = (math.log10(x) - x_low) / (x_high - x_low) * (width - left)
            up = (math.log10(y) - y_low) / (y_high - y_low) * (height - top - 30)
            return x0 + across, height - 30 - up

        parts.append(f'<text x="{x0}" y="16" font-weight="bold">{title}</text>')
        for axis, (low, high) in enumerate(span):
            for power in range(low, high + 1):
                corner = (10.0 ** span[0][0], 10.0 ** span[1][0])
                x, y = at(10.0**power, corner[1]) if axis == 0 else at(corner[0], 10.0**power)
                end = (
                    at(10.0**power, 10.0 ** span[1][1]) if axis == 0 else at(10.0 ** span[0][1], 10.0**power)
                )
                parts.append(
                    f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" stroke="#ddd"/>'
                )
                where = f'x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle"'
                where = where if axis == 0 else f'x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end"'
                parts.append(f"<text {where}>{10.0**power:,.{max(-power, 0)}f}</text>")
        for colour, devices in zip(_COLOURS, sorted({one["devices"] for one in points}), strict=False):
            own = sorted((one["pairs"], one[name]) for one in points if one["devices"] == devices)
            line = " ".join("{:.1f},{:.1f}".format(*at(*one)) for one in own)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts += [
                '<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>'.format(*at(*one), colour) for one in own
            ]
    for n, (colour, devices) in enumerate(
        zip(_COLOURS, sorted({one["devices"] for one in points}), strict=False)
    ):
        parts.append(
            f'<text x="{left + 130 * n}" y="{height + 18}" fill="{colour}">{devices:g} at once</text>'
        )
    parts.append(
        f'<text x="{left + 130 * len(_COLOURS)}" y="{height + 18}">devices; across: pairs of the run</text>'
    )
    whole = len(_PANELS) * (width + 20)
    style = 'font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {height + 30}" {style}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"])


def _decades(values: Iterable[float]) -> tuple[int, int]:
    logs = [math.log10(one) for one in values]
    low = math.floor(min(logs) + 1e-3)
    return low, max(math.ceil(max(logs) - 1e-3), low + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", default=_POINTS, help=f"PAIRSxDEVICES, with commas (default: {_POINTS})")
    parser.add_argument("-o", "--output", type=Path, help="the picture, an SVG")
    parser.add_argument("--point", nargs=2, type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.point:
        print(json.dumps(measure(*asked.point)))
        return
    points = []
    for point in asked.points.split(","):
        command = [sys.executable, "-m", "benchmarks.growth", "--point", *point.split("x")]
        said = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
        points.append(json.loads(said.stdout.splitlines()[-1]))
        print({name: round(value, 1) for name, value in points[-1].items()}, flush=True)
    if asked.output:
        asked.output.write_text(picture(points))


if __name__ == "__main__":
    main()
