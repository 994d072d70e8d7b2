"""Compiler passes, one file each."""
