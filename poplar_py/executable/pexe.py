"""`.pexe`: an executable as a zip of a manifest, codelet text and arrays. No pickle, no machine
code.

    manifest.json       everything small: target, regions, streams, steps, messages, entries
    codelets/K.txt      codelet IR of codelet K
    NAME.npy            arrays: step code, tables, memory plan, first contents

Entries are stored without compression, so that no array is larger than the file that holds it.
"""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from poplar_py.codelets.codelet import Codelet
from poplar_py.codelets.codelet import get as builtin_codelet
from poplar_py.codelets.codelet_text import parse_codelet, print_codelet
from poplar_py.diagnostics import FileError, Location, PoplarPyError, UnknownName, reason_of
from poplar_py.executable.check import check_executable
from poplar_py.executable.executable import (
    Executable,
    HostCall,
    Initial,
    Message,
    Region,
    StepInfo,
    Stream,
    Table,
)
from poplar_py.executable.pexe_target import target_from_json, target_to_json
from poplar_py.executable.proof import proved_codelets
from poplar_py.executable.tables import Order
from poplar_py.files import atomic_path
from poplar_py.passes.plan_memory import MemoryPlan
from poplar_py.passes.tile_module import Items
from poplar_py.poplar.arrays import I8, Ints, offsets_of
from poplar_py.poplar.program import PrintTensorFmt
from poplar_py.types import DTYPES

FORMAT = 2
MAX_MANIFEST = 1 << 28
_PLAN = ("at", "data", "bound", "always", "code", "state", "base", "live_bytes")
_STEP = (
    "name",
    "kind",
    "compute",
    "exchange",
    "sync",
    "host",
    "balance",
    "tiles",
    "vertices",
    "bytes_exchanged",
    "bytes_between",
    "live_bytes",
    "exchange_bound",
    "exchange_data",
    "exchange_links",
    "exchange_local",
    "tile_compute",
    "thread_compute",
)
_FRACTIONS = ("balance", "tile_compute", "thread_compute")
Arrays = dict[str, NDArray[Any]]


def save_executable(exe: Executable, path: str | Path) -> None:
    """Write a `.pexe`; the file appears whole or not at all. Raises FileError."""
    with atomic_path(path) as part, part.open("wb") as f:
        write_executable(exe, f)


def write_executable(exe: Executable, out: BinaryIO) -> None:
    """Write the bytes of a `.pexe` to an open binary file."""
    arrays: Arrays = {}
    manifest = _manifest(exe, arrays)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        z.writestr("manifest.json", json.dumps(manifest))
        for k, codelet in enumerate(exe.codelets):
            z.writestr(f"codelets/{k}.txt", print_codelet(codelet.ir))
        for name, array in arrays.items():
            with z.open(f"{name}.npy", "w", force_zip64=True) as f:
                np.lib.format.write_array(f, np.ascontiguousarray(array), allow_pickle=False)


def load_executable(path: str | Path, *, trusted: bool = False) -> Executable:
    """Read a `.pexe` and check it. Raises FileError for anything that is not right; every address
    lies inside the arena afterwards. Codelets are compiled with bounds checks, except those called
    built-in whose rows prove that they need none; those of a ``trusted`` file (of the user's own
    cache) that equal built-ins are built-ins again."""
    return _checked(path, str(path), trusted)


def read_executable(source: BinaryIO) -> Executable:
    """As `load_executable`, from an open binary file that can seek."""
    return _checked(source, str(getattr(source, "name", "<stream>")), trusted=False)


