"""The native program driver: an interpreter of step code that runs on N host threads (SPMD).

One exported function, ``pp_driver(pool, mode)``:

    mode 0      launch: run the program described by ``pool``; the caller is thread 0
    mode t > 0  become worker thread ``t``; returns after mode -1
    mode -1     make all workers return
    mode -2     time ``pool[0]`` pauses is left to the caller: executes that many pauses

Step code is a flat int64 array, `WORDS` words an instruction; `Op` lists them.  Every thread of a
team (the threads that share one replica) walks the code by itself; barriers are explicit.  A
barrier spins a bounded time, then sleeps on a futex, and gives up as soon as the stop flag is set,
so a stopped program leaves every thread, whatever it waited for.
"""

from __future__ import annotations

import enum
import platform

WORDS = 8
"""int64 words of one instruction."""


class Op(enum.IntEnum):
    """Instructions.  ``a, b, c ...`` are words 1, 2, 3 ...; targets are instruction numbers."""

    HALT = 0
    CALL = (
        1  # a: kernel address, b: pointer to (table, rows) per thread of the team, c: 1 = consensus
    )
    BARRIER = 2
    JUMP = 3  # a: target
    BRANCH = 4  # a: byte offset in the arena, b: width in bytes, c: target when zero
    SET = 5  # a: counter, b: value
    LOOP = 6  # a: counter, b: target while --counter > 0
    SWITCH = 7  # a: offset, b: width, c: number of cases, d: pointer to (value, target), e: default
    HOST = 8  # a: kind, b: id        rank 0 calls the host function
    STREAM = 9  # a: stream id, b: 0 host to device, 1 device to host      rank 0
    FAIL = 10  # a: message id
    ABORT_IF = 11  # a: offset, b: width, c: message id
    CONSENSUS = 12  # a: -1 = reset to true, else offset where the byte is stored      rank 0
    STEP = 13  # a: step id           rank 0 counts it (and notes the time when asked)
    SUB = 14  # a: target
    RETURN = 15
    REMOTE = 16  # a: buffer, b: bytes of a row, c: row numbers (u32), d: staging, e: 1 = to the
    #              buffer, f: rows of the buffer << 32 | rows to move      rank 0
    ACROSS = 17  # a: host call; all replicas meet, one moves the data between them


class Pool(enum.IntEnum):
    """int64 words of the pool block (the first four lines are 32-bit futex words)."""

    GENERATION = 0
    SLEEPERS = 8
    DONE = 16
    MAIN_SLEEPS = 24
    QUIT = 25
    THREADS = 32
    TEAMS = 33
    TEAM_SIZE = 34
    REPLICAS = 35
    CODE = 36
    ENTRY = 37
    BASE = 38
    REPLICA_STRIDE = 39
    SPIN = 40  # pauses in a barrier before sleeping
    IDLE_SPIN = 41  # pauses of an idle worker before sleeping
    CALLBACK = 42
    TEAM_BLOCKS = 43
    COUNTS = 44  # int64[replicas, steps]
    STEPS = 45
    STREAMS = 46  # int64[replicas, streams, 8]
    STREAM_BLOCK = 47  # bytes of one replica's streams
    CTX = 48  # the kernels' context, shared by all replicas
    STATE = 49  # per replica and thread of its team: STATE_HEAD bytes, counters, call stack
    STATE_BYTES = 50
    STACK = 51  # byte offset of the call stack in the state
    PROFILE = 52  # int64[steps] clock ticks per step of replica 0, or 0
    YIELDS = 53  # replicas that wait for the others (32-bit)
    MEETING = 54  # the host call they wait for
    MEETS = 55  # 1: the program has ACROSS


POOL_WORDS = 64
TEAM_BYTES = 256
STATE_HEAD = 64
"""Bytes before the counters: where to go on (instruction, stack), and whether the replica is
done."""
STREAM_WORDS = 8
STOP, ERROR, ERROR_ROW, ERROR_FIELD, ERROR_INDEX, ERROR_SIZE = range(6)
"""Words of the kernels' context."""
MEMORY_BYTES, ERROR_LINE = 6, 7
CTX_WORDS = 16
ERROR_PROGRAM = 100
"""Error code of FAIL and ABORT_IF; the row word then holds the message id."""
ERROR_HOST = 101
"""A host function asked to stop."""
ERROR_REMOTE = 102
"""A row number of a remote buffer out of range."""
ERROR_MEETING = 103
"""Replicas took different ways to a copy between them."""
FUTEX_SLICE_NS = 5_000_000


class StreamWord(enum.IntEnum):
    """Words of a stream descriptor. Modes: 0 leave the region alone, 1 ring buffer, 2 host
    function."""

    MODE = 0
    POINTER = 1
    CURSOR = 2
    TOTAL = 3
    REGION = 4
    CHUNK = 5


_SPECIAL = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()", 202),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)", 98),
}


def driver_text(machine: str | None = None) -> str:
    """LLVM module of ``pp_driver`` for ``machine`` (default: this one)."""
    machine = machine or platform.machine()
    if machine not in _SPECIAL:
        raise ValueError(f"no driver for machine {machine!r}; known: {', '.join(_SPECIAL)}")
    declare, pause, futex = _SPECIAL[machine]
    text = "\n".join([_HEAD, _BARRIER, _RUN, _INTERPRETER, _WORKER, _DRIVER])
    words = {f"{p.name}@": str(int(p) * 8) for p in Pool}
    for name, value in sorted(words.items(), key=lambda w: -len(w[0])):
        text = text.replace(f"${name}", value)
    return (
        text.replace("$DECLARE_PAUSE", declare)
        .replace("$PAUSE", pause)
        .replace("$FUTEX", str(futex))
        .replace("$SLICE", str(FUTEX_SLICE_NS))
        .replace("$TEAM_BYTES", str(TEAM_BYTES))
        .replace("$CLOCK", "call i64 @llvm.readcyclecounter()")
    )


_HEAD = """
$DECLARE_PAUSE
declare i64 @syscall(i64, ...)
declare i64 @llvm.readcyclecounter()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

_BARRIER = """
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

_RUN = """
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

_INTERPRETER = """
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

_WORKER = """
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

_DRIVER = """
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
