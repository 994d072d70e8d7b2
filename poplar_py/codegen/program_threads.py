"""LLVM text of the driver: barriers, worker threads, replicas that meet, launching.

``$NAME@`` stands for the byte offset of a word of the pool block (see program.Pool).
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
  %w = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %phase, i64 129, i64 2147483647, i64 0,
      i64 0, i64 0)
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
  %f = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %phase, i64 128, i64 %gw, ptr %time, i64 0,
      i64 0)
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

RUN = """
; the share of thread %tid: its team's replicas, one after the other; where replicas meet, all of
; them come to the meeting before any goes on
define internal void @pp_run(ptr %pool, i64 %tid) {
entry:
  %p0 = getelementptr i8, ptr %pool, i64 $TEAM_SIZE@
  %size = load i64, ptr %p0
  %p1 = getelementptr i8, ptr %pool, i64 $TEAMS@
  %teams = load i64, ptr %p1
  %p2 = getelementptr i8, ptr %pool, i64 $REPLICAS@
  %reps = load i64, ptr %p2
  %p3 = getelementptr i8, ptr %pool, i64 $STATE@
  %states = load ptr, ptr %p3
  %p4 = getelementptr i8, ptr %pool, i64 $STATE_BYTES@
  %sbytes = load i64, ptr %p4
  %p5 = getelementptr i8, ptr %pool, i64 $MEETS@
  %meets = load i64, ptr %p5
  %alone = icmp eq i64 %meets, 0
  %team = udiv i64 %tid, %size
  %rank = urem i64 %tid, %size
  br label %round
round:
  br label %loop
loop:
  %r = phi i64 [ %team, %round ], [ %r1, %again ]
  %more = icmp ult i64 %r, %reps
  br i1 %more, label %body, label %passed
body:
  %k0 = mul i64 %r, %size
  %k1 = add i64 %k0, %rank
  %so = mul i64 %k1, %sbytes
  %state = getelementptr i8, ptr %states, i64 %so
  %dp = getelementptr i8, ptr %state, i64 16
  %done = load i64, ptr %dp
  %isdone = icmp ne i64 %done, 0
  br i1 %isdone, label %again, label %go
go:
  %how = call i32 @pp_interpret(ptr %pool, ptr %state, i64 %team, i64 %rank, i64 %r)
  switch i32 %how, label %finished [ i32 1, label %end  i32 2, label %again ]
finished:
  store i64 1, ptr %dp
  br label %again
again:
  %r1 = add i64 %r, %teams
  br label %loop
passed:
  br i1 %alone, label %end, label %meet
meet:
  %stop = call i1 @pp_meet(ptr %pool, i64 %tid)
  br i1 %stop, label %end, label %round
end:
  ret void
}