def _checked(source: str | Path | BinaryIO, path: str, trusted: bool) -> Executable:
    loc = Location(path, 0, 0)
    try:
        with zipfile.ZipFile(source) as z:
            reader = _Reader(z, loc, trusted)
            exe = reader.executable()
        check_executable(exe)
        exe.proved = proved_codelets(exe, reader.claimed())
    except FileError as error:
        raise error.at(loc) from None
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or reason_of(error)}", loc) from error
    except zipfile.BadZipFile as error:
        raise FileError(f"{path} is no .pexe file: {reason_of(error)}", loc) from error
    except PoplarPyError as error:
        raise FileError(f"{path} is damaged: {error.message}", loc) from error
    except KeyError as error:
        raise FileError(f"{path} is damaged: {reason_of(error)} is missing", loc) from error
    except (ValueError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise FileError(f"{path} is damaged: {reason_of(error)}", loc) from error
    except (OverflowError, MemoryError, NotImplementedError, RuntimeError) as error:
        raise FileError(f"{path} is damaged: {reason_of(error)}", loc) from error
    return exe


# ---------------------------------------------------------------------------- writing
def _place(loc: Location) -> list[Any]:
    return [loc.file, loc.line, loc.col, loc.name, loc.index, loc.output]


def _manifest(exe: Executable, arrays: Arrays) -> dict[str, Any]:
    arrays["code"] = exe.code
    arrays["switches"], arrays["switch_ptr"] = _ragged(
        [s.reshape(-1) for s in exe.switches], np.dtype(np.int64)
    )
    _write_tables(exe, arrays)
    _write_memory(exe, arrays)
    data, at = [i.data for i in exe.initial], [i.at for i in exe.initial]
    arrays["initial_data"], arrays["initial_data_ptr"] = _ragged(data, np.dtype(np.uint8))
    arrays["initial_at"], arrays["initial_ptr"] = _ragged(at, np.dtype(np.int64))
    arrays["initial_bytes"], _ = _ragged([i.nbytes for i in exe.initial], np.dtype(np.int64))
    empty = np.zeros(exe.target.num_ipus, I8)
    for what in ("ipu_compute", "ipu_exchange"):
        rows = [getattr(s, what) for s in exe.steps]
        arrays[what] = np.array([empty if r is None else r for r in rows], I8).reshape(
            len(rows), exe.target.num_ipus
        )
    return {
        "format": FORMAT,
        "target": target_to_json(exe.target),
        "codelets": len(exe.codelets),
        "builtins": [[c.name, c.digest] if c.builtin else None for c in exe.codelets],
        "initial": [i.name for i in exe.initial],
        "entries": exe.entries,
        "programs": exe.programs,
        "counters": exe.counters,
        "depth": exe.depth,
        "regions": [[r.name, r.kind, r.dtype.name, r.numel, r.offset] for r in exe.regions],
        "streams": [[s.handle, s.region, s.to_host, s.broadcast] for s in exe.streams.values()],
        "stream_ids": exe.stream_ids,
        "host_calls": [_host_call(c) for c in exe.host_calls],
        "messages": [[m.text, _place(m.loc), m.region] for m in exe.messages],
        "steps": [[*(getattr(s, k) for k in _STEP), _place(s.loc)] for s in exe.steps],
        "items": [[n, _place(p)] for n, p in zip(exe.items.names, exe.items.locs, strict=True)],
        "memory_end": exe.memory.end,
        "host_writes": exe.host_writes,
        "host_reads": exe.host_reads,
        "remote_buffers": exe.remote_buffers,
        "remote_rows": exe.remote_rows,
        "arena_bytes": exe.arena_bytes,
        "wide": exe.wide,
        "metadata": exe.metadata,
    }


def _host_call(call: HostCall) -> list[Any]:
    detail: Any = call.detail
    if call.kind == "print":
        shape, fmt = call.detail
        options = {k: getattr(fmt, k) for k in PrintTensorFmt.__slots__} if fmt else None
        detail = [list(shape), options]
    if call.kind == "replicas":
        detail = [list(pair) for pair in call.detail.items()]
    return [call.kind, call.name, call.inputs, call.outputs, detail]


def _ragged(parts: list[NDArray[Any]], dtype: np.dtype[Any]) -> tuple[NDArray[Any], Ints]:
    """One array of all parts, and where each begins."""
    ptr = offsets_of(np.array([len(p) for p in parts], I8))
    return (np.concatenate(parts) if parts else np.zeros(0)).astype(dtype, copy=False), ptr


def _write_tables(exe: Executable, arrays: Arrays) -> None:
    t = exe.tables
    word = np.dtype(np.uint64 if exe.wide else np.uint32)
    none = np.zeros(0, np.int32)
    arrays["words"], arrays["words_ptr"] = _ragged([x.words for x in t], word)
    arrays["rows"], arrays["rows_ptr"] = _ragged([x.ptr for x in t], np.dtype(np.int64))
    arrays["split"], _ = _ragged([x.order.split for x in t], np.dtype(np.int32))
    arrays["rank"], _ = _ragged([x.order.rank for x in t], np.dtype(np.int32))
    arrays["cost"], _ = _ragged([x.cost for x in t], np.dtype(np.int64))
    arrays["patch_at"], arrays["patch_ptr"] = _ragged([x.patch_at for x in t], np.dtype(np.int64))
    arrays["patch_to"], _ = _ragged([x.patch_to for x in t], np.dtype(np.int64))
    tiles = [none if x.tiles is None else x.tiles for x in t]
    arrays["tiles"], arrays["tiles_ptr"] = _ragged(tiles, np.dtype(np.int32))
    of = [none if x.loc_of is None else x.loc_of for x in t]
    arrays["loc_of"], arrays["loc_of_ptr"] = _ragged(of, np.dtype(np.int32))
    table = {
        "kernels": [x.kernel for x in t],
        "groups": [x.group for x in t],
        "locs": [[_place(p) for p in x.locs] for x in t],
    }
    arrays["tables_json"] = np.frombuffer(json.dumps(table).encode(), np.uint8)


def _write_memory(exe: Executable, arrays: Arrays) -> None:
    for name in _PLAN:
        arrays[f"memory_{name}"] = getattr(exe.memory, name)
    arrays["item"] = exe.items.item
    arrays["item_tile"] = exe.items.tile
    arrays["item_bytes"] = exe.items.nbytes
    arrays["item_live"] = np.packbits(exe.items.live, axis=1)
    arrays["item_always"] = exe.items.always
    arrays["item_steps"] = np.array([exe.items.live.shape[1]], I8)


# ---------------------------------------------------------------------------- reading
class _Reader:
    def __init__(self, z: zipfile.ZipFile, loc: Location, trusted: bool) -> None:
        self.z, self.loc, self.trusted = z, loc, trusted
        self.codelets: list[Codelet] = []
        for info in z.infolist():
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                raise FileError(f"entry {info.filename!r} is compressed", loc)
        raw = self.entry("manifest.json", MAX_MANIFEST)
        self.m: dict[str, Any] = json.loads(raw)
        if self.m.get("format") != FORMAT:
            raise FileError(f"format {self.m.get('format')!r} of {loc.file} is not known", loc)

    def entry(self, name: str, limit: int) -> bytes:
        if self.z.getinfo(name).file_size > limit:
            raise FileError(f"entry {name!r} is too large", self.loc)
        return self.z.read(name)

    def array(self, name: str, dtype: Any, ndim: int = 1) -> NDArray[Any]:
        """An array of the given type; its header must fit its bytes, so nothing large is made
        up."""
        raw = self.z.read(f"{name}.npy")
        f = io.BytesIO(raw)
        shape, fortran, found = _header(name, f)
        wanted = np.dtype(dtype)
        if found != wanted or fortran or len(shape) != ndim:
            raise ValueError(f"array {name} is {found} {shape}, not {wanted}")
        count = 1
        for d in shape:
            count *= d
        if count * wanted.itemsize != len(raw) - f.tell():
            raise ValueError(f"array {name} has {len(raw)} bytes for shape {shape}")
        return np.frombuffer(raw, wanted, count, f.tell()).reshape(shape)

    def parts(self, name: str, ptr: Ints, dtype: Any) -> list[NDArray[Any]]:
        data = self.array(name, dtype)
        _check_ptr(name, ptr, len(data))
        return [data[a:b] for a, b in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True)]

    def place(self, value: list[Any]) -> Location:
        file, line, col, name, index, output = value
        return Location(str(file), int(line), int(col), str(name), int(index), str(output))

    def executable(self) -> Executable:
        m = self.m
        target = target_from_json(m["target"])
        codelets = self.codelets = [self.codelet(k) for k in range(_count(m["codelets"]))]
        switch_ptr = self.array("switch_ptr", np.int64)
        switches = [s.reshape(-1, 2) for s in self.parts("switches", switch_ptr, np.int64)]
        streams = [
            Stream(str(h), _int(r), bool(o), bool(b)) for h, r, o, b in _rows(m["streams"], 4)
        ]
        return Executable(
            target=target,
            codelets=codelets,
            tables=self.tables(),
            code=self.array("code", np.int64, 2),
            switches=switches,
            entries={str(k): _int(v) for k, v in m["entries"].items()},
            programs=[str(p) for p in m["programs"]],
            counters=_int(m["counters"]),
            depth=_int(m["depth"]),
            regions=[
                Region(str(n), str(k), DTYPES[d], _int(c), _int(o))
                for n, k, d, c, o in _rows(m["regions"], 5)
            ],
            streams={s.handle: s for s in streams},
            stream_ids=[str(s) for s in m["stream_ids"]],
            host_calls=[self.host_call(c) for c in _rows(m["host_calls"], 5)],
            messages=[
                Message(str(t), self.place(p), _int(r)) for t, p, r in _rows(m["messages"], 3)
            ],
            initial=self.initial(),
            steps=self.steps(target.num_ipus),
            memory=self.memory(),
            items=self.items(),
            host_writes={str(k): _int(v) for k, v in m["host_writes"].items()},
            host_reads={str(k): _int(v) for k, v in m["host_reads"].items()},
            remote_buffers={str(k): _int(v) for k, v in m["remote_buffers"].items()},
            arena_bytes=_int(m["arena_bytes"]),
            wide=bool(m["wide"]),
            metadata=dict(m["metadata"]),
            remote_rows={str(k): _count(v) for k, v in m["remote_rows"].items()},
        )

    def codelet(self, number: int) -> Codelet:
        known = self.m["builtins"][number] if self.trusted else None
        if known is not None:
            with suppress(UnknownName):  # codelets of expressions have no source to look up
                found = builtin_codelet(known[0])
                if found.digest == known[1]:
                    return found
        text = self.entry(f"codelets/{number}.txt", MAX_MANIFEST).decode()
        ir = parse_codelet(text, f"{self.loc.file}/codelets/{number}.txt")
        return Codelet(ir, builtin=known is not None)

    def claimed(self) -> set[int]:
        """Codelets that the file calls built-in but that are not taken from the package."""
        built_in = [known is not None for known in self.m["builtins"]]
        return {k for k, c in enumerate(self.codelets) if built_in[k] and not c.builtin}

    def host_call(self, row: list[Any]) -> HostCall:
        kind, name, ins, outs, detail = row
        if kind == "print":
            shape, options = detail
            fmt = PrintTensorFmt(**options) if options else None
            detail = tuple(_int(d) for d in shape), fmt
        if kind == "replicas":
            detail = {_int(pair[0]): _int(pair[1]) for pair in _rows(row[4], 2)}
        return HostCall(
            str(kind), str(name), [_int(i) for i in ins], [_int(i) for i in outs], detail
        )

    def initial(self) -> list[Initial]:
        names = [str(n) for n in self.m["initial"]]
        data = self.parts("initial_data", self.array("initial_data_ptr", np.int64), np.uint8)
        ptr = self.array("initial_ptr", np.int64)
        at = self.parts("initial_at", ptr, np.int64)
        nbytes = self.parts("initial_bytes", ptr, np.int64)
        return [Initial(*row) for row in zip(names, data, at, nbytes, strict=True)]

    def steps(self, ipus: int) -> list[StepInfo]:
        compute, exchange = (
            self.array("ipu_compute", np.int64, 2),
            self.array("ipu_exchange", np.int64, 2),
        )
        out: list[StepInfo] = []
        for k, row in enumerate(_rows(self.m["steps"], len(_STEP) + 1)):
            values = dict(zip(_STEP, row[:-1], strict=True))
            name, kind = str(values.pop("name")), str(values.pop("kind"))
            fractions = {key: float(values.pop(key)) for key in _FRACTIONS}
            numbers = {key: _int(v, negative=True) for key, v in values.items()}
            s = StepInfo(name, kind, self.place(row[-1]), **fractions, **numbers)  # type: ignore[arg-type]
            if len(compute[k]) != ipus or len(exchange[k]) != ipus:
                raise ValueError("figures of another number of IPUs")
            s.ipu_compute, s.ipu_exchange = compute[k], exchange[k]
            out.append(s)
        return out

    def memory(self) -> MemoryPlan:
        arrays = {name: self.array(f"memory_{name}", np.int64) for name in _PLAN}
        return MemoryPlan(end=_int(self.m["memory_end"]), **arrays)

    def items(self) -> Items:
        steps = _count(int(self.array("item_steps", np.int64)[0]))
        packed = self.array("item_live", np.uint8, 2)
        if packed.shape[1] != (steps + 7) // 8:
            raise ValueError("liveness of another number of steps")
        live = np.unpackbits(packed, axis=1, count=steps).astype(np.bool_)
        rows = _rows(self.m["items"], 2)
        return Items(
            self.array("item", np.int64),
            self.array("item_tile", np.int64),
            self.array("item_bytes", np.int64),
            live,
            self.array("item_always", np.bool_),
            [str(n) for n, _ in rows],
            [self.place(p) for _, p in rows],
        )

    def tables(self) -> list[Table]:
        head = json.loads(self.array("tables_json", np.uint8).tobytes())
        word = np.uint64 if self.m["wide"] else np.uint32
        words = self.parts("words", self.array("words_ptr", np.int64), word)
        rows = self.parts("rows", self.array("rows_ptr", np.int64), np.int64)
        ptr = offsets_of(np.array([len(r) - 1 for r in rows], I8))
        split, rank = self.parts("split", ptr, np.int32), self.parts("rank", ptr, np.int32)
        cost = self.parts("cost", ptr, np.int64)
        patch = self.array("patch_ptr", np.int64)
        patch_at, patch_to = (self.parts(n, patch, np.int64) for n in ("patch_at", "patch_to"))
        tiles = self.parts("tiles", self.array("tiles_ptr", np.int64), np.int32)
        of = self.parts("loc_of", self.array("loc_of_ptr", np.int64), np.int32)
        out: list[Table] = []
        for k, kernel in enumerate(head["kernels"]):
            out.append(
                Table(
                    str(kernel),
                    words[k],
                    rows[k],
                    Order(split[k], rank[k]),
                    cost[k],
                    patch_at[k],
                    patch_to[k],
                    tiles[k] if len(tiles[k]) else None,
                    str(head["groups"][k]),
                    [self.place(p) for p in head["locs"][k]],
                    of[k] if len(of[k]) else None,
                )
            )
        return out


