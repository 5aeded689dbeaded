"""Kernels that talk to the harness in the worker's name, or read messages meant for the worker."""

# ruff: noqa: E501 - C++ in one line.
from __future__ import annotations

from tests.misbehaviour.families import Family, one

_CRASH = one("crash")

_TO_ALL = """
static void tell(const char *text, size_t size) {
    for (int fd = 3; fd < 256; ++fd) send(fd, text, size, 0x4040); /* MSG_NOSIGNAL | MSG_DONTWAIT */
}
static void say(const char *text) { tell(text, strlen(text)); }
"""


def _says(name: str, does: str, text: str, **more: object) -> Family:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return Family(
        name,
        "messages",
        does,
        _CRASH,
        f'say("{quoted}"); convolve(a);',
        declarations=_TO_ALL,
        **more,  # type: ignore[arg-type]
    )


_FORGED = (
    '"status":"ok","detail":"","check":"full","check_points":9,"tainted":false,"kernel_seconds":0.001,'
    '"latency_ms":0.000001,"latency_min_ms":0.000001,"spread":0.0,"samples":9,"busy_ms":0.1'
)

MESSAGES = (
    _says("says_nonsense", "Writes what is no message.", "no message at all\n"),
    _says(
        "says_unknown_id",
        "Reports a result of a kernel that does not exist.",
        f'{{"done":987654,{_FORGED}}}\n',
    ),
    _says(
        "says_next_ids",
        "Reports results of the kernels that wait behind it.",
        "".join(f'{{"began":{i}}}\n{{"done":{i},{_FORGED}}}\n' for i in range(1, 400)),
        quick=True,
    ),
    _says(
        "says_wrong_types",
        "Sends objects where numbers are expected.",
        '{"done":{"a":1},"status":[],"kernel_seconds":"x"}\n',
    ),
    _says("says_list_as_began", "Sends a list for the kernel that has begun.", '{"began":[1,2]}\n'),
    _says(
        "says_nan",
        "Sends latencies that are no numbers.",
        '{"done":3,"status":"ok","kernel_seconds":NaN,"latency_ms":NaN,"latency_min_ms":NaN,"samples":1}\n',
    ),
    _says(
        "says_negative",
        "Sends latencies below zero.",
        '{"done":3,"status":"ok","kernel_seconds":-1,"latency_ms":-1,"latency_min_ms":-2,"samples":1}\n',
    ),
    _says("says_two_kinds", "Sends one message that is two.", '{"began":1,"done":1,"settled":""}\n'),
    _says("says_opened", "Says that the device was opened.", '{"opened":{"name":"x","driver":"y"}}\n'),
    _says("says_refused", "Says that the problem was refused.", '{"refused":"too large"}\n'),
    _says("says_resting", "Says that the worker has nothing to do.", '{"resting":0}\n'),
    _says(
        "says_settled",
        "Confirms a result with a token of its own.",
        '{"settled":"0123456789abcdef","dirty":[],"unfair":[],"processes":0}\n',
    ),
    _says(
        "says_half_a_line", "Writes the beginning of a line, which the worker's answer completes.", '{"done":'
    ),
    Family(
        "says_what_was_said",
        "messages",
        "Sends what looks like an earlier answer again and again.",
        _CRASH,
        'char text[512]; for (int i = 0; i < 500; ++i) { snprintf(text, sizeof text, "%s%d%s", "{\\"done\\":", i, '
        + '"'
        + f",{_FORGED}}}\n".replace('"', '\\"').replace("\n", "\\n")
        + '"); say(text); } convolve(a);',
        declarations=_TO_ALL,
    ),
    Family(
        "says_for_ever",
        "messages",
        "Floods the channel with messages that are well formed.",
        _CRASH,
        'for (;;) say("{\\"resting\\":0}\\n");',
        declarations=_TO_ALL,
    ),
    Family(
        "says_endless_line",
        "messages",
        "Writes a line without end.",
        one("crash", "timeout"),
        'for (;;) say("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");',
        declarations=_TO_ALL,
    ),
    Family(
        "child_says",
        "messages",
        "Has a child process write a perfect forgery.",
        _CRASH,
        'if (fork() == 0) { say("{\\"began\\":1}\\n"); _exit(0); } usleep(20000); convolve(a);',
        declarations=_TO_ALL,
        quick=True,
    ),
    Family(
        "returns_twice",
        "messages",
        "Forks, and returns in both processes.",
        _CRASH,
        "fork(); convolve(a);",
        quick=True,
    ),
    Family(
        "grandchild_returns",
        "messages",
        "Forks twice, so that the copy that returns is nobody's child.",
        _CRASH,
        "const int child = fork(); if (child == 0) { if (fork() != 0) _exit(0); usleep(50000); }"
        " else { waitpid(child, nullptr, 0); } convolve(a);",
    ),
    Family(
        "takes_commands",
        "messages",
        "Reads the commands that were meant for the worker.",
        one("ok", "crash"),
        "char taken[4096]; for (int i = 0; i < 40; ++i) { for (int fd = 3; fd < 64; ++fd)"
        " while (recv(fd, taken, sizeof taken, 0x40) > 0) {} usleep(2000); } convolve(a);",
    ),
    Family(
        "shuts_channel",
        "messages",
        "Puts an end to the conversation from the worker's side.",
        _CRASH,
        "for (int fd = 3; fd < 256; ++fd) shutdown(fd, 2); convolve(a);",
        declarations='extern "C" int shutdown(int fd, int how);',
    ),
)