; all threads: true when the program is over or stopped
define internal i1 @pp_meet(ptr %pool, i64 %tid) {
entry:
  %p0 = getelementptr i8, ptr %pool, i64 $THREADS@
  %n64 = load i64, ptr %p0
  %n = trunc i64 %n64 to i32
  %p1 = getelementptr i8, ptr %pool, i64 $TEAMS@
  %teams = load i64, ptr %p1
  %p2 = getelementptr i8, ptr %pool, i64 $TEAM_BLOCKS@
  %blocks = load ptr, ptr %p2
  %o = mul i64 %teams, $TEAM_BYTES
  %block = getelementptr i8, ptr %blocks, i64 %o
  %p3 = getelementptr i8, ptr %pool, i64 $SPIN@
  %spin = load i64, ptr %p3
  %p4 = getelementptr i8, ptr %pool, i64 $CTX@
  %ctx = load ptr, ptr %p4
  %p5 = getelementptr i8, ptr %pool, i64 $REPLICAS@
  %reps64 = load i64, ptr %p5
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
  %mp = getelementptr i8, ptr %pool, i64 $MEETING@
  %id = load i64, ptr %mp
  %all = icmp eq i32 %y, %reps
  br i1 %all, label %move, label %apart
apart:
  call void @pp_fail(ptr %ctx, i64 103, i64 %id)
  br label %wait
move:
  %cp = getelementptr i8, ptr %pool, i64 $CALLBACK@
  %fn = load ptr, ptr %cp
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

WORKER = """
define internal void @pp_worker(ptr %pool, i64 %tid) {
entry:
  %sleepers = getelementptr i8, ptr %pool, i64 $SLEEPERS@
  %idlep = getelementptr i8, ptr %pool, i64 $IDLE_SPIN@
  %quitp = getelementptr i8, ptr %pool, i64 $QUIT@
  %donep = getelementptr i8, ptr %pool, i64 $DONE@
  %mainp = getelementptr i8, ptr %pool, i64 $MAIN_SLEEPS@
  br label %top
top:
  %seen = phi i32 [ 0, %entry ], [ %now, %told ]
  %idle = load i64, ptr %idlep
  br label %spinning
spinning:
  %k = phi i64 [ 0, %top ], [ %k1, %relax ]
  %g = load atomic i32, ptr %pool acquire, align 4
  %go = icmp ne i32 %g, %seen
  br i1 %go, label %work, label %relax
relax:
  $PAUSE
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %idle
  br i1 %more, label %spinning, label %sleep
sleep:
  %a0 = atomicrmw add ptr %sleepers, i32 1 seq_cst, align 4
  br label %nap
nap:
  %g2 = load atomic i32, ptr %pool seq_cst, align 4
  %go2 = icmp ne i32 %g2, %seen
  br i1 %go2, label %awake, label %wait
wait:
  %gw = zext i32 %seen to i64
  %f = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %pool, i64 128, i64 %gw, i64 0, i64 0, i64 0)
  br label %nap
awake:
  %a1 = atomicrmw sub ptr %sleepers, i32 1 seq_cst, align 4
  br label %work
work:
  %now = load atomic i32, ptr %pool acquire, align 4
  %quit = load i64, ptr %quitp
  %leave = icmp ne i64 %quit, 0
  br i1 %leave, label %end, label %run
run:
  call void @pp_run(ptr %pool, i64 %tid)
  %d = atomicrmw add ptr %donep, i32 1 seq_cst, align 4
  %ms = load atomic i32, ptr %mainp seq_cst, align 4
  %tell = icmp ne i32 %ms, 0
  br i1 %tell, label %telling, label %told
telling:
  %w = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %donep, i64 129, i64 1, i64 0, i64 0, i64 0)
  br label %told
told:
  br label %top
end:
  ret void
}
"""

DRIVER = """
define internal void @pp_signal(ptr %pool) {
entry:
  %o = atomicrmw add ptr %pool, i32 1 seq_cst, align 4
  %sp = getelementptr i8, ptr %pool, i64 $SLEEPERS@
  %s = load atomic i32, ptr %sp seq_cst, align 4
  %any = icmp ne i32 %s, 0
  br i1 %any, label %wake, label %end
wake:
  %w = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %pool, i64 129, i64 2147483647, i64 0,
      i64 0, i64 0)
  br label %end
end:
  ret void
}

define internal void @pp_launch(ptr %pool) {
entry:
  %p0 = getelementptr i8, ptr %pool, i64 $THREADS@
  %n64 = load i64, ptr %p0
  %n = trunc i64 %n64 to i32
  %workers = sub i32 %n, 1
  %p1 = getelementptr i8, ptr %pool, i64 $TEAMS@
  %teams = load i64, ptr %p1
  %p2 = getelementptr i8, ptr %pool, i64 $TEAM_BLOCKS@
  %blocks = load ptr, ptr %p2
  br label %clear
clear:
  %k = phi i64 [ 0, %entry ], [ %k1, %clear ]
  %o = mul i64 %k, $TEAM_BYTES
  %b = getelementptr i8, ptr %blocks, i64 %o
  store atomic i32 0, ptr %b seq_cst, align 4
  %bs = getelementptr i8, ptr %b, i64 128
  store atomic i32 0, ptr %bs seq_cst, align 4
  %k1 = add i64 %k, 1
  %more = icmp ule i64 %k1, %teams
  br i1 %more, label %clear, label %states
states:
  %t0 = getelementptr i8, ptr %pool, i64 $STATE@
  %state0 = load ptr, ptr %t0
  %t1 = getelementptr i8, ptr %pool, i64 $STATE_BYTES@
  %sbytes = load i64, ptr %t1
  %t2 = getelementptr i8, ptr %pool, i64 $REPLICAS@
  %reps = load i64, ptr %t2
  %t3 = getelementptr i8, ptr %pool, i64 $TEAM_SIZE@
  %tsize = load i64, ptr %t3
  %t4 = getelementptr i8, ptr %pool, i64 $ENTRY@
  %pc = load i64, ptr %t4
  %t5 = getelementptr i8, ptr %pool, i64 $YIELDS@
  store atomic i32 0, ptr %t5 seq_cst, align 4
  %count = mul i64 %reps, %tsize
  br label %fresh
fresh:
  %m = phi i64 [ 0, %states ], [ %m1, %fresh ]
  %mo = mul i64 %m, %sbytes
  %state = getelementptr i8, ptr %state0, i64 %mo
  store i64 %pc, ptr %state
  %sp1 = getelementptr i8, ptr %state, i64 8
  store i64 0, ptr %sp1
  %sp2 = getelementptr i8, ptr %state, i64 16
  store i64 0, ptr %sp2
  %m1 = add i64 %m, 1
  %mm = icmp ult i64 %m1, %count
  br i1 %mm, label %fresh, label %start
start:
  %alone = icmp sle i32 %workers, 0
  br i1 %alone, label %solo, label %many
solo:
  call void @pp_run(ptr %pool, i64 0)
  ret void
many:
  %donep = getelementptr i8, ptr %pool, i64 $DONE@
  %mainp = getelementptr i8, ptr %pool, i64 $MAIN_SLEEPS@
  store atomic i32 0, ptr %donep seq_cst, align 4
  store atomic i32 0, ptr %mainp seq_cst, align 4
  call void @pp_signal(ptr %pool)
  call void @pp_run(ptr %pool, i64 0)
  %spinp = getelementptr i8, ptr %pool, i64 $SPIN@
  %spin = load i64, ptr %spinp
  br label %spinning
spinning:
  %j = phi i64 [ 0, %many ], [ %j1, %relax ]
  %d = load atomic i32, ptr %donep acquire, align 4
  %all = icmp sge i32 %d, %workers
  br i1 %all, label %end, label %relax
relax:
  $PAUSE
  %j1 = add i64 %j, 1
  %jm = icmp slt i64 %j1, %spin
  br i1 %jm, label %spinning, label %sleep
sleep:
  store atomic i32 1, ptr %mainp seq_cst, align 4
  br label %nap
nap:
  %d2 = load atomic i32, ptr %donep seq_cst, align 4
  %all2 = icmp sge i32 %d2, %workers
  br i1 %all2, label %end, label %wait
wait:
  %dw = zext i32 %d2 to i64
  %f = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %donep, i64 128, i64 %dw, i64 0, i64 0, i64 0)
  br label %nap
end:
  ret void
}

define i64 @pp_driver(ptr %pool, i64 %mode) {
entry:
  switch i64 %mode, label %worker
    [ i64 0, label %launch  i64 -1, label %quit  i64 -2, label %pauses ]
launch:
  call void @pp_launch(ptr %pool)
  ret i64 0
worker:
  call void @pp_worker(ptr %pool, i64 %mode)
  ret i64 0
quit:
  %quitp = getelementptr i8, ptr %pool, i64 $QUIT@
  store i64 1, ptr %quitp
  call void @pp_signal(ptr %pool)
  ret i64 0
pauses:
  %n = load i64, ptr %pool
  br label %loop
loop:
  %k = phi i64 [ 0, %pauses ], [ %k1, %loop ]
  $PAUSE
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %n
  br i1 %more, label %loop, label %end
end:
  ret i64 0
}
"""
