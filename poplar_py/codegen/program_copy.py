"""Copy and fill kernels, with the same calling convention as vertex kernels.

``i32 kernel(ptr base, ptr table, i64 nrows, ptr from)``; a table row is a fixed number of words
(u32, or u64 when ``wide``), all of them byte offsets, byte counts or signed strides; targets count
from ``base``, sources from the fourth parameter (a vertex kernel's ``ctx``):

    pp_copy_run      [source, target, bytes]
    pp_copy_rows     [source, target, bytes, count, source stride, target stride]
    pp_copy_N        [source, target, count, source stride, target stride]   N bytes an element
    pp_fill          [target, bytes, byte]

Strides are sign-extended, offsets and counts zero-extended.
"""

from __future__ import annotations

from dataclasses import dataclass

ELEMENT_BYTES = (1, 2, 4, 8, 16, 32, 64)
_TYPES = {
    1: "i8",
    2: "i16",
    4: "i32",
    8: "i64",
    16: "<4 x i32>",
    32: "<8 x i32>",
    64: "<16 x i32>",
}


@dataclass(frozen=True)
class CopyKernel:
    """A copy kernel: its symbol, its LLVM module text, the words of a row."""

    symbol: str
    text: str
    words: int


def copy_kernels(*, wide: bool) -> dict[str, CopyKernel]:
    """All copy kernels by short name: run, rows, fill, 1, 2, 4, 8, 16, 32, 64."""
    kernels = {
        "run": _kernel("run", 3, _RUN, wide),
        "rows": _kernel("rows", 6, _ROWS, wide),
        "fill": _kernel("fill", 3, _FILL, wide),
    }
    for size in ELEMENT_BYTES:
        body = _ELEMENTS.replace("$TYPE", _TYPES[size])
        kernels[str(size)] = _kernel(str(size), 5, body, wide)
    return kernels


_MEM = {
    "llvm.memcpy": "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    "llvm.memset": "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
}


def _kernel(name: str, words: int, body: str, wide: bool) -> CopyKernel:
    symbol = f"pp_copy_{name}" if name != "fill" else "pp_fill"
    symbol += "_wide" if wide else ""
    loads = "\n".join(
        _load_word(k, wide, signed=k >= words - 2 and words >= 5) for k in range(words)
    )
    declares = "\n".join(line for key, line in _MEM.items() if key in body)
    size = words * (8 if wide else 4)
    text = _FRAME.replace("$BODY", body).replace("$LOADS", loads).replace("$SIZE", str(size))
    return CopyKernel(symbol, f"{declares}\n{text.replace('$SYMBOL', symbol)}", words)


def _load_word(k: int, wide: bool, signed: bool) -> str:
    kind = "i64" if wide else "i32"
    size = 8 if wide else 4
    lines = [f"  %p{k} = getelementptr i8, ptr %row, i64 {k * size}"]
    if wide:
        return "\n".join([*lines, f"  %w{k} = load {kind}, ptr %p{k}, align {size}"])
    extend = "sext" if signed else "zext"
    lines.append(f"  %n{k} = load {kind}, ptr %p{k}, align {size}")
    return "\n".join([*lines, f"  %w{k} = {extend} i32 %n{k} to i64"])


_FRAME = """
define i32 @$SYMBOL(ptr %base, ptr %table, i64 %rows, ptr %from) {
entry:
  %none = icmp sle i64 %rows, 0
  br i1 %none, label %end, label %top
top:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %row = phi ptr [ %table, %entry ], [ %row1, %next ]
$LOADS
$BODY
next:
  %i1 = add i64 %i, 1
  %row1 = getelementptr i8, ptr %row, i64 $SIZE
  %more = icmp slt i64 %i1, %rows
  br i1 %more, label %top, label %end
end:
  ret i32 1
}
"""

_RUN = """
  %src = getelementptr i8, ptr %from, i64 %w0
  %dst = getelementptr i8, ptr %base, i64 %w1
  call void @llvm.memcpy.p0.p0.i64(ptr %dst, ptr %src, i64 %w2, i1 false)
  br label %next
"""

_FILL = """
  %dst = getelementptr i8, ptr %base, i64 %w0
  %byte = trunc i64 %w2 to i8
  call void @llvm.memset.p0.i64(ptr %dst, i8 %byte, i64 %w1, i1 false)
  br label %next
"""

_ROWS = """
  %src0 = getelementptr i8, ptr %from, i64 %w0
  %dst0 = getelementptr i8, ptr %base, i64 %w1
  br label %inner
inner:
  %k = phi i64 [ 0, %top ], [ %k1, %inner ]
  %src = phi ptr [ %src0, %top ], [ %src1, %inner ]
  %dst = phi ptr [ %dst0, %top ], [ %dst1, %inner ]
  call void @llvm.memcpy.p0.p0.i64(ptr %dst, ptr %src, i64 %w2, i1 false)
  %src1 = getelementptr i8, ptr %src, i64 %w4
  %dst1 = getelementptr i8, ptr %dst, i64 %w5
  %k1 = add i64 %k, 1
  %again = icmp slt i64 %k1, %w3
  br i1 %again, label %inner, label %next
"""

_ELEMENTS = """
  %src0 = getelementptr i8, ptr %from, i64 %w0
  %dst0 = getelementptr i8, ptr %base, i64 %w1
  %pairs = lshr i64 %w2, 1
  %sx = shl i64 %w3, 1
  %dx = shl i64 %w4, 1
  %any = icmp sgt i64 %pairs, 0
  br i1 %any, label %inner, label %rest
inner:
  %k = phi i64 [ 0, %top ], [ %k1, %inner ]
  %src = phi ptr [ %src0, %top ], [ %src1, %inner ]
  %dst = phi ptr [ %dst0, %top ], [ %dst1, %inner ]
  %srcb = getelementptr i8, ptr %src, i64 %w3
  %dstb = getelementptr i8, ptr %dst, i64 %w4
  %va = load $TYPE, ptr %src, align 1
  %vb = load $TYPE, ptr %srcb, align 1
  store $TYPE %va, ptr %dst, align 1
  store $TYPE %vb, ptr %dstb, align 1
  %src1 = getelementptr i8, ptr %src, i64 %sx
  %dst1 = getelementptr i8, ptr %dst, i64 %dx
  %k1 = add i64 %k, 1
  %again = icmp slt i64 %k1, %pairs
  br i1 %again, label %inner, label %rest
rest:
  %srce = phi ptr [ %src0, %top ], [ %src1, %inner ]
  %dste = phi ptr [ %dst0, %top ], [ %dst1, %inner ]
  %odd = and i64 %w2, 1
  %isodd = icmp ne i64 %odd, 0
  br i1 %isodd, label %one, label %next
one:
  %ve = load $TYPE, ptr %srce, align 1
  store $TYPE %ve, ptr %dste, align 1
  br label %next
"""
