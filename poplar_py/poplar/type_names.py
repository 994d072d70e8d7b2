"""Poplar's names of element types."""

from __future__ import annotations

from poplar_py.types import bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

BOOL = bool_
CHAR = i8
SIGNED_CHAR = i8
UNSIGNED_CHAR = u8
SHORT = i16
UNSIGNED_SHORT = u16
INT = i32
UNSIGNED_INT = u32
LONG = i32
"""32 bits on the device."""
UNSIGNED_LONG = u32
LONGLONG = i64
UNSIGNED_LONGLONG = u64
HALF = f16
FLOAT = f32
DOUBLE = f64
"""Not a Poplar type; stored and computed in software."""
