"""No gap between the ops and the tables that give them a meaning, unless listed with a reason."""

from __future__ import annotations

from poplar_py.driver.catalogue import codelet_entries, op_entries, op_tables, pass_entries

EXEMPT: dict[tuple[str, str], str] = {
    ("core.if", "EVAL"): "control flow is in the interpreter itself",
    ("core.loop", "EVAL"): "control flow is in the interpreter itself",
}
"""(op, table) without an entry, and why."""


def test_every_op_has_every_meaning() -> None:
    tables = op_tables()
    names = {entry["name"] for entry in op_entries()}
    gaps = {(name, table) for table, held in tables.items() for name in names - held}
    assert gaps <= set(EXEMPT), sorted(gaps - set(EXEMPT))


def test_exemptions_are_needed() -> None:
    tables = op_tables()
    assert all(name not in tables[table] for name, table in EXEMPT)


def test_everything_is_described() -> None:
    for entry in [*op_entries(), *pass_entries(), *codelet_entries()]:
        assert entry["summary"], f"{entry['name']} has no docstring"
