"""LLVM text of the driver: device scalars, errors, host streams, remote rows.

``pool``, ``at``, ``wake`` and ``sleep`` lines are short forms: see program_text.
"""

from __future__ import annotations

HOST = """
define internal i64 @pp_scalar(ptr %base, i64 %offset, i64 %width) {
entry:
  %p = getelementptr i8, ptr %base, i64 %offset
  switch i64 %width, label %w8 [ i64 1, label %w1  i64 2, label %w2  i64 4, label %w4 ]
w1:
  %v1 = load i8, ptr %p, align 1
  %x1 = sext i8 %v1 to i64
  ret i64 %x1
w2:
  %v2 = load i16, ptr %p, align 1
  %x2 = sext i16 %v2 to i64
  ret i64 %x2
w4:
  %v4 = load i32, ptr %p, align 1
  %x4 = sext i32 %v4 to i64
  ret i64 %x4
w8:
  %v8 = load i64, ptr %p, align 1
  ret i64 %v8
}

define internal void @pp_fail(ptr %ctx, i64 %code, i64 %what) {
entry:
  %e = getelementptr i8, ptr %ctx, i64 8
  %x = cmpxchg ptr %e, i64 0, i64 %code seq_cst seq_cst, align 8
  %won = extractvalue { i64, i1 } %x, 1
  br i1 %won, label %note, label %stop
note:
  %r = getelementptr i8, ptr %ctx, i64 16
  store i64 %what, ptr %r
  br label %stop
stop:
  store atomic i64 1, ptr %ctx seq_cst, align 8
  ret void
}

; what a copy counts its sources from (word d of its CALL); in mode 3 the region of a stream lies
; elsewhere
define internal ptr @pp_source(ptr %pool, ptr %base, i64 %d, i64 %replica) {
entry:
  %streams = icmp sgt i64 %d, 1
  br i1 %streams, label %look, label %here
look:
  %all = pool ptr STREAMS
  %block = pool i64 STREAM_BLOCK
  %o = mul i64 %block, %replica
  %id = sub i64 %d, 2
  %o1 = mul i64 %id, 64
  %o2 = add i64 %o, %o1
  %s = getelementptr i8, ptr %all, i64 %o2
  %mode = load i64, ptr %s
  %away = icmp eq i64 %mode, 3
  br i1 %away, label %there, label %here
there:
  %user = at ptr %s 8
  %region = at i64 %s 32
  %back = sub i64 0, %region
  %shifted = getelementptr i8, ptr %user, i64 %back
  ret ptr %shifted
here:
  ret ptr %base
}

; mode 1: next chunk of a ring buffer; mode 2: the host function. True = stop.
define internal i1 @pp_stream(ptr %pool, ptr %base, i64 %id, i64 %out, i64 %replica) {
entry:
  %all = pool ptr STREAMS
  %block = pool i64 STREAM_BLOCK
  %o = mul i64 %block, %replica
  %o1 = mul i64 %id, 64
  %o2 = add i64 %o, %o1
  %d = getelementptr i8, ptr %all, i64 %o2
  %mode = load i64, ptr %d
  switch i64 %mode, label %nothing [ i64 1, label %ring  i64 2, label %host ]
ring:
  %user = at ptr %d 8
  %cp = getelementptr i8, ptr %d, i64 16
  %cursor = load i64, ptr %cp
  %total = at i64 %d 24
  %region = at i64 %d 32
  %chunk = at i64 %d 40
  %u = getelementptr i8, ptr %user, i64 %cursor
  %m = getelementptr i8, ptr %base, i64 %region
  %isout = icmp ne i64 %out, 0
  %dst = select i1 %isout, ptr %u, ptr %m
  %src = select i1 %isout, ptr %m, ptr %u
  call void @llvm.memcpy.p0.p0.i64(ptr %dst, ptr %src, i64 %chunk, i1 false)
  %c1 = add i64 %cursor, %chunk
  %c2 = add i64 %c1, %chunk
  %wrap = icmp sgt i64 %c2, %total
  %c3 = select i1 %wrap, i64 0, i64 %c1
  store i64 %c3, ptr %cp
  ret i1 false
host:
  %fn = pool ptr CALLBACK
  %kind = add i64 %out, 1
  %r = call i64 %fn(i64 %kind, i64 %id, i64 %replica)
  %bad = icmp ne i64 %r, 0
  ret i1 %bad
nothing:
  ret i1 false
}

define internal i1 @pp_remote(ptr %base, ptr %i, ptr %ctx) {
entry:
  %buffer = at i64 %i 8
  %row = at i64 %i 16
  %index = at i64 %i 24
  %stage = at i64 %i 32
  %out = at i64 %i 40
  %f = at i64 %i 48
  %limit = lshr i64 %f, 32
  %n = and i64 %f, 4294967295
  %isout = icmp ne i64 %out, 0
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %move ]
  %more = icmp ult i64 %k, %n
  br i1 %more, label %body, label %end
body:
  %ko = mul i64 %k, 4
  %io = add i64 %index, %ko
  %ip = getelementptr i8, ptr %base, i64 %io
  %r32 = load i32, ptr %ip, align 1
  %r = zext i32 %r32 to i64
  %ok = icmp ult i64 %r, %limit
  br i1 %ok, label %move, label %bad
move:
  %ro = mul i64 %r, %row
  %rb = add i64 %buffer, %ro
  %pr = getelementptr i8, ptr %base, i64 %rb
  %so = mul i64 %k, %row
  %sb = add i64 %stage, %so
  %ps = getelementptr i8, ptr %base, i64 %sb
  %dst = select i1 %isout, ptr %pr, ptr %ps
  %src = select i1 %isout, ptr %ps, ptr %pr
  call void @llvm.memcpy.p0.p0.i64(ptr %dst, ptr %src, i64 %row, i1 false)
  %k1 = add i64 %k, 1
  br label %loop
bad:
  call void @pp_fail(ptr %ctx, i64 102, i64 %r)
  ret i1 true
end:
  ret i1 false
}
"""
