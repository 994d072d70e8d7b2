"""From the entries of a `.pexe` file to an executable: types, counts and sizes are checked here,
addresses in `check`."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poplar_py.codelets.codelet import Codelet
from poplar_py.codelets.codelet import get as builtin_codelet
from poplar_py.codelets.codelet_text import parse_codelet
from poplar_py.diagnostics import FileError, Location, UnknownName, reason_of
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
from poplar_py.executable.pexe_format import FORMAT, FRACTIONS, MAX_MANIFEST, PLAN, STEP
from poplar_py.executable.pexe_target import target_from_json
from poplar_py.executable.tables import Order
from poplar_py.passes.memory_plan import Items, MemoryPlan
from poplar_py.poplar.arrays import I8, Ints, offsets_of
from poplar_py.poplar.program import PrintTensorFmt
from poplar_py.types import DTYPES


class Reader:
    """One open file; `executable` reads everything and checks types and counts, not addresses."""

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
            replica_words=self.array("replica_words", np.int64),
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

    def builtin(self, name: str, digest: str) -> Codelet | None:
        """The built-in codelet of a name, unless its code is another now."""
        with suppress(UnknownName):  # codelets of expressions have no source to look up
            found = builtin_codelet(name)
            return found if found.digest == digest else None
        return None

    def codelet(self, number: int) -> Codelet:
        known = self.m["builtins"][number] if self.trusted else None
        found = None if known is None else self.builtin(*known)
        if found is not None:
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
        for k, row in enumerate(_rows(self.m["steps"], len(STEP) + 1)):
            values = dict(zip(STEP, row[:-1], strict=True))
            name, kind = str(values.pop("name")), str(values.pop("kind"))
            fractions = {key: float(values.pop(key)) for key in FRACTIONS}
            numbers = {key: _int(v, negative=True) for key, v in values.items()}
            s = StepInfo(name, kind, self.place(row[-1]), **fractions, **numbers)  # type: ignore[arg-type]
            if len(compute[k]) != ipus or len(exchange[k]) != ipus:
                raise ValueError("figures of another number of IPUs")
            s.ipu_compute, s.ipu_exchange = compute[k], exchange[k]
            out.append(s)
        return out

    def memory(self) -> MemoryPlan:
        arrays = {name: self.array(f"memory_{name}", np.int64) for name in PLAN}
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
        together = self.parts("together", self.array("together_ptr", np.int64), np.int32)
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
                    together[k] if len(together[k]) else None,
                    _int(head["stands_for"][k]),
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
