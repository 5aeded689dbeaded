"""The one error hierarchy. Each message says what is wrong, where, and what would be right."""

from __future__ import annotations


class HarnessError(Exception):
    """Base of all errors that a user can cause and mend. The message is one line."""


class ProblemError(HarnessError, ValueError):
    """A problem's dimensions cannot be right."""


class OperationError(HarnessError):
    """An installed operation cannot be used."""


class ProblemSetError(HarnessError):
    """A problem set is unknown, or its file cannot be read."""


class KernelError(HarnessError, ValueError):
    """A kernel's fields or name cannot be right."""


class RuleError(HarnessError):
    """A rule set, an architecture table or a kernel filter cannot be used."""


class BuildError(HarnessError):
    """A toolchain is missing, or a build folder cannot be used (a kernel that does not compile is a
    status, not this error)."""


class TargetError(HarnessError):
    """A target is unknown, or this machine cannot run it."""


class DeviceMissingError(TargetError):
    """The target's device is not there, or it cannot be opened."""


class RecordError(HarnessError):
    """Recorded measurements are missing, malformed or of another schema."""


class ModelError(HarnessError):
    """A model folder cannot be read, or does not fit the features at hand."""


class OperandError(HarnessError, ValueError):
    """An array that a kernel is to run on does not fit the problem."""


class TunedError(HarnessError):
    """The tuned results cannot be written."""


class NoModelError(ModelError):
    """No model was trained for a problem, and nothing may be measured."""


class GateError(HarnessError):
    """A baseline or the criteria cannot be used."""
