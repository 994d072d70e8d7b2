"""`poplar-py info`, `passes` and `ops`: what this installation knows."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from typing import Any

import click

from poplar_py.cli.output import json_text
from poplar_py.diagnostics import UnknownName

__all__ = ["info_command", "ops_command", "passes_command"]


@click.command("info", short_help="Versions, host, cache folder, systems.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable standard output.")
def info_command(*, as_json: bool) -> None:
    """Shows versions, the host's cores, the cache folder, and the systems one can compile for."""
    from poplar_py.driver.info import information

    facts = information()
    if as_json:
        click.echo(json_text(facts))
        return
    systems: Any = facts.pop("systems")
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        click.echo(f"{name:{width}}  {value}")
    click.echo("systems")
    for system in systems:
        click.echo(
            f"  {system['name']:{width}}{system['ipus']:>3} x {system['chip']}: "
            f"{system['tiles_per_ipu']} tiles of {system['bytes_per_tile'] // 1024} KiB, "
            f"{system['clock_hz'] / 1e9:g} GHz"
        )


@click.command("passes", short_help="List the passes, or explain one.")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable standard output.")
def passes_command(*, name: str | None, as_json: bool) -> None:
    """Lists passes and pipelines, or shows what pass NAME does, its options and its order.

    NAME may also be a pipeline, such as @default.
    """
    from poplar_py.driver.catalogue import pass_entries, pipeline_entries

    entries, pipelines = pass_entries(), pipeline_entries()
    if name is not None and name.startswith("@"):
        pipelines = [_choose(name, {e["name"]: e for e in pipelines}, "pipeline")]
        entries = [e for e in entries if e["name"] in pipelines[0]["passes"].split(",")]
        name = None
    elif name is not None:
        entries = [_choose(name, {e["name"]: e for e in entries}, "pass")]
    if as_json:
        click.echo(json_text({"passes": entries, "pipelines": pipelines}))
        return
    if name is not None:
        _show_pass(entries[0])
        return
    _columns((e["name"], f"{e['level']:6} {e['summary']}") for e in entries)
    click.echo("\npipelines")
    for pipeline in pipelines:
        click.echo(f"  {pipeline['name']}\n    {pipeline['passes']}")


def _show_pass(entry: dict[str, Any]) -> None:
    click.echo(f"{entry['name']} ({entry['level']} level)\n")
    click.echo(inspect.cleandoc(entry["doc"]))
    if entry["options"]:
        click.echo("\noptions")
        _columns((o["name"], f"{o['type']}, default {o['default']}") for o in entry["options"])
    if entry["after"]:
        click.echo(f"\nruns after {', '.join(entry['after'])}")


@click.command("ops", short_help="List the ops, or explain one.")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable standard output.")
def ops_command(*, name: str | None, as_json: bool) -> None:
    """Lists the ops of the model level, or shows the operands and attributes of op NAME.

    NAME may be the part behind the point where only one op has it.
    """
    from poplar_py.driver.catalogue import op_entries

    entries = op_entries()
    if name is not None:
        entries = [_choose(name, {e["name"]: e for e in entries}, "op")]
    if as_json:
        click.echo(json_text({"ops": entries}))
        return
    if name is None:
        _columns((e["name"], e["summary"]) for e in entries)
        return
    entry = entries[0]
    click.echo(f"{entry['name']}\n\n{inspect.cleandoc(entry['doc'])}\n")
    for part in ("operands", "attributes", "regions"):
        if entry[part]:
            click.echo(part)
            _columns((f["name"], f["type"]) for f in entry[part])
    click.echo(f"traits: {', '.join(entry['traits']) or 'none'}")
    click.echo(f"tables: {', '.join(entry['tables']) or 'none'}")


def _columns(rows: Iterable[tuple[str, str]]) -> None:
    """Prints rows of two columns."""
    listed = list(rows)
    width = max((len(left) for left, _ in listed), default=0)
    for left, right in listed:
        click.echo(f"  {left:{width}}  {right}".rstrip())


_LISTS = {"pass": "passes", "pipeline": "passes", "op": "ops"}


def _choose(name: str, entries: dict[str, dict[str, Any]], what: str) -> dict[str, Any]:
    if name in entries:
        return entries[name]
    ending = [full for full in entries if full.endswith(f".{name}")]
    if len(ending) == 1:
        return entries[ending[0]]
    near = difflib.get_close_matches(name, entries, 1)
    remedy = f"did you mean {near[0]!r}?" if near else f"list them: poplar-py {_LISTS[what]}"
    wide = difflib.get_close_matches(name, [n.split(".")[-1] for n in entries], 1)
    if not near and wide:
        full = next(n for n in entries if n.split(".")[-1] == wide[0])
        remedy = f"did you mean {full!r}?"
    raise UnknownName(f"unknown {what} {name!r}", remedy=remedy)
