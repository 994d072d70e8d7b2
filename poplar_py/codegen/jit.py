"""LLVM text to machine code: ORC, with an object cache on disk.

Objects are cached by the hash of their text (or of their symbol and our generator's version, when
the text is only made on demand), LLVM's version, the CPU and its features: see `diskcache`.
"""

from __future__ import annotations

import hashlib
import importlib
import threading
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from poplar_py.codegen.support import SUPPORT_SYMBOLS, SUPPORT_TEXT
from poplar_py.codelets.diskcache import cache_folder, read_entry, source_version, write_entry
from poplar_py.diagnostics import InternalError, OptionError

__all__ = ["Jit", "cache_folder"]

llvm: Any = importlib.import_module("llvmlite.binding")  # has no type information
_GENERATOR = ("emit", "lanes", "mathlib")
_FORMAT = 1
_SUPPORT = "poplar_py.support"


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for library in ("libm.so.6", "libm.so"):
        try:
            llvm.load_library_permanently(library)
        except RuntimeError:
            continue
        return


class Jit:
    """Compiles kernels for one CPU and keeps them for its lifetime.

    cpu: "native", or a level below it such as "x86-64-v2" (with that level's features only).
    """

    def __init__(self, cpu: str = "native", cache_dir: str | Path | None = None) -> None:
        _initialize()
        self.cpu, self.features = _cpu(cpu)
        self.folder = Path(cache_dir) if cache_dir is not None else cache_folder()
        self.machine = self._target_machine()
        self._jit = llvm.create_lljit_compiler(self.machine)
        self._keep: list[Any] = []
        self._libraries = 0
        self._addresses: dict[str, int] = {}
        self._lock = threading.Lock()
        self.compiled = 0
        self.cached = 0
        self._link_support()

    def _link_support(self) -> None:
        data = self._object("", SUPPORT_TEXT)
        builder = llvm.JITLibraryBuilder().add_object_img(data)
        for symbol in SUPPORT_SYMBOLS:
            builder = builder.export_symbol(symbol)
        self._keep.append(builder.link(self._jit, _SUPPORT))
        self.compiled = self.cached = 0

    def _target_machine(self) -> Any:
        target = llvm.Target.from_triple(llvm.get_process_triple())
        return target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=3, reloc="pic", codemodel="small"
        )

    def load(self, kernels: Mapping[str, str | Callable[[], str]]) -> dict[str, int]:
        """Addresses of kernels given as {symbol: LLVM text}. Compiles what no cache has.

        A text may be a function that makes it; its symbol must then name the code for good.
        """
        with self._lock:
            new = {s: self._object(s, t) for s, t in kernels.items() if s not in self._addresses}
            if new:
                self._link(new)
            return {symbol: self._addresses[symbol] for symbol in kernels}

    def _link(self, objects: dict[str, bytes]) -> None:
        """Link objects, each with the symbol it is named after."""
        builder = llvm.JITLibraryBuilder().add_jit_library(_SUPPORT).add_current_process()
        for symbol, data in objects.items():
            builder = builder.add_object_img(data).export_symbol(symbol)
        self._libraries += 1  # a name is used up even when linking fails
        try:
            tracker = builder.link(self._jit, f"kernels.{self._libraries}")
        except RuntimeError as error:
            raise InternalError(f"a kernel does not link: {error}") from None
        self._keep.append(tracker)
        self._addresses |= {symbol: tracker[symbol] for symbol in objects}

    # -- objects

    def key(self, text: str) -> str:
        """The cache key of a module text on this CPU."""
        version = ".".join(str(v) for v in llvm.llvm_version_info)
        head = f"{_FORMAT}|{version}|{llvm.get_process_triple()}|{self.cpu}|{self.features}|"
        return hashlib.sha256((head + text).encode()).hexdigest()

    def _object(self, symbol: str, text: str | Callable[[], str]) -> bytes:
        if isinstance(text, str):
            key = self.key(text)
        else:
            key = self.key(f"{symbol}|{source_version('poplar_py.codegen', _GENERATOR)}")
        path = self.folder / "objects" / f"{key}.o"
        data = read_entry(path)
        if data is not None:
            self.cached += 1
            return data
        data = self.compile(text if isinstance(text, str) else text())
        self.compiled += 1
        write_entry(path, data)
        return data

    def compile(self, text: str) -> bytes:
        """Object code of a module text. Raises InternalError when LLVM refuses the text."""
        return bytes(self.machine.emit_object(self.optimised(text)))

    def assembly(self, text: str) -> str:
        """Assembly of a module text, for people."""
        return self.machine.emit_assembly(self.optimised(text))

    def optimised(self, text: str) -> Any:
        """The parsed module after the passes its first line asks for."""
        try:
            module = llvm.parse_assembly(text)
            module.triple = llvm.get_process_triple()
            module.data_layout = str(self.machine.target_data)
            module.verify()
        except RuntimeError as error:
            raise InternalError(f"generated code is not valid: {error}") from None
        if text.startswith("; passes: loops"):
            self._loop_passes(module)
        return module

    def _loop_passes(self, module: Any) -> None:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = True
        options.loop_unrolling = False
        builder = llvm.create_pass_builder(self.machine, options)
        builder.getModulePassManager().run(module, builder)


_LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": (),
    "x86-64-v2": ("sse4.2", "popcnt"),
    "x86-64-v3": ("avx2", "bmi2", "fma", "f16c"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}


def _cpu(name: str) -> tuple[str, str]:
    """LLVM's CPU name and features. Raises OptionError for what this machine cannot run."""
    host = llvm.get_host_cpu_features()
    if name in ("native", llvm.get_host_cpu_name()):
        return llvm.get_host_cpu_name(), host.flatten()
    levels = _LEVELS if llvm.get_process_triple().startswith("x86_64") else {"generic": ()}
    if name not in levels:
        known = ", ".join(["native", *levels])
        raise OptionError(f"the CPU {name!r} is not known", remedy=f"use one of {known}")
    missing = [f for f in levels[name] if not host.get(f)]
    if missing:
        raise OptionError(f"this machine cannot run {name} code: it lacks {', '.join(missing)}")
    return name, ""
