"""Turns a declaration into specifications of kernels: everything as data. Only for child processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tile_oracle.arch.table import fp8_refusal
from tile_oracle.compiling.triton.user_file import FileFailure, jit_function, one_line
from tile_oracle.errors import HarnessError, KernelError
from tile_oracle.kernel.named import NamedKernel, Value
from tile_oracle.operation import Kind, operation_named
from tile_oracle.triton.declare import Constraint, Declaration, Launch
from tile_oracle.triton.expression import Expression, Tree, is_multiple, names_in, text_of, tree_of
from tile_oracle.triton.views import COMPUTE_UNITS, POINTED, WORKSPACE, Pointer, ProblemView, not_said

SOURCE = "triton"
_LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")
_NOT_IN_NAMES = {"num_ctas": 1, "maxnreg": None, "ir_override": None}
"""Options that a name leaves out when they have these values."""
_ALIGNMENT = 16
_NEAR_BYTES = 2**31
"""Arrays below this size can be addressed with 32-bit offsets, which AMD's buffer instructions need."""


def backend_options(arch: str) -> frozenset[str]:
    """Returns the names of the compile options that Triton has for an architecture."""
    if arch.startswith("gfx"):
        from triton.backends.amd.compiler import HIPOptions as Options  # type: ignore[import-untyped]
    else:
        from triton.backends.nvidia.compiler import CUDAOptions as Options  # type: ignore[import-untyped]
    return frozenset(field.name for field in dataclasses.fields(Options))


def configurations(declaration: Declaration, view: ProblemView) -> list[Any]:
    """Returns the configurations for a kind of problem: those declared, else those of @triton.autotune, else
    none."""
    given = declaration.configs
    if callable(given):
        given = given(view)
    if given is None:
        given = getattr(autotuner(declaration.main.function), "configs", None) or [{}]
    return list(given)


def autotuner(function: Any) -> Any:
    """Returns the @triton.autotune of a function, or None."""
    while type(function).__name__ not in ("Autotuner", "JITFunction") and hasattr(function, "fn"):
        function = function.fn
    return function if type(function).__name__ == "Autotuner" else None


def prunes(declaration: Declaration) -> bool:
    """Returns whether @triton.autotune has functions that drop configurations for a problem."""
    tuner = autotuner(declaration.main.function)
    return declaration.configs is None and bool(
        getattr(tuner, "early_config_prune", None) or getattr(tuner, "perf_model", None)
    )


def settings_of(config: Any) -> dict[str, Any]:
    """Returns a triton.Config or a dict as names and values. Raises FileFailure for a hook."""
    if isinstance(config, Mapping):
        return dict(config)
    if getattr(config, "pre_hook", None) is not None:
        raise FileFailure(
            "a configuration has a pre_hook, which cannot run: every launch writes its output anew"
        )
    return dict(config.all_kwargs())


