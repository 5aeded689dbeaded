"""The commands that a session names for the next run of itself."""

from __future__ import annotations

from tile_oracle.session.command_line import CommandLine

NIGHT = ["--problem-set", "my shapes.csv", "--target=cpu", "--report-dir=nights/7", "--budget", "2s"]


def test_a_command_for_the_next_session_keeps_the_options_and_repeats_none() -> None:
    """Without the night's folders, --resume would look for the run in reports/."""
    command = CommandLine(NIGHT, replayed=False)
    own = "pytest --problem-set 'my shapes.csv' --target=cpu --report-dir=nights/7 --budget 2s"
    assert command.resumed("--update-baseline") == f"{own} --resume --update-baseline"
    longer = ("--settle-budget", "10m", "--budget", "1h")
    assert command.settling("run-7", longer) == f"{own} --resume --run-name run-7 {' '.join(longer)}"
    command = CommandLine([*NIGHT, "--run-name=run-7", "--resume"], replayed=False)
    assert command.settling("run-7", ()).count("run-7") == 1
    assert command.resumed().count("--resume") == 1
    assert "--resume" not in CommandLine(["--oracle=a"], replayed=True).resumed("--update-baseline")
    # A session does not write into a run's folder that exists, and a replay cannot be resumed.
    for name in (["--run-name", "mine"], ["--run-name=mine"]):
        command = CommandLine(["--oracle=a", *name, "-q"], replayed=True)
        assert command.resumed("--update-baseline") == "pytest --oracle=a -q --update-baseline"
    command = CommandLine(["--update-baseline", "--resume"], replayed=False)
    assert command.resumed("--update-baseline") == "pytest --update-baseline --resume"
