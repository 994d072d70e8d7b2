"""Every public function of poplar, called with what is not of its kind in each place in turn: it
answers, or raises a documented error; objects of the wrong class it always refuses."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poplar_py import poplar
from poplar_py.diagnostics import PoplarPyError
from poplar_py.poplar import Graph, Tensor, program
from poplar_py.types import DType
from tests.poplar.argument_cases import FAMILIES, Setting

WRONG: list[Any] = [None, 3, "x", [0, 0], 1.5, -1, object(), [None], {"a": 1}]
NAMES = [(family, name) for family, make in FAMILIES.items() for name, _, _ in make(Setting())]


def prepared(family: str, name: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function in a fresh setting, and valid values for the parameters that have some."""
    s = Setting()
    function, own = next((f, v) for n, f, v in FAMILIES[family](s) if n == name)
    parameters = inspect.signature(function).parameters
    known = {**s.values, **own}
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return function, own
    return function, {n: known[n] for n in parameters if n in known and n not in ("loc", "self")}


STRICT = (
    Graph,
    Tensor,
    program.Program,
    DType,
    poplar.ComputeSet,
    poplar.VertexRef,
    poplar.FieldRef,
    poplar.DataStream,
    poplar.RemoteBuffer,
    poplar.HostFunction,
    poplar.Device,
    poplar.Target,
    poplar.Executable,
)
"""What has no other form: anything else in its place is refused."""

FREE = {
    ("Graph.connect", "value"),  # constants
    ("Graph.add_constant", "dtype"),  # None: that of the values
    ("program.CycleCount", "body"),  # None: a time stamp
}
"""Places for such things where something else is taken as well."""


def allowed(name: str, parameter: inspect.Parameter | None, valid: Any, wrong: Any) -> bool:
    """Whether a wrong value may be taken: None and texts where the parameter has a default (it is
    left out, or it is the name)."""
    if not isinstance(valid, STRICT) or (name, parameter and parameter.name) in FREE:
        return True
    has_default = parameter is not None and parameter.default is not inspect.Parameter.empty
    return has_default and (wrong is None or isinstance(wrong, str))


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that a case writes by chance appear here."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("family", "name"), NAMES, ids=[n for _, n in NAMES])
def test_wrong_arguments(family: str, name: str) -> None:
    function, valid = prepared(family, name)
    function(**valid)  # the valid call is one
    parameters = inspect.signature(function).parameters
    for place in valid:
        for wrong in WRONG:
            function, arguments = prepared(family, name)
            what = f"{name}({place}={wrong!r})"
            try:
                function(**{**arguments, place: wrong})
            except PoplarPyError as error:
                check_location(error, what)
            except Exception as error:
                raise AssertionError(f"{what} raises {error!r}") from error
            else:
                assert allowed(name, parameters.get(place), valid[place], wrong), f"{what} is taken"


def check_location(error: PoplarPyError, what: str) -> None:
    assert error.message, what
    if isinstance(error, poplar.errors.GraphError):
        assert Path(error.loc.file).parent == Path(__file__).parent, f"{what} is at {error.loc}"


def test_every_parameter_has_a_value() -> None:
    """Parameters without a default are all filled in, so that every place is tried."""
    missing: list[str] = []
    for family, name in NAMES:
        function, valid = prepared(family, name)
        for p in inspect.signature(function).parameters.values():
            needed = p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
            if needed and p.name not in valid:
                missing.append(f"{name}.{p.name}")
    assert not missing


@pytest.mark.parametrize("wrong", [*WRONG, "no_such_file.pexe"])
def test_files_that_are_none(wrong: Any) -> None:
    for call in (poplar.Executable.load, poplar.Executable.deserialize, poplar.Engine):
        with pytest.raises(PoplarPyError):
            call(wrong)
