"""Bytes of exchange phases: what every tile receives, sends and copies within itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poplar_py.passes.tile_module import Places
from poplar_py.poplar.arrays import I8, SPAN, Bools, Ints, first_of_each, ragged, sort_order


@dataclass
class Traffic:
    """Bytes a tile receives, sends, and copies within itself; int64[tiles]. ``fragments``: pieces
    it sends or receives (the larger). ``between`` int64[ipus, ipus]: bytes from IPU to IPU, each
    word once per receiving IPU."""

    received: Ints
    sent: Ints
    local: Ints
    fragments: Ints
    between: Ints

    @property
    def bound(self) -> int:
        """Bytes through the busiest tile port."""
        if len(self.received) == 0:
            return 0
        return int(max(self.received.max(), self.sent.max()))


@dataclass
class Pieces:
    """P moves between tile shares and items: item, byte offset in the item, share, byte offset in
    the share, bytes (all int64[P])."""

    item: Ints
    at: Ints
    share: Ints
    place: Ints
    nbytes: Ints

    @staticmethod
    def none() -> Pieces:
        """No piece."""
        return Pieces(*(np.zeros(0, I8) for _ in range(5)))


@dataclass
class ContentItems:
    """U items: tile and content; C contents with their records in CSR."""

    tile: Ints
    content: Ints
    eptr: Ints
    records: tuple[Ints, Ints, Ints, Ints]


@dataclass
class ContentPieces:
    """Pieces of contents, ascending by content: byte offset in it, share, place, bytes, address."""

    content: Ints
    at: Ints
    share: Ints
    place: Ints
    nbytes: Ints
    start: Ints
    ptr: Ints


def content_bytes(pieces: ContentPieces, contents: int) -> Ints:
    return np.bincount(pieces.content, pieces.nbytes, contents).astype(I8)


def _traffic(num_tiles: int, ipus: int) -> Traffic:
    z = [np.zeros(num_tiles, I8) for _ in range(4)]
    return Traffic(z[0], z[1], z[2], z[3], np.zeros((ipus, ipus), I8))


def add_traffic(a: Traffic, b: Traffic) -> None:
    a.received = a.received + b.received
    a.sent = a.sent + b.sent
    a.local = a.local + b.local
    a.fragments = a.fragments + b.fragments
    a.between = a.between + b.between


def read_traffic(
    places: Places, items: ContentItems, pieces: ContentPieces, tiles_per_ipu: int
) -> Traffic:
    """Each receiver takes its contents whole, less what is its own; senders send a word once."""
    t = places.num_tiles
    out = _traffic(t, -(-t // tiles_per_ipu))
    if len(items.tile) == 0:
        return out
    src = np.where(pieces.share >= 0, places.share_tile[pieces.share], 0)
    total = content_bytes(pieces, len(items.eptr) - 1)
    key = items.content * t + items.tile
    order = sort_order(key)
    ordered = key if order is None else key[order]
    want = pieces.content * t + src
    pos = np.minimum(np.searchsorted(ordered, want), len(ordered) - 1)
    mine = ordered[pos] == want
    out.local = np.bincount(src[mine], pieces.nbytes[mine], t).astype(I8)
    count = np.diff(pieces.ptr)
    out.received = np.bincount(items.tile, total[items.content], t).astype(I8) - out.local
    fragments_in = np.bincount(items.tile, count[items.content], t).astype(I8)
    receivers = np.bincount(items.content, minlength=len(count))[pieces.content] - mine
    sent = receivers > 0
    nbytes, fragments_out = _union_bytes(pieces, sent, src, t)
    out.sent = nbytes
    out.fragments = np.maximum(fragments_in, fragments_out)
    if len(out.between) > 1:
        _link_bytes(out, items, pieces, src, tiles_per_ipu)
    return out


def _union_bytes(pieces: ContentPieces, keep: Bools, src: Ints, tiles: int) -> tuple[Ints, Ints]:
    """Bytes and pieces per source tile, what several contents share counted once."""
    if not keep.any():
        return np.zeros(tiles, I8), np.zeros(tiles, I8)
    n, t = pieces.nbytes[keep], src[keep]
    start = pieces.share[keep] * SPAN + pieces.place[keep]
    order = np.lexsort((-n, start))
    s, n, t = start[order], n[order], t[order]
    end = s + n
    reach = np.maximum.accumulate(end)
    before = np.append(s[:1], reach[:-1])
    fresh = np.maximum(end - np.maximum(s, before), 0)
    return (
        np.bincount(t, fresh, tiles).astype(I8),
        np.bincount(t, fresh > 0, tiles).astype(I8),
    )


def _link_bytes(
    out: Traffic, items: ContentItems, pieces: ContentPieces, src: Ints, per_ipu: int
) -> None:
    """Words that leave an IPU, once per receiving IPU."""
    ipus = len(out.between)
    pair, _ = _group_first(items.content * ipus + items.tile // per_ipu)
    content, ipu = pair // ipus, pair % ipus
    count = np.diff(pieces.ptr)[content]
    i, k = ragged(count)
    p = pieces.ptr[:-1][content][i] + k
    key = (src[p] // per_ipu) * ipus + ipu[i]
    total = np.bincount(key, pieces.nbytes[p], ipus * ipus).astype(I8).reshape(ipus, ipus)
    np.fill_diagonal(total, 0)
    out.between = out.between + total


def _group_first(key: Ints) -> tuple[Ints, Ints]:
    ordered = np.sort(key)
    first = first_of_each(ordered)
    return ordered[first], first


def write_traffic(
    places: Places, item_tile: Ints, pieces: Pieces, tiles_per_ipu: int, *, reverse: bool = False
) -> Traffic:
    """Written words go from the vertex's tile to their owner (``reverse``: the other way)."""
    t = places.num_tiles
    out = _traffic(t, -(-t // tiles_per_ipu))
    if len(pieces.item) == 0:
        return out
    here = item_tile[pieces.item]
    owner = np.where(pieces.share >= 0, places.share_tile[pieces.share], 0)
    src, dst = (owner, here) if reverse else (here, owner)
    _count_moves(out, src, dst, pieces.nbytes, tiles_per_ipu)
    return out


def _count_moves(out: Traffic, src: Ints, dst: Ints, nbytes: Ints, tiles_per_ipu: int) -> None:
    """Add moves without multicast."""
    t, ipus = len(out.received), len(out.between)
    far = src != dst
    out.local = np.bincount(src[~far], nbytes[~far], t).astype(I8)
    s, d, n = src[far], dst[far], nbytes[far]
    out.received = np.bincount(d, n, t).astype(I8)
    out.sent = np.bincount(s, n, t).astype(I8)
    out.fragments = np.maximum(np.bincount(d, minlength=t), np.bincount(s, minlength=t)).astype(I8)
    if ipus > 1:
        key = (s // tiles_per_ipu) * ipus + d // tiles_per_ipu
        total = np.bincount(key, n, ipus * ipus).astype(I8).reshape(ipus, ipus)
        np.fill_diagonal(total, 0)
        out.between = out.between + total


def copy_traffic(
    places: Places, src: tuple[Ints, Ints], dst: tuple[Ints, Ints], tiles_per_ipu: int
) -> tuple[Traffic, tuple[Ints, Ints, Ints, Ints]]:
    """Traffic of a copy between two run lists of equal elements, and its moves between tiles
    (source tile, target tile, source address, bytes); a word copied to several tiles is sent
    once."""
    t = places.num_tiles
    out = _traffic(t, -(-t // tiles_per_ipu))
    s_start, d_start, n = match_runs(src, dst)
    run, siv, s, length = places.atlas.split(s_start, n)
    d = d_start if run is None else d_start[run] + (s - s_start[run])
    run2, div, d2, n2 = places.atlas.split(d, length)
    s2, siv2 = (s, siv) if run2 is None else (s[run2] + (d2 - d[run2]), siv[run2])
    source, target = places.atlas.tile[siv2].astype(I8), places.atlas.tile[div].astype(I8)
    nbytes = n2 * places.width[div]
    _count_moves(out, source, target, nbytes, tiles_per_ipu)
    far = source != target
    if far.any():
        order = np.lexsort((-n2[far], s2[far]))
        begin, size = s2[far][order], n2[far][order]
        end = begin + size
        reach = np.maximum.accumulate(end)
        before = np.append(begin[:1], reach[:-1])
        fresh = np.maximum(end - np.maximum(begin, before), 0) * (nbytes[far] // n2[far])[order]
        out.sent = np.bincount(source[far][order], fresh, t).astype(I8)
    return out, (source[far], target[far], s2[far], nbytes[far])


def match_runs(a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> tuple[Ints, Ints, Ints]:
    """Two run lists of equal total as runs (start in a, start in b, length)."""
    (sa, na), (sb, nb) = a, b
    if len(sa) == len(sb) and np.array_equal(na, nb):
        return sa, sb, na
    ea, eb = np.cumsum(na), np.cumsum(nb)
    cuts = np.sort(np.concatenate([ea, eb]))
    cuts = cuts[first_of_each(cuts)]
    cuts = cuts[cuts > 0]
    begin = np.append(np.zeros(1, I8), cuts[:-1])[: len(cuts)]
    i, j = np.searchsorted(ea, begin, "right"), np.searchsorted(eb, begin, "right")
    return sa[i] + begin - (ea - na)[i], sb[j] + begin - (eb - nb)[j], cuts - begin
