"""LLVM text of the driver: the share of a thread, worker threads, launching.

``pool``, ``at``, ``wake`` and ``sleep`` lines are short forms: see program_text.
"""

from __future__ import annotations

RUN = """
; the share of thread %tid: its team's replicas, one after the other; where replicas meet, all of
; them come to the meeting before any goes on
define internal void @pp_run(ptr %pool, i64 %tid) {
entry:
  %size = pool i64 TEAM_SIZE
  %teams = pool i64 TEAMS
  %reps = pool i64 REPLICAS
  %states = pool ptr STATE
  %sbytes = pool i64 STATE_BYTES
  %meets = pool i64 MEETS
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
  %f = sleep %pool %gw ever
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
  %w = wake %donep one
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
  %w = wake %pool all
  br label %end
end:
  ret void
}

define internal void @pp_launch(ptr %pool) {
entry:
  %n64 = pool i64 THREADS
  %n = trunc i64 %n64 to i32
  %workers = sub i32 %n, 1
  %teams = pool i64 TEAMS
  %blocks = pool ptr TEAM_BLOCKS
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
  %state0 = pool ptr STATE
  %sbytes = pool i64 STATE_BYTES
  %reps = pool i64 REPLICAS
  %tsize = pool i64 TEAM_SIZE
  %pc = pool i64 ENTRY
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
  %spin = pool i64 SPIN
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
  %f = sleep %donep %dw ever
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
