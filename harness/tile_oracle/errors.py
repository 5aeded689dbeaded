"""The error hierarchy. Each message states what is wrong, where, and how to fix it."""

from __future__ import annotations

from tile_oracle.terminal.plain_text import as_text


class HarnessError(Exception):
    """Base class of all errors that a user can cause and fix. The message is one line (`as_text`)."""

    def __str__(self) -> str:
        return as_text(super().__str__())


class ProblemError(HarnessError, ValueError):
    """A problem's dimensions are invalid."""


class OperationError(HarnessError):
    """An installed operation cannot be used."""


class ProblemSetError(HarnessError):
    """A problem set is unknown, or its file cannot be read."""


class KernelError(HarnessError, ValueError):
    """A kernel's fields or name are invalid."""


class RuleError(HarnessError):
    """A rule set, an architecture table or a kernel filter cannot be used."""


class LacksFieldError(RuleError):
    """A kernel filter asks for a field that this kernel does not have."""


class BuildError(HarnessError):
    """A toolchain is missing, or a build folder cannot be used. A kernel that does not compile has the status
    build_error and raises nothing."""


class NoKernelsError(BuildError):
    """A file has no kernels for an architecture."""


class TargetError(HarnessError):
    """A target is unknown, or this machine cannot run it."""


class NotBegunError(HarnessError):
    """The time was over before a device was given the pair."""


class DeviceMissingError(TargetError):
    """The target's device is missing or cannot be opened."""


class RecordError(HarnessError):
    """Recorded measurements are missing, malformed or of another schema."""


class ModelError(HarnessError):
    """A model folder cannot be read, or does not match the features."""


class NoModelError(ModelError):
    """No model covers a problem, and measuring is not allowed."""


class GateError(HarnessError):
    """A baseline or the criteria cannot be used."""


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message, for messages of one line."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
