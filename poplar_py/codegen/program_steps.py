"""LLVM text of the driver: the interpreter of step code (see program.Op).

``$NAME@`` stands for the byte offset of a word of the pool block (see program.Pool).
"""

from __future__ import annotations

INTERPRETER = """
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

; mode 1: next chunk of a ring buffer; mode 2: the host function. True = stop.
define internal i1 @pp_stream(ptr %pool, ptr %base, i64 %id, i64 %out, i64 %replica) {
entry:
  %p0 = getelementptr i8, ptr %pool, i64 $STREAMS@
  %all = load ptr, ptr %p0
  %p1 = getelementptr i8, ptr %pool, i64 $STREAM_BLOCK@
  %block = load i64, ptr %p1
  %o = mul i64 %block, %replica
  %o1 = mul i64 %id, 64
  %o2 = add i64 %o, %o1
  %d = getelementptr i8, ptr %all, i64 %o2
  %mode = load i64, ptr %d
  switch i64 %mode, label %nothing [ i64 1, label %ring  i64 2, label %host ]
ring:
  %pp = getelementptr i8, ptr %d, i64 8
  %user = load ptr, ptr %pp
  %cp = getelementptr i8, ptr %d, i64 16
  %cursor = load i64, ptr %cp
  %tp = getelementptr i8, ptr %d, i64 24
  %total = load i64, ptr %tp
  %rp = getelementptr i8, ptr %d, i64 32
  %region = load i64, ptr %rp
  %kp = getelementptr i8, ptr %d, i64 40
  %chunk = load i64, ptr %kp
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
  %hp = getelementptr i8, ptr %pool, i64 $CALLBACK@
  %fn = load ptr, ptr %hp
  %kind = add i64 %out, 1
  %r = call i64 %fn(i64 %kind, i64 %id, i64 %replica)
  %bad = icmp ne i64 %r, 0
  ret i1 %bad
nothing:
  ret i1 false
}

define internal i1 @pp_remote(ptr %base, ptr %i, ptr %ctx) {
entry:
  %ap = getelementptr i8, ptr %i, i64 8
  %buffer = load i64, ptr %ap
  %bp = getelementptr i8, ptr %i, i64 16
  %row = load i64, ptr %bp
  %cp = getelementptr i8, ptr %i, i64 24
  %index = load i64, ptr %cp
  %dp = getelementptr i8, ptr %i, i64 32
  %stage = load i64, ptr %dp
  %ep = getelementptr i8, ptr %i, i64 40
  %out = load i64, ptr %ep
  %fp = getelementptr i8, ptr %i, i64 48
  %f = load i64, ptr %fp
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

; 0 = the program's end, 1 = stopped, 2 = waits for the other replicas
define internal i32 @pp_interpret(ptr %pool, ptr %state, i64 %team, i64 %rank, i64 %replica) {
entry:
  %q0 = getelementptr i8, ptr %pool, i64 $CODE@
  %code = load ptr, ptr %q0
  %start = load i64, ptr %state
  %q2 = getelementptr i8, ptr %pool, i64 $BASE@
  %base0 = load ptr, ptr %q2
  %q3 = getelementptr i8, ptr %pool, i64 $REPLICA_STRIDE@
  %rstride = load i64, ptr %q3
  %roff = mul i64 %rstride, %replica
  %base = getelementptr i8, ptr %base0, i64 %roff
  %q4 = getelementptr i8, ptr %pool, i64 $SPIN@
  %spin = load i64, ptr %q4
  %q5 = getelementptr i8, ptr %pool, i64 $CTX@
  %ctx = load ptr, ptr %q5
  %q6 = getelementptr i8, ptr %pool, i64 $TEAM_BLOCKS@
  %blocks = load ptr, ptr %q6
  %boff = mul i64 %team, $TEAM_BYTES
  %block = getelementptr i8, ptr %blocks, i64 %boff
  %consensus = getelementptr i8, ptr %block, i64 192
  %q7 = getelementptr i8, ptr %pool, i64 $TEAM_SIZE@
  %size64 = load i64, ptr %q7
  %size = trunc i64 %size64 to i32
  %counters = getelementptr i8, ptr %state, i64 64
  %q10 = getelementptr i8, ptr %pool, i64 $STACK@
  %stackoff = load i64, ptr %q10
  %stack = getelementptr i8, ptr %state, i64 %stackoff
  %q9 = getelementptr i8, ptr %state, i64 8
  %spoff = load i64, ptr %q9
  %stack0 = getelementptr i8, ptr %stack, i64 %spoff
  %q11 = getelementptr i8, ptr %pool, i64 $COUNTS@
  %counts0 = load ptr, ptr %q11
  %q12 = getelementptr i8, ptr %pool, i64 $STEPS@
  %nsteps = load i64, ptr %q12
  %q13 = getelementptr i8, ptr %pool, i64 $PROFILE@
  %profile = load ptr, ptr %q13
  %q14 = getelementptr i8, ptr %pool, i64 $CALLBACK@
  %callback = load ptr, ptr %q14
  %coff0 = mul i64 %nsteps, %replica
  %coff = mul i64 %coff0, 8
  %counts = getelementptr i8, ptr %counts0, i64 %coff
  %leader = icmp eq i64 %rank, 0
  %hasprofile = icmp ne ptr %profile, null
  %first = icmp eq i64 %replica, 0
  %timed0 = and i1 %hasprofile, %first
  %timed = and i1 %timed0, %leader
  %rankoff = mul i64 %rank, 16
  br label %fetch
fetch:
  %pc = phi i64 [ %start, %entry ], [ %next, %step ]
  %sp = phi ptr [ %stack0, %entry ], [ %spnext, %step ]
  %last = phi i64 [ -1, %entry ], [ %lastnext, %step ]
  %since = phi i64 [ 0, %entry ], [ %sincenext, %step ]
  %ioff = mul i64 %pc, 64
  %i = getelementptr i8, ptr %code, i64 %ioff
  %op = load i64, ptr %i
  %ap = getelementptr i8, ptr %i, i64 8
  %a = load i64, ptr %ap
  %bp = getelementptr i8, ptr %i, i64 16
  %b = load i64, ptr %bp
  %cp = getelementptr i8, ptr %i, i64 24
  %c = load i64, ptr %cp
  %pc1 = add i64 %pc, 1
  switch i64 %op, label %halt [
    i64 1, label %call  i64 2, label %barrier  i64 3, label %jump  i64 4, label %branch
    i64 5, label %set  i64 6, label %loop  i64 7, label %switch  i64 8, label %host
    i64 9, label %stream  i64 10, label %fail  i64 11, label %abortif  i64 12, label %vote
    i64 13, label %count  i64 14, label %sub  i64 15, label %return
    i64 16, label %remote  i64 17, label %across ]
call:
  %stop0 = load atomic i64, ptr %ctx monotonic, align 8
  %stopping = icmp ne i64 %stop0, 0
  br i1 %stopping, label %stopped, label %call1
call1:
  %dir = inttoptr i64 %b to ptr
  %slot = getelementptr i8, ptr %dir, i64 %rankoff
  %table = load ptr, ptr %slot
  %np = getelementptr i8, ptr %slot, i64 8
  %n = load i64, ptr %np
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %call2, label %step0
call2:
  %fn = inttoptr i64 %a to ptr
  %res = call i32 %fn(ptr %base, ptr %table, i64 %n, ptr %ctx)
  %voting = icmp ne i64 %c, 0
  br i1 %voting, label %voted, label %step0
voted:
  %v0 = atomicrmw and ptr %consensus, i32 %res seq_cst, align 4
  br label %step0
barrier:
  %bs = call i1 @pp_barrier(ptr %block, i32 %size, i64 %spin, ptr %ctx)
  br i1 %bs, label %stopped, label %step0
jump:
  br label %step
branch:
  %bv = call i64 @pp_scalar(ptr %base, i64 %a, i64 %b)
  %bz = icmp eq i64 %bv, 0
  %bt = select i1 %bz, i64 %c, i64 %pc1
  br label %step
set:
  %sc = getelementptr i64, ptr %counters, i64 %a
  store i64 %b, ptr %sc
  br label %step0
loop:
  %lstop = load atomic i64, ptr %ctx monotonic, align 8
  %lstopping = icmp ne i64 %lstop, 0
  br i1 %lstopping, label %stopped, label %loop1
loop1:
  %lc = getelementptr i64, ptr %counters, i64 %a
  %l0 = load i64, ptr %lc
  %l1 = sub i64 %l0, 1
  store i64 %l1, ptr %lc
  %lmore = icmp sgt i64 %l1, 0
  %lt = select i1 %lmore, i64 %b, i64 %pc1
  br label %step
switch:
  %sv = call i64 @pp_scalar(ptr %base, i64 %a, i64 %b)
  %dp = getelementptr i8, ptr %i, i64 32
  %cases = load ptr, ptr %dp
  %ep = getelementptr i8, ptr %i, i64 40
  %default = load i64, ptr %ep
  br label %case
case:
  %ck = phi i64 [ 0, %switch ], [ %ck1, %nocase ]
  %cmore = icmp slt i64 %ck, %c
  br i1 %cmore, label %trycase, label %nomore
trycase:
  %ckoff = mul i64 %ck, 16
  %cslot = getelementptr i8, ptr %cases, i64 %ckoff
  %cval = load i64, ptr %cslot
  %chit = icmp eq i64 %cval, %sv
  br i1 %chit, label %hit, label %nocase
nocase:
  %ck1 = add i64 %ck, 1
  br label %case
hit:
  %ctp = getelementptr i8, ptr %cslot, i64 8
  %ct = load i64, ptr %ctp
  br label %step
nomore:
  br label %step
host:
  br i1 %leader, label %host1, label %step0
host1:
  %hr = call i64 %callback(i64 %a, i64 %b, i64 %replica)
  %hbad = icmp ne i64 %hr, 0
  br i1 %hbad, label %hostfail, label %step0
hostfail:
  call void @pp_fail(ptr %ctx, i64 101, i64 %b)
  br label %stopped
stream:
  br i1 %leader, label %stream1, label %step0
stream1:
  %ss = call i1 @pp_stream(ptr %pool, ptr %base, i64 %a, i64 %b, i64 %replica)
  br i1 %ss, label %hostfail, label %step0
across:
  store i64 %pc1, ptr %state
  %xs = ptrtoint ptr %sp to i64
  %x0 = ptrtoint ptr %stack to i64
  %xd = sub i64 %xs, %x0
  store i64 %xd, ptr %q9
  %xb = call i1 @pp_barrier(ptr %block, i32 %size, i64 %spin, ptr %ctx)
  br i1 %xb, label %stopped, label %across1
across1:
  br i1 %leader, label %across2, label %away
across2:
  %xy = getelementptr i8, ptr %pool, i64 $YIELDS@
  %xm = getelementptr i8, ptr %pool, i64 $MEETING@
  store i64 %a, ptr %xm
  %xo = atomicrmw add ptr %xy, i32 1 seq_cst, align 4
  br label %away
away:
  ret i32 2
remote:
  br i1 %leader, label %remote1, label %step0
remote1:
  %rbad = call i1 @pp_remote(ptr %base, ptr %i, ptr %ctx)
  br i1 %rbad, label %stopped, label %step0
fail:
  call void @pp_fail(ptr %ctx, i64 100, i64 %a)
  br label %stopped
abortif:
  %av = call i64 @pp_scalar(ptr %base, i64 %a, i64 %b)
  %abad = icmp ne i64 %av, 0
  br i1 %abad, label %abort, label %step0
abort:
  call void @pp_fail(ptr %ctx, i64 100, i64 %c)
  br label %stopped
vote:
  br i1 %leader, label %vote1, label %step0
vote1:
  %vreset = icmp slt i64 %a, 0
  br i1 %vreset, label %votereset, label %votestore
votereset:
  store atomic i32 1, ptr %consensus seq_cst, align 4
  br label %step0
votestore:
  %vv = load atomic i32, ptr %consensus seq_cst, align 4
  %vnz = icmp ne i32 %vv, 0
  %vb = zext i1 %vnz to i8
  %vp = getelementptr i8, ptr %base, i64 %a
  store i8 %vb, ptr %vp
  br label %step0
count:
  br i1 %leader, label %count1, label %step0
count1:
  %ca = getelementptr i64, ptr %counts, i64 %a
  %c0 = load i64, ptr %ca
  %c1 = add i64 %c0, 1
  store i64 %c1, ptr %ca
  br i1 %timed, label %clock, label %step0
clock:
  %now = $CLOCK
  %havelast = icmp sge i64 %last, 0
  br i1 %havelast, label %charge, label %clocked
charge:
  %spent = sub i64 %now, %since
  %pa = getelementptr i64, ptr %profile, i64 %last
  %t0 = load i64, ptr %pa
  %t1 = add i64 %t0, %spent
  store i64 %t1, ptr %pa
  br label %clocked
clocked:
  br label %step
sub:
  store i64 %pc1, ptr %sp
  %spup = getelementptr i8, ptr %sp, i64 8
  br label %step
return:
  %spdown = getelementptr i8, ptr %sp, i64 -8
  %ret = load i64, ptr %spdown
  br label %step
step0:
  br label %step
step:
  %next = phi i64 [ %pc1, %step0 ], [ %a, %jump ], [ %bt, %branch ], [ %lt, %loop1 ],
      [ %ct, %hit ], [ %default, %nomore ], [ %pc1, %clocked ], [ %a, %sub ], [ %ret, %return ]
  %spnext = phi ptr [ %sp, %step0 ], [ %sp, %jump ], [ %sp, %branch ], [ %sp, %loop1 ],
      [ %sp, %hit ], [ %sp, %nomore ], [ %sp, %clocked ], [ %spup, %sub ], [ %spdown, %return ]
  %lastnext = phi i64 [ %last, %step0 ], [ %last, %jump ], [ %last, %branch ], [ %last, %loop1 ],
      [ %last, %hit ], [ %last, %nomore ], [ %a, %clocked ], [ %last, %sub ], [ %last, %return ]
  %sincenext = phi i64 [ %since, %step0 ], [ %since, %jump ], [ %since, %branch ],
      [ %since, %loop1 ], [ %since, %hit ], [ %since, %nomore ], [ %now, %clocked ],
      [ %since, %sub ], [ %since, %return ]
  br label %fetch
halt:
  %fin = and i1 %timed, true
  br i1 %fin, label %lastcharge, label %finish
lastcharge:
  %hl = icmp sge i64 %last, 0
  br i1 %hl, label %lastcharge1, label %finish
lastcharge1:
  %lnow = $CLOCK
  %lspent = sub i64 %lnow, %since
  %lpa = getelementptr i64, ptr %profile, i64 %last
  %lt0 = load i64, ptr %lpa
  %lt1 = add i64 %lt0, %lspent
  store i64 %lt1, ptr %lpa
  br label %finish
finish:
  %fs = call i1 @pp_barrier(ptr %block, i32 %size, i64 %spin, ptr %ctx)
  %fr = zext i1 %fs to i32
  ret i32 %fr
stopped:
  ret i32 1
}
"""