def _header(name: str, f: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of an array; its text is Python, which fails in many ways."""
    try:
        version = np.lib.format.read_magic(f)
        if version != (1, 0):
            raise ValueError(f"format {version}")
        return np.lib.format.read_array_header_1_0(f)
    except Exception as error:
        raise ValueError(f"the header of array {name} is damaged: {reason_of(error)}") from error


def _rows(rows: Any, width: int) -> list[list[Any]]:
    if not isinstance(rows, list) or any(not isinstance(r, list) or len(r) != width for r in rows):  # type: ignore[redundant-expr]
        raise ValueError("a list of the manifest has rows of another width")
    return rows  # type: ignore[return-value]


def _int(value: Any, *, negative: bool = False) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 62:
        raise ValueError(f"{value!r} is no number that fits here")
    if value < -1 and not negative:
        raise ValueError(f"{value!r} is negative")
    return value


def _count(value: Any) -> int:
    n = _int(value)
    if not 0 <= n <= 1 << 24:
        raise ValueError(f"{n} is out of range")
    return n


def _check_ptr(name: str, ptr: Ints, size: int) -> None:
    if len(ptr) == 0 or ptr[0] != 0 or ptr[-1] != size or (np.diff(ptr) < 0).any():
        raise ValueError(f"pointers of {name} do not fit its {size} entries")
