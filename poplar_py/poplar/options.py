"""OptionFlags and the engine and runtime options programs set, with what they do here.

``POPLAR_ENGINE_OPTIONS`` and ``POPLAR_RUNTIME_OPTIONS`` hold JSON objects of strings and override
the program, as in Poplar. An unknown key is refused with the nearest known one.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, cast

from poplar_py.arguments import text
from poplar_py.diagnostics import Location, OptionError, reason_of
from poplar_py.poplar.where import caller, source_text


@dataclass(frozen=True, slots=True)
class Option:
    """A known option: its default as text, and its effect here."""

    default: str
    effect: str


_NONE = "accepted; changes nothing here"

ENGINE_OPTIONS: dict[str, Option] = {
    "autoReport.all": Option("false", "write all reports into autoReport.directory"),
    "autoReport.directory": Option(".", "where reports go"),
    "autoReport.outputGraphProfile": Option("false", "write the memory report: graph.txt"),
    "autoReport.outputExecutionProfile": Option("false", "write the cycle report: execution.txt"),
    "autoReport.outputSerializedGraph": Option("false", "write the tile-level text: graph.pir"),
    "autoReport.outputDebugInfo": Option("false", _NONE),
    "autoReport.outputLoweredVars": Option(
        "false", "write the storage of every variable: variables.txt"
    ),
    "autoReport.outputArchive": Option("false", _NONE),
    "autoReport.executionProfileProgramRunCount": Option("2", "runs the cycle report covers"),
    "autoReport.outputProgressTimings": Option("false", _NONE),
    "autoReport.streamAtEachRun": Option("false", _NONE),
    "debug.allowOutOfMemory": Option("false", "profile a program that exceeds tile memory"),
    "debug.instrument": Option("false", "accepted; cycles of every step are always counted"),
    "debug.instrumentCompute": Option("false", "accepted; always counted"),
    "debug.instrumentControlFlow": Option("false", "accepted; always counted"),
    "debug.instrumentExternalExchange": Option("false", "accepted; always counted"),
    "debug.computeInstrumentationLevel": Option("tile", _NONE),
    "debug.retainDebugInformation": Option(
        "true", "accepted; names and source lines are always kept"
    ),
    "debug.outputAllSymbols": Option("false", _NONE),
    "debug.floatPointOpException": Option("false", _NONE),
    "debug.cbor": Option("true", _NONE),
    "debug.verify": Option("false", "accepted; graphs are always checked"),
    "debug.runtimeVerify": Option("false", "find reads of elements never written"),
    "debug.trace": Option("false", _NONE),
    "debug.traceFile": Option("", _NONE),
    "debug.branchRecordTile": Option("", _NONE),
    "exchange.streamBufferOverlap": Option("any", _NONE),
    "exchange.enablePrefetch": Option("true", "ask stream callbacks ahead of time"),
    "opt.useAutoloader": Option("true", _NONE),
    "opt.internalExchangeOptimisationTarget": Option("cycles", _NONE),
    "opt.maxComputeSetsPerLoweredCopy": Option("0", _NONE),
    "opt.maxCompilationThreads": Option("0", _NONE),
    "target.deterministicWorkers": Option("true", "always deterministic here"),
    "target.syncReplicasIndependently": Option("false", _NONE),
    "target.extendedMemory": Option("false", _NONE),
    "target.numberRuntimeReplica": Option("1", "replicas of this process"),
    "target.firstRuntimeReplica": Option("0", _NONE),
    "target.workerStackSizeInBytes": Option("4096", _NONE),
    "target.supervisorStackSizeInBytes": Option("0", _NONE),
    "profiler.replicaToProfile": Option("0", _NONE),
}

RUNTIME_OPTIONS: dict[str, Option] = {
    "target.hostSyncTimeout": Option("300", _NONE),
    "target.syncMethod": Option("default", _NONE),
    "target.syncPollPeriodUs": Option("0", _NONE),
    "target.exceptionPollPeriodUs": Option("250000", _NONE),
    "streamCallbacks.multiThreadMode": Option("singleThread", _NONE),
    "streamCallbacks.numaAware": Option("false", _NONE),
    "streamCallbacks.numWorkerThreads": Option("auto", _NONE),
    "streamCallbacks.maxLookahead": Option("unlimited", "0: callbacks are not asked ahead of time"),
}


class OptionFlags(MutableMapping[str, str]):
    """Poplar's ordered map of option names to strings.

    ``OptionFlags({"debug.instrument": "true"})``; other values are converted to strings (true and
    false in lower case).
    """

    def __init__(self, options: Mapping[str, Any] | None = None, **more: Any) -> None:
        self._values: dict[str, str] = {}
        self.set({} if options is None else options)
        self.set(more)

    def set(self, name: str | Mapping[str, Any], value: Any = None) -> OptionFlags:
        """Set one option, or all of a mapping; returns itself. Raises OptionError."""
        items = {name: value} if isinstance(name, str) else _by_name(name)
        for key, item in items.items():
            self._values[key] = _text(item)
        return self

    def at(self, name: str) -> str:
        """The value of an option. Raises OptionError when it was not set."""
        found = self.find(name)
        if found is None:
            raise OptionError(f"option {name!r} is not set", caller())
        return found

    def find(self, name: str) -> str | None:
        """The value of an option, or None."""
        return self._values.get(text(name, "the name of an option"))

    def has(self, name: str) -> bool:
        return self.find(name) is not None

    def read_json(self, text: str, source: str = "<options>") -> OptionFlags:
        """Set the options of a JSON object of strings, given as text or an open file. Raises
        OptionError."""
        read = getattr(text, "read", None)
        body: Any = read() if callable(read) else text
        if not isinstance(body, (str, bytes)):
            raise OptionError(f"options are read from {text!r}", caller(), "give JSON as text")
        source = source if isinstance(cast("object", source), str) else "<options>"
        try:
            data: Any = json.loads(body)
        except (ValueError, RecursionError) as error:
            reason = reason_of(error)
            raise OptionError(f"not a JSON object: {reason}", Location(source, 1, 1)) from None
        if not isinstance(data, dict):
            raise OptionError("not a JSON object", Location(source, 1, 1))
        return self.set(cast("dict[str, Any]", data))

    def read_json_from_env(self, variable: str) -> OptionFlags:
        """Set the options an environment variable holds, if it is set."""
        found = os.environ.get(text(variable, "the name of a variable"))
        return self if not found else self.read_json(found, f"${variable}")

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.set(name, value)

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"OptionFlags({self._values!r})"


def _by_name(options: Any) -> Mapping[str, Any]:
    """A mapping whose keys are texts. Raises OptionError."""
    named = isinstance(options, Mapping) and all(
        isinstance(k, str) for k in cast("Mapping[Any, Any]", options)
    )
    if not named:
        raise OptionError(f"options {options!r}", caller(), "give a dict of names and values")
    return cast("Mapping[str, Any]", options)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def check_options(
    options: Mapping[str, str], known: Mapping[str, Option], what: str = "engine"
) -> None:
    """Raise OptionError for the first unknown name, with the nearest known one."""
    for name in options:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, 1)
        remedy = f"did you mean {near[0]!r}?" if near else f"see the table of {what} options"
        loc = caller()
        raise OptionError(f"unknown {what} option {name!r}", loc, remedy, source_text(loc))


def engine_options(options: Mapping[str, Any] | None = None) -> OptionFlags:
    """Defaults, then the given options, then ``POPLAR_ENGINE_OPTIONS``. Raises OptionError."""
    return _resolved(options, ENGINE_OPTIONS, "POPLAR_ENGINE_OPTIONS", "engine")


def runtime_options(options: Mapping[str, Any] | None = None) -> OptionFlags:
    """Defaults, then the given options, then ``POPLAR_RUNTIME_OPTIONS``. Raises OptionError."""
    return _resolved(options, RUNTIME_OPTIONS, "POPLAR_RUNTIME_OPTIONS", "runtime")


def _resolved(
    options: Mapping[str, Any] | None, known: Mapping[str, Option], variable: str, what: str
) -> OptionFlags:
    flags = OptionFlags(options).read_json_from_env(variable)
    check_options(flags, known, what)
    return OptionFlags({**{k: o.default for k, o in known.items()}, **flags})


def flag(options: Mapping[str, str], name: str) -> bool:
    """A boolean option. Raises OptionError unless it is true or false."""
    value = options[name].lower()
    if value not in ("true", "false"):
        raise OptionError(f"option {name!r} is {options[name]!r}", caller(), "true or false")
    return value == "true"


def number(options: Mapping[str, str], name: str) -> int:
    """An option that counts. Raises OptionError unless it is a number from 0 on."""
    value = options[name]
    if not value.isdecimal():
        raise OptionError(f"option {name!r} is {value!r}", caller(), "a number")
    return int(value)


STREAM_OPTIONS: dict[str, Option] = {
    "bufferingDepth": Option("1", "copies the host may be ahead"),
    "splitLimit": Option("0", _NONE),
}


def buffering_depth(options: Mapping[str, Any] | None) -> int:
    """The depth the options of a stream ask for. Raises OptionError."""
    given = OptionFlags(options)
    check_options(given, STREAM_OPTIONS, "stream")
    return max(1, number({"bufferingDepth": "1", **given}, "bufferingDepth"))
