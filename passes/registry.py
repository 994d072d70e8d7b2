"""What a pass is, and the table of passes by name.

    @register
    @dataclass(frozen=True)
    class Fuse(Pass):
        "Join chains of elementwise ops."
        name = "fuse"
        level = "model"
        max_ops: int = 32          # option max-ops in pipeline text

        def run(self, module: Module, ctx: PassContext) -> bool: ...

Modules are imported when a pass is first asked for, so that listing names costs nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, ClassVar, TypeVar

from poplar_py.diagnostics import OptionError

__all__ = ["PASS_MODULES", "Pass", "get_pass", "make_pass", "option_text", "pass_names", "register"]

PASS_MODULES: dict[str, str] = {
    "infer-shapes": "poplar_py.passes.infer_shapes",
    "simplify": "poplar_py.passes.simplify",
    "fuse": "poplar_py.passes.fuse",
    "place": "poplar_py.passes.place",
    "lower": "poplar_py.passes.lower",
    "map-tiles": "poplar_py.passes.map_tiles",
    "check-memory": "poplar_py.passes.check_memory",
    "plan-exchange": "poplar_py.passes.plan_exchange",
    "liveness": "poplar_py.passes.liveness",
    "plan-memory": "poplar_py.passes.plan_memory",
}
"""Where each pass is registered; other modules may register more by being imported."""


@dataclass(frozen=True)
class Pass(ABC):
    """A step from module to module. Dataclass fields are its options.

    `level` is what it takes, `leaves` what it gives ("" means the same); a pass that changes the
    level hands the new module to `ctx.replace(...)`. `after` names passes that must have run.
    """

    name: ClassVar[str] = ""
    level: ClassVar[str] = "model"
    leaves: ClassVar[str] = ""
    after: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def run(self, module: Any, ctx: Any) -> bool:
        """Change the module in place; whether anything changed."""

    def __str__(self) -> str:
        """As in pipeline text; options at their defaults are left out."""
        given = [
            f"{f.name.replace('_', '-')}={option_text(getattr(self, f.name))}"
            for f in fields(self)
            if getattr(self, f.name) != f.default
        ]
        return self.name + (f"{{{','.join(given)}}}" if given else "")


PassT = TypeVar("PassT", bound=type[Pass])
_classes: dict[str, type[Pass]] = {}


def register(cls: PassT) -> PassT:
    """Enter a pass class under its name."""
    known = _classes.get(cls.name)
    if known is not None and known.__module__ != cls.__module__:
        raise ValueError(f"pass {cls.name} is registered twice")
    if not cls.name or cls.level not in ("model", "tile"):
        raise ValueError(f"{cls.__name__} needs a name and a level")
    _classes[cls.name] = cls
    return cls


def pass_names() -> tuple[str, ...]:
    """All names, in the order of the default pipeline, then others."""
    return tuple(dict.fromkeys((*PASS_MODULES, *_classes)))


def get_pass(name: str) -> type[Pass]:
    """The class of a pass. Raises OptionError for an unknown name."""
    if name not in _classes and name in PASS_MODULES:
        import_module(PASS_MODULES[name])
    found = _classes.get(name)
    if found is None:
        names = ", ".join(pass_names())
        raise OptionError(f"there is no pass {name!r}", remedy=f"the passes are {names}")
    return found


def make_pass(name: str, options: dict[str, str] | None = None) -> Pass:
    """A pass from its name and options as text. Raises OptionError."""
    cls = get_pass(name)
    known = {f.name.replace("_", "-"): f for f in fields(cls)}
    values: dict[str, Any] = {}
    for key, text in (options or {}).items():
        f = known.get(key)
        if f is None:
            remedy = f"its options are {', '.join(known)}" if known else "it has no options"
            raise OptionError(f"pass {name} has no option {key!r}", remedy=remedy)
        values[f.name] = _option_value(name, key, text, _annotation(f.type))
    return cls(**values)


def option_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _annotation(kind: Any) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


_BOOLS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
_READERS: dict[str, Any] = {"int": int, "float": float, "str": str, "bool": _BOOLS.__getitem__}


_KINDS = {"int": "an integer", "float": "a number", "str": "a word", "bool": "true or false"}


def _option_value(name: str, key: str, text: str, annotation: str) -> Any:
    reader = _READERS.get(annotation.removesuffix(" | None"))
    if reader is None:
        raise OptionError(f"option {key} of pass {name} cannot be given as text")
    try:
        return reader(text)
    except (ValueError, KeyError):
        kind = annotation.removesuffix(" | None")
        raise OptionError(f"option {key} of pass {name}: {text!r} is not {_KINDS[kind]}") from None
