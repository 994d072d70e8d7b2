"""Helpers that LLVM calls on CPUs without half conversions, as LLVM text.

The C runtime that would hold them is not always there, so they come with us. Bit for bit what the
conversion instructions of newer CPUs give (nearest even, NaN made quiet).
"""

from __future__ import annotations

__all__ = ["SUPPORT_SYMBOLS", "SUPPORT_TEXT"]

SUPPORT_SYMBOLS = ("__extendhfsf2", "__truncsfhf2")

SUPPORT_TEXT = """; passes: none
define float @__extendhfsf2(half %h) nounwind {
  %i = bitcast half %h to i16
  %w = zext i16 %i to i32
  %m = and i32 %w, 32767
  %up = shl i32 %m, 13
  %f = bitcast i32 %up to float
  %scaled = fmul float %f, 0x46F0000000000000
  %finite = bitcast float %scaled to i32
  %special = or i32 %up, 2139095040
  %isnan = icmp ugt i32 %m, 31744
  %quiet = or i32 %special, 4194304
  %sp = select i1 %isnan, i32 %quiet, i32 %special
  %big = icmp uge i32 %m, 31744
  %r = select i1 %big, i32 %sp, i32 %finite
  %s = and i32 %w, 32768
  %sign = shl i32 %s, 16
  %bits = or i32 %r, %sign
  %out = bitcast i32 %bits to float
  ret float %out
}

define half @__truncsfhf2(float %x) nounwind {
  %b = bitcast float %x to i32
  %a = and i32 %b, 2147483647
  %hs = lshr i32 %b, 16
  %sign = and i32 %hs, 32768
  %rebased = sub i32 %a, 939524096
  %shifted = lshr i32 %rebased, 13
  %odd = and i32 %shifted, 1
  %bias = add i32 %odd, 4095
  %sum = add i32 %rebased, %bias
  %norm = lshr i32 %sum, 13
  %over = icmp uge i32 %a, 1199570944
  %n1 = select i1 %over, i32 31744, i32 %norm
  %af = bitcast i32 %a to float
  %magic = fadd float %af, 0x3FE0000000000000
  %mb = bitcast float %magic to i32
  %sub = sub i32 %mb, 1056964608
  %small = icmp ult i32 %a, 947912704
  %n2 = select i1 %small, i32 %sub, i32 %n1
  %pay = lshr i32 %a, 13
  %pm = and i32 %pay, 1023
  %q = or i32 %pm, 32256
  %isnan = icmp ugt i32 %a, 2139095040
  %n3 = select i1 %isnan, i32 %q, i32 %n2
  %r = or i32 %n3, %sign
  %t = trunc i32 %r to i16
  %h = bitcast i16 %t to half
  ret half %h
}
"""
