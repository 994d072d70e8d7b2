"""What the engine and the native driver agree on: instructions, the pool block, streams, errors."""

from __future__ import annotations

import enum

WORDS = 8
"""int64 words of one instruction."""


class Op(enum.IntEnum):
    """Instructions.  ``a, b, c ...`` are words 1, 2, 3 ...; targets are instruction numbers."""

    HALT = 0
    CALL = 1  # a: kernel address, b: pointer to (table, rows) per thread of the team, c: 1 =
    #           consensus, d: 0 for vertices; copies: 1, or 2 + the stream whose region they read
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
ERROR_REMOTE = 102
"""A row number of a remote buffer out of range."""
ERROR_MEETING = 103
"""Replicas took different ways to a copy between them."""
FUTEX_SLICE_NS = 5_000_000


class StreamWord(enum.IntEnum):
    """Words of a stream descriptor. Modes: 0 leave the region alone, 1 ring buffer, 2 host
    function, 3 copies read the array at POINTER in the place of the region."""

    MODE = 0
    POINTER = 1
    CURSOR = 2
    TOTAL = 3
    REGION = 4
    CHUNK = 5