class Specifier:
    """The kernels of one declaration on one architecture. Failures are FileFailures with file and line."""

    def __init__(self, declaration: Declaration, number: int, main: Path, arch: str) -> None:
        """main: the user's file, which may import the declaration's. number: its place among all."""
        self._declared, self._number, self._main, self._arch = declaration, number, main.name, arch
        self._folder = main.parent
        place, _, line = declaration.place.rpartition(":")
        self._file, self._line = Path(place).name, int(line)
        self._place = f"{self._file}:{self._line}"
        self._options = backend_options(arch)
        try:
            self.jit = jit_function(declaration.main.function)
            self._after = [jit_function(one.function) for one in declaration.after]
        except HarnessError as error:
            raise FileFailure(one_line(error, self._folder, self._file, self._line)) from None
        self.function = str(self.jit.__name__)
        self.left_out: list[tuple[str, str, str]] = []
        """(operation, function, why) of each configuration that is no kernel."""

    @property
    def code(self) -> list[str]:
        """Triton's hash of each launched function and of all that it calls, wherever that is."""
        return [str(jit.cache_key) for jit in (self.jit, *self._after)]

    def kernels(self) -> Iterator[tuple[NamedKernel, dict[str, Any]]]:
        """Yields each kernel and its specification. Raises FileFailure."""
        archs = self._declared.archs
        if archs is not None and self._arch not in archs:
            self._leave_out(f"it is declared for {', '.join(archs)}, not for {self._arch}")
            return
        try:
            for kind in self._kinds():
                view = self._declared.view(kind, self._arch)
                if (why := fp8_refusal(kind, self._arch)) is not None:
                    self._leave_out(why)
                    continue
                yield from self._of_kind(view)
        except FileFailure as error:
            told = str(error)
            if not told.startswith(f"{self._file}:"):
                told = f"{self._place}: {told}"
            raise FileFailure(told) from None
        except Exception as error:  # the declaration's functions are the user's
            raise FileFailure(one_line(error, self._folder, self._file, self._line)) from None

    def _kinds(self) -> list[Kind]:
        operation = operation_named(self._declared.view.op)
        words = self._declared.kinds
        for name, values in words.items():
            known = operation.kind_fields[name]
            for value in values:
                if value not in known:
                    listed = ", ".join(map(str, known))
                    raise FileFailure(f"{self._place}: {name} {value!r} is not one of {listed}")
        return operation.kinds(words)

    def _leave_out(self, why: str) -> None:
        self.left_out.append((self._declared.view.op, self.function, why))

    def _of_kind(self, view: ProblemView) -> Iterator[tuple[NamedKernel, dict[str, Any]]]:
        seen: set[str] = set()
        for place, config in enumerate(configurations(self._declared, view)):
            made = self._of_config(view, settings_of(config))
            if made is None:
                continue
            kernel, unit = made
            if kernel.name in seen:
                self._leave_out(f"{kernel.short_name} is there twice")
                continue
            seen.add(kernel.name)
            yield kernel, unit | {"config": place}

    def _of_config(
        self, view: ProblemView, settings: Mapping[str, Any]
    ) -> tuple[NamedKernel, dict[str, Any]] | None:
        names = set(self.jit.arg_names).union(*(jit.arg_names for jit in self._after))
        values = {name: value for name, value in settings.items() if name in names}
        options = {name: value for name, value in settings.items() if name not in names}
        unknown = [name for name in options if name not in self._options and name not in _LAUNCH_OPTIONS]
        if unknown:
            self._leave_out(f"{unknown[0]} is neither an argument of it nor an option for {self._arch}")
            return None
        options = {name: value for name, value in options.items() if value is not None}
        if options.get("num_ctas", 1) != 1:
            self._leave_out("num_ctas is not 1: launches of clusters are not supported")
            return None
        if "ir_override" in options:
            self._leave_out("ir_override is not supported")
            return None
        view.configuration = values
        kernel = NamedKernel(view.kind, SOURCE, self.function, tuple(_named(values, options)))
        meta, arguments = self._arguments(self.jit, self._declared.main, view, values, options)
        constraints = self._constraints(view, meta)
        if constraints is None:
            return None
        launches = [self._launch(0, self.jit, self._declared.main, meta, arguments)]
        for number, (jit, after) in enumerate(zip(self._after, self._declared.after, strict=True), 1):
            own_meta, own = self._arguments(jit, after, view, values, options)
            launches.append(self._launch(number, jit, after, own_meta, own))
        wanted = self._declared.workspace_bytes
        workspace = tree_of(wanted(view, meta)) if wanted is not None else 0
        aligned, general = self._declared.aligned, self._declared.general
        variants = _variants(view, [args for _, args in launches], aligned, self._arch)
        if len(variants) > 1 and not (general(view, meta) if callable(general) else general):
            del variants[1]
            constraints = [*constraints, [variants[0]["when"], _only_aligned(variants[0]["when"])]]
        unit = {
            "file": self._main,
            "declaration": self._number,
            "function": self.function,
            "arch": self._arch,
            "options": {key: value for key, value in options.items() if key != "num_ctas"},
            "launches": [one for one, _ in launches],
            "variants": variants,
            "workspace_bytes": workspace,
            "constraints": constraints,
        }
        implied = view.implied(_all_names(unit))
        return kernel, unit | {"constraints": [*constraints, *map(list, implied)]}

    def _arguments(
        self,
        jit: Any,
        launch: Launch,
        view: ProblemView,
        values: Mapping[str, Value],
        options: Mapping[str, Any],
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns all arguments by name with the options, as grids see them; and the arguments alone."""
        given = launch.arguments(view) if launch.arguments is not None else view.usual_arguments()
        found: dict[str, Any] = {}
        for parameter in jit.params:
            name = parameter.name
            if name in values:
                found[name] = values[name]
            elif name in given:
                found[name] = given[name]
            elif parameter.has_default:
                found[name] = parameter.default
            else:
                raise FileFailure(
                    f"{self._place}: the argument {name} of {jit.__name__} has no value: give it "
                    f"in arguments, or in every configuration{not_said(view.op, name)}; without `arguments` "
                    f"{view.op} gives {', '.join(view.usual_arguments())}"
                )
        if launch.arguments is not None:
            known = {*jit.arg_names, *view.usual_arguments()}
            extra = [name for name in given if name not in known]
            if extra:
                raise FileFailure(f"{self._place}: {jit.__name__} has no argument {extra[0]}")
        # A grid may need a number that the function does not take, such as the rows, each a program.
        return {**view.usual_arguments(), **given, **options, **found}, found

    def _constraints(self, view: ProblemView, meta: Mapping[str, Any]) -> list[list[Any]] | None:
        """Returns the conditions that depend on the problem, with their texts; None if one never holds."""
        wanted = self._declared.constraints
        found: list[list[Any]] = []
        for constraint in wanted(view, meta) if wanted is not None else ():
            condition, text = _with_text(constraint)
            if isinstance(condition, Expression):
                found.append([condition.tree, text])
            elif not condition:
                self._leave_out(text or "a constraint does not hold")
                return None
        return found

    def _launch(
        self, number: int, jit: Any, launch: Launch, meta: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            grid = launch.grid(meta) if callable(launch.grid) else launch.grid
        except KeyError as error:
            if error.args and error.args[0] in meta:
                raise
            raise FileFailure(
                f"{self._place}: the grid of {jit.__name__} asks for {error}, which is no "
                f"argument of it; those are {', '.join(parameter.name for parameter in jit.params)}"
            ) from None
        axes = [tree_of(axis) for axis in (grid if isinstance(grid, Sequence) else [grid])]
        if not 1 <= len(axes) <= 3:
            raise FileFailure(f"{self._place}: a grid has one to three extents, not {len(axes)}")
        passed: list[list[Any]] = []
        constants: dict[str, Any] = {}
        for parameter in jit.params:
            value, name = arguments[parameter.name], parameter.name
            if parameter.is_constexpr or value is None or isinstance(value, str | bool):
                constants[name] = _constant(value, name, self._place)
            elif type(value) is int and value == 1:
                constants[name] = 1  # as Triton itself specializes
            else:
                passed.append([name, *_passed(value, name, self._place)])
        made = {"function": jit.__name__, "grid": axes + [1] * (3 - len(axes)), "arguments": passed}
        return made | {"number": number, "constants": constants}, dict(arguments)


def _named(values: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    for name, value in {**values, **options}.items():
        if name in _NOT_IN_NAMES and value == _NOT_IN_NAMES[name]:
            continue
        if not isinstance(value, int | bool | str):
            raise KernelError(
                f"{name} = {value!r} cannot be configured: use an integer, True, False or a word"
            )
        yield name, value


def _with_text(constraint: Constraint) -> tuple[Expression | bool, str]:
    if isinstance(constraint, tuple):
        return constraint
    return constraint, text_of(constraint.tree) if isinstance(constraint, Expression) else ""


def _constant(value: Any, name: str, place: str) -> Any:
    """Returns a constexpr as JSON. Triton's data types become {"dtype": name}."""
    if isinstance(value, Expression | Pointer):
        raise FileFailure(
            f"{place}: {name} is a constexpr and depends on the problem: give each value in a configuration, "
            "with a constraint"
        )
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if type(value).__name__ == "dtype" and type(value).__module__.startswith("triton."):
        return {"dtype": value.name}
    if type(value).__name__ == "constexpr":
        return _constant(value.value, name, place)
    raise FileFailure(
        f"{place}: {name} = {value!r} cannot be a constant: use a number, a text or a data type"
    )


def _passed(value: Any, name: str, place: str) -> tuple[str, Any]:
    """(Triton's type, value as data) of an argument that a launch passes."""
    if isinstance(value, Pointer):
        pointer = {"pointer": value.role, "offset": tree_of(value.offset_bytes)}
        return f"*{POINTED[value.dtype]}", pointer
    if isinstance(value, Expression | int):
        return "i32", tree_of(value)
    if isinstance(value, float):
        return "fp32", value
    raise FileFailure(
        f"{place}: {name} is of type {type(value).__name__}: an argument is an array of the problem, a "
        "number or an expression (tensor descriptors cannot be passed: make them in the kernel)"
    )


def _variants(
    view: Any, launches: Sequence[Mapping[str, Any]], aligned: Sequence[str] | None, arch: str
) -> list[dict[str, Any]]:
    """For aligned problems and for all: what Triton may assume of each launch's arguments."""
    wanted = frozenset(view.contiguous() if aligned is None else aligned)
    numbers = (*view.numbers, COMPUTE_UNITS)
    if unknown := sorted(wanted.difference(numbers)):
        raise HarnessError(f"aligned: {unknown[0]} is not one of {', '.join(numbers)}")
    multiples = [_multiples(arguments, wanted) for arguments in launches]
    always = [_multiples(arguments, frozenset()) for arguments in launches]
    near = [_arrays(arguments) if arch.startswith("gfx") else [] for arguments in launches]
    none: list[list[str]] = [[] for _ in launches]
    general = {"name": "general", "when": 1, "multiples": always, "near": none}
    if multiples == always and near == none:
        return [general]
    conditions: list[Tree] = [["==", ["%", name, _ALIGNMENT], 0] for name in sorted(wanted)]
    if near != none:
        sizes = {id(value): value for arguments in launches for value in arguments.values()}
        bytes_ = [
            value.bytes
            for value in sizes.values()
            if isinstance(value, Pointer) and value.elements is not None
        ]
        conditions += [["<", tree_of(size), _NEAR_BYTES] for size in bytes_]
    when: Tree = 1
    for condition in conditions:
        when = condition if when == 1 else ["&", when, condition]
    return [{"name": "aligned", "when": when, "multiples": multiples, "near": near}, general]


def _only_aligned(when: Tree) -> str:
    extents = sorted(names_in(when))
    return f"it is compiled for multiples of {_ALIGNMENT} only: {', '.join(extents)}"


def _multiples(arguments: Mapping[str, Any], multiples: frozenset[str]) -> list[str]:
    """Returns the arguments that are multiples of 16 when these numbers are. Arrays begin at such
    addresses."""
    return [
        name
        for name, value in arguments.items()
        if isinstance(value, Pointer)
        or (isinstance(value, Expression) and is_multiple(value.tree, _ALIGNMENT, multiples))
        or (type(value) is int and value % _ALIGNMENT == 0)
    ]


def _arrays(arguments: Mapping[str, Any]) -> list[str]:
    """Returns the problem's own arrays. The workspace may be larger than 32-bit offsets reach."""
    return [
        name
        for name, value in arguments.items()
        if isinstance(value, Pointer) and value.role != WORKSPACE and value.elements is not None
    ]


def _all_names(unit: Mapping[str, Any]) -> frozenset[str]:
    trees = [tree for tree, _ in unit["constraints"]] + [unit["workspace_bytes"]]
    for launch in unit["launches"]:
        trees += launch["grid"]
        trees += [value for _, _, value in launch["arguments"] if isinstance(value, str | list | int)]
    return names_in(["all", *trees])
