"""LLVM text of the driver: the interpreter of step code (see program_words.Op).

``pool``, ``at``, ``wake`` and ``sleep`` lines are short forms: see program_text.
"""

from __future__ import annotations

INTERPRETER = """
; 0 = the program's end, 1 = stopped, 2 = waits for the other replicas
define internal i32 @pp_interpret(ptr %pool, ptr %state, i64 %team, i64 %rank, i64 %replica) {
entry:
  %code = pool ptr CODE
  %start = load i64, ptr %state
  %base0 = pool ptr BASE
  %rstride = pool i64 REPLICA_STRIDE
  %roff = mul i64 %rstride, %replica
  %base = getelementptr i8, ptr %base0, i64 %roff
  %spin = pool i64 SPIN
  %ctx = pool ptr CTX
  %blocks = pool ptr TEAM_BLOCKS
  %boff = mul i64 %team, $TEAM_BYTES
  %block = getelementptr i8, ptr %blocks, i64 %boff
  %consensus = getelementptr i8, ptr %block, i64 192
  %size64 = pool i64 TEAM_SIZE
  %size = trunc i64 %size64 to i32
  %counters = getelementptr i8, ptr %state, i64 64
  %stackoff = pool i64 STACK
  %stack = getelementptr i8, ptr %state, i64 %stackoff
  %q9 = getelementptr i8, ptr %state, i64 8
  %spoff = load i64, ptr %q9
  %stack0 = getelementptr i8, ptr %stack, i64 %spoff
  %counts0 = pool ptr COUNTS
  %nsteps = pool i64 STEPS
  %profile = pool ptr PROFILE
  %callback = pool ptr CALLBACK
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
  %a = at i64 %i 8
  %b = at i64 %i 16
  %c = at i64 %i 24
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
  %n = at i64 %slot 8
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %call2, label %step0
call2:
  %fn = inttoptr i64 %a to ptr
  %d = at i64 %i 32
  %copying = icmp ne i64 %d, 0
  br i1 %copying, label %copy, label %call3
copy:
  %from = call ptr @pp_source(ptr %pool, ptr %base, i64 %d, i64 %replica)
  br label %call3
call3:
  %fourth = phi ptr [ %ctx, %call2 ], [ %from, %copy ]
  %res = call i32 %fn(ptr %base, ptr %table, i64 %n, ptr %fourth)
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
  %cases = at ptr %i 32
  %default = at i64 %i 40
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
  %ct = at i64 %cslot 8
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
