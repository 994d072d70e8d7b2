"""From an executable to the manifest and the arrays of a `.pexe` file."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poplar_py.diagnostics import Location
from poplar_py.executable.executable import Executable, HostCall
from poplar_py.executable.pexe_format import FORMAT, PLAN, STEP, Arrays
from poplar_py.executable.pexe_target import target_to_json
from poplar_py.poplar.arrays import I8, Ints, offsets_of
from poplar_py.poplar.program import PrintTensorFmt


def _place(loc: Location) -> list[Any]:
    return [loc.file, loc.line, loc.col, loc.name, loc.index, loc.output]


def make_manifest(exe: Executable, arrays: Arrays) -> dict[str, Any]:
    """The manifest; fills ``arrays`` by name."""
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
    arrays["replica_words"] = exe.replica_words
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
        "steps": [[*(getattr(s, k) for k in STEP), _place(s.loc)] for s in exe.steps],
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
    together = [none if x.together is None else x.together for x in t]
    arrays["together"], arrays["together_ptr"] = _ragged(together, np.dtype(np.int32))
    table = {
        "stands_for": [x.stands_for for x in t],
        "kernels": [x.kernel for x in t],
        "groups": [x.group for x in t],
        "locs": [[_place(p) for p in x.locs] for x in t],
    }
    arrays["tables_json"] = np.frombuffer(json.dumps(table).encode(), np.uint8)


def _write_memory(exe: Executable, arrays: Arrays) -> None:
    for name in PLAN:
        arrays[f"memory_{name}"] = getattr(exe.memory, name)
    arrays["item"] = exe.items.item
    arrays["item_tile"] = exe.items.tile
    arrays["item_bytes"] = exe.items.nbytes
    arrays["item_live"] = np.packbits(exe.items.live, axis=1)
    arrays["item_always"] = exe.items.always
    arrays["item_steps"] = np.array([exe.items.live.shape[1]], I8)
