"""Executables: memory plan, vertex and copy tables, step code, cycles; built from tile graphs."""
