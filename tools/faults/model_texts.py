"""Mutates the text of shipped LightGBM models, then loads and evaluates each one in its own process.

The outcome of a mutation is

- `refused`: a one-line HarnessError names the file,
- `scored`: the model loads and gives finite scores,
- `died` (the process ended by a signal), `hung` (no answer in time) or `broken` (another exception):
  failures.
"""

from __future__ import annotations

import multiprocessing
import random
import re
import sys
import tempfile
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

from tile_oracle.errors import ModelError
from tile_oracle.model.store import model_folders, shipped_models
from tools.faults.campaign import Campaign, Outcome, main

_OUTCOMES = ("refused", "scored", "died", "hung", "broken")
_LONGEST_S = 120.0
_TREES = 40
"""Trees kept of each model: how LightGBM parses a text does not depend on the trees after them."""

_NUMBERS = (
    *("-1", "0", "1", "2", "255", "65536", "2147483647", "2147483648", "-2147483648", "4294967296"),
    *("1e400", "-1e400", "nan", "inf", "-inf", "1e-400", "9" * 30, "1" + "0" * 400, "7" * 4301),
    *("", " ", "x", "0x10", "1_0", "+1", "--1", "1.5", "1e", ".", "\u0661"),
)
_KEY = re.compile(r"^([a-z_]+)=", re.MULTILINE)


def mutations(text: str, choose: random.Random) -> tuple[str, str]:
    """Returns a mutated text and the kind of mutation."""
    kinds = (_number, _number, _number, _key, _line, _twice, _swap, _cut, _bytes, _bytes)
    kind = choose.choice(kinds)
    return kind(text, choose), kind.__name__.strip("_")


def _number(text: str, choose: random.Random) -> str:
    """Replaces one number of one key's list."""
    key = choose.choice(sorted(set(_KEY.findall(text))))
    line = choose.choice(list(re.finditer(rf"^{key}=(.*)$", text, re.MULTILINE)))
    words = line.group(1).split(" ")
    words[choose.randrange(len(words))] = choose.choice(_NUMBERS)
    return text[: line.start(1)] + " ".join(words) + text[line.end(1) :]


def _key(text: str, choose: random.Random) -> str:
    """Gives a line the key of another one."""
    line = choose.choice(list(_KEY.finditer(text)))
    other: str = choose.choice(sorted(set(_KEY.findall(text))))
    return text[: line.start(1)] + other + text[line.end(1) :]


def _line(text: str, choose: random.Random) -> str:
    """Removes a line."""
    lines = text.split("\n")
    del lines[choose.randrange(len(lines))]
    return "\n".join(lines)


def _twice(text: str, choose: random.Random) -> str:
    """Duplicates a line."""
    lines = text.split("\n")
    at = choose.randrange(len(lines))
    return "\n".join([*lines[:at], lines[at], *lines[at:]])


def _swap(text: str, choose: random.Random) -> str:
    """Swaps two lines."""
    lines = text.split("\n")
    a, b = choose.randrange(len(lines)), choose.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return "\n".join(lines)


def _cut(text: str, choose: random.Random) -> str:
    """Removes a range of characters."""
    begin = choose.randrange(len(text))
    return text[:begin] + text[begin + choose.choice((1, 10, 1000, len(text))) :]


def _bytes(text: str, choose: random.Random) -> str:
    """Replaces a few characters."""
    letters = [*text]
    for _ in range(choose.choice((1, 1, 3, 20))):
        letters[choose.randrange(len(letters))] = choose.choice("0123456789 -.=\n\0e[]:\u00e9\ud800")
    return "".join(letters)


def originals() -> list[str]:
    """The first trees of every shipped model, and a model with categorical splits, which no shipped one
    has."""
    import lightgbm as lgb
    import numpy as np

    from tile_oracle.model.predictor import Predictor

    draw = np.random.default_rng(0)
    x = np.column_stack([draw.normal(size=300), draw.integers(0, 50, 300)])
    settings = {"verbosity": -1, "num_leaves": 9, "min_data_per_group": 1, "cat_smooth": 1, "num_threads": 1}
    data = lgb.Dataset(x, label=x[:, 0] + x[:, 1] % 3, categorical_feature=[1], params=settings)
    found = [str(lgb.train(settings, data, 5).model_to_string())]
    for folder in model_folders(shipped_models()):
        for member in Predictor.load(folder).ranker.trees:
            boosters = reversed(member.boosters)
            found += [str(one.model_to_string(num_iteration=_TREES)) for one in boosters]
    return found


def run(count: int, seed: int) -> Outcome:
    """Mutates `count` texts and evaluates them."""
    texts, choose = originals(), random.Random(seed)
    counts: Counter[str] = Counter()
    failures: list[str] = []
    for number in range(count):
        text, what = mutations(texts[number % len(texts)], choose)
        outcome, detail = ask_apart(text)
        counts[outcome] += 1
        if outcome in ("died", "hung", "broken"):
            failures.append(f"mutation {number} ({what}): {outcome}: {detail}")
    return Outcome(count, {name: counts[name] for name in _OUTCOMES}, failures)


def ask_apart(text: str) -> tuple[str, str]:
    """Loads and evaluates a text in another process; returns the outcome and its reason."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_ask, args=(theirs, text))
    process.start()
    theirs.close()
    try:
        if not ours.poll(_LONGEST_S):
            return "hung", f"no answer in {_LONGEST_S:.0f} s"
        outcome: tuple[str, str] = ours.recv()
        return outcome
    except EOFError:
        process.join()
        return "died", f"exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()
        ours.close()


def _ask(pipe: Connection, text: str) -> None:
    pipe.send(_outcome(text))


def _outcome(text: str) -> tuple[str, str]:
    import numpy as np

    from tile_oracle.model.model_folder import read_booster, read_booster_text
    from tile_oracle.model.model_text import Forest

    with tempfile.TemporaryDirectory(prefix="model-texts-") as folder:
        path = Path(folder) / "model_tflops.lgbm"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            booster = read_booster(Path(folder), "tflops")
            scores = booster.predict(np.zeros((3, booster.num_feature())), raw_score=True, num_threads=1)
            Forest.from_text(read_booster_text(Path(folder), "tflops")[1], str(path)).to_bytes()
        except ModelError as error:
            line = str(error)
            named = path.name in line and "\n" not in line and len(line) < 600
            return ("refused", line) if named else ("broken", f"not one line on the file: {line[:200]!r}")
        except Exception as error:  # a user would see a traceback
            return "broken", f"{type(error).__name__}: {str(error)[:200]}"
    return ("scored", "") if np.isfinite(scores).all() else ("broken", "the scores are not finite")


CAMPAIGN = Campaign(
    "model_texts",
    "no model text crashes or hangs the process that reads it",
    1418,
    run,
)

if __name__ == "__main__":
    sys.exit(main(CAMPAIGN))
