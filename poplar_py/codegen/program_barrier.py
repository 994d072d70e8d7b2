"""LLVM text of the driver: the barrier of a team, and the meeting of all threads.

``pool``, ``at``, ``wake`` and ``sleep`` lines are short forms: see program_text.
"""

from __future__ import annotations

HEAD = """
$DECLARE_PAUSE
declare i64 @syscall(i64, ...)
declare i64 @llvm.readcyclecounter()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

BARRIER = """
; true when the program is being stopped
define internal i1 @pp_barrier(ptr %team, i32 %n, i64 %spin, ptr %ctx) {
entry:
  %one = icmp eq i32 %n, 1
  br i1 %one, label %alone, label %many
alone:
  %s0 = load atomic i64, ptr %ctx monotonic, align 8
  %r0 = icmp ne i64 %s0, 0
  ret i1 %r0
many:
  %phase = getelementptr i8, ptr %team, i64 64
  %sleepers = getelementptr i8, ptr %team, i64 128
  %gen = load atomic i32, ptr %phase acquire, align 4
  %old = atomicrmw add ptr %team, i32 1 acq_rel, align 4
  %last = sub i32 %n, 1
  %islast = icmp eq i32 %old, %last
  br i1 %islast, label %open, label %spinning
open:
  store atomic i32 0, ptr %team monotonic, align 4
  %next = add i32 %gen, 1
  %x = atomicrmw xchg ptr %phase, i32 %next seq_cst, align 4
  %sl = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp ne i32 %sl, 0
  br i1 %any, label %wake, label %passed
wake:
  %w = wake %phase all
  br label %passed
spinning:
  %k = phi i64 [ 0, %many ], [ %k1, %relax ]
  %g = load atomic i32, ptr %phase acquire, align 4
  %go = icmp ne i32 %g, %gen
  br i1 %go, label %passed, label %look
look:
  %st = load atomic i64, ptr %ctx monotonic, align 8
  %stop = icmp ne i64 %st, 0
  br i1 %stop, label %stopped, label %relax
relax:
  $PAUSE
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %spin
  br i1 %more, label %spinning, label %sleep
sleep:
  %time = alloca [2 x i64], align 16
  store i64 0, ptr %time
  %nsp = getelementptr i8, ptr %time, i64 8
  store i64 $SLICE, ptr %nsp
  %a0 = atomicrmw add ptr %sleepers, i32 1 seq_cst, align 4
  br label %nap
nap:
  %g2 = load atomic i32, ptr %phase seq_cst, align 4
  %go2 = icmp ne i32 %g2, %gen
  br i1 %go2, label %awake, label %look2
look2:
  %st2 = load atomic i64, ptr %ctx monotonic, align 8
  %stop2 = icmp ne i64 %st2, 0
  br i1 %stop2, label %giveup, label %wait
wait:
  %gw = zext i32 %gen to i64
  %f = sleep %phase %gw for %time
  br label %nap
awake:
  %a1 = atomicrmw sub ptr %sleepers, i32 1 seq_cst, align 4
  br label %passed
giveup:
  %a2 = atomicrmw sub ptr %sleepers, i32 1 seq_cst, align 4
  br label %stopped
passed:
  %st3 = load atomic i64, ptr %ctx monotonic, align 8
  %r3 = icmp ne i64 %st3, 0
  ret i1 %r3
stopped:
  ret i1 true
}
"""

MEET = """
; all threads: true when the program is over or stopped
define internal i1 @pp_meet(ptr %pool, i64 %tid) {
entry:
  %n64 = pool i64 THREADS
  %n = trunc i64 %n64 to i32
  %teams = pool i64 TEAMS
  %blocks = pool ptr TEAM_BLOCKS
  %o = mul i64 %teams, $TEAM_BYTES
  %block = getelementptr i8, ptr %blocks, i64 %o
  %spin = pool i64 SPIN
  %ctx = pool ptr CTX
  %reps64 = pool i64 REPLICAS
  %reps = trunc i64 %reps64 to i32
  %yp = getelementptr i8, ptr %pool, i64 $YIELDS@
  %s0 = call i1 @pp_barrier(ptr %block, i32 %n, i64 %spin, ptr %ctx)
  br i1 %s0, label %over, label %look
look:
  %y = load atomic i32, ptr %yp seq_cst, align 4
  %s1 = call i1 @pp_barrier(ptr %block, i32 %n, i64 %spin, ptr %ctx)
  br i1 %s1, label %over, label %judge
judge:
  %none = icmp eq i32 %y, 0
  br i1 %none, label %over, label %some
some:
  %main = icmp eq i64 %tid, 0
  br i1 %main, label %act, label %wait
act:
  store atomic i32 0, ptr %yp seq_cst, align 4
  %id = pool i64 MEETING
  %all = icmp eq i32 %y, %reps
  br i1 %all, label %move, label %apart
apart:
  call void @pp_fail(ptr %ctx, i64 103, i64 %id)
  br label %wait
move:
  %fn = pool ptr CALLBACK
  %res = call i64 %fn(i64 3, i64 %id, i64 0)
  %bad = icmp ne i64 %res, 0
  br i1 %bad, label %failed, label %wait
failed:
  call void @pp_fail(ptr %ctx, i64 101, i64 %id)
  br label %wait
wait:
  %s2 = call i1 @pp_barrier(ptr %block, i32 %n, i64 %spin, ptr %ctx)
  ret i1 %s2
over:
  ret i1 true
}
"""
