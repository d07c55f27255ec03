"""``lmdbio cache``: the cache files of a folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from lmdbio.cache import Entry, clear, find, named, verify
from lmdbio.cli.options import PATH, json_option
from lmdbio.cli.output import Lines, bar, plural, print_facts, print_json, size

__all__ = ["cache", "cache_facts", "cache_status"]

folder_argument = click.argument("folder", type=PATH, envvar="LMDBIO_CACHE_DIR", metavar="FOLDER")


@click.group()
def cache() -> None:
    """List, verify or clear the cache files in FOLDER.

    A Reader, or a Loader's process, with cache="disk=FOLDER" caches its part of the data set
    there, for its later epochs and for the next job. The default of FOLDER is LMDBIO_CACHE_DIR.

    \b
    Examples:
        lmdbio cache list /local/scratch
        lmdbio cache list /local/scratch --json
        lmdbio cache clear /local/scratch
    """


def _state(entry: Entry) -> str:
    open_ = ", in use" if entry.is_open else ""
    return f"{entry.state}{open_}" + (f" ({entry.why})" if entry.why else "")


def _part(entry: Entry) -> str:
    share = entry.kept_bytes / max(1, entry.source_bytes)
    return f"{size(entry.kept_bytes)}, {100 * share:.0f} % of"


@cache.command("list")
@folder_argument
@json_option
def list_(folder: Path, as_json: bool) -> None:
    """Tell what the cache files in FOLDER hold, and whether it is still good.

    "outdated": the data file has changed, so that the next job fills the file anew. "in use": a
    job has it open. Checksums are not compared; lmdbio cache verify does that.

    \b
    Examples:
        lmdbio cache list /local/scratch
        lmdbio cache list /local/scratch --json | jq '.[].kept_bytes'
    """
    found = find(folder)
    if as_json:
        print_json([asdict(entry) for entry in found])
        return
    if not found:
        click.echo(f"{folder}: no cache files")
    for entry in found:
        facts = [(entry.path.name, ""), ("  state", _state(entry))]
        if entry.source:
            facts.append(("  keeps", f"{_part(entry)} {entry.source}"))
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used_s))
        facts.append(("  on disk", f"{size(entry.disk_bytes)}, written {used}"))
        print_facts(facts)
    if found:
        disk = sum(entry.disk_bytes for entry in found)
        click.echo(f"{plural(len(found), 'file')}, {size(disk)} on disk")


@cache.command("verify")
@folder_argument
@json_option
def verify_(folder: Path, as_json: bool) -> None:
    """Compare every page in FOLDER's cache files with its checksum.

    A job does so with each page that it uses, and reads a damaged one from the data file again:
    this tells whether the disk can be trusted. Exit status 1 where a page is damaged.

    \b
    Examples:
        lmdbio cache verify /local/scratch
    """
    reports: list[dict[str, Any]] = []
    for entry in find(folder):
        if entry.state == "damaged":
            reports.append({"path": entry.path, "pages": 0, "damaged": 0, "why": entry.why})
            continue
        with bar(f"verify {entry.path.name}") as progress:
            pages, damaged = verify(entry.path, lambda done, total: progress(done, total, "pages"))
        reports.append({"path": entry.path, "pages": pages, "damaged": damaged, "why": ""})
    if as_json:
        print_json(reports)
    else:
        for one in reports:
            result = f"{plural(one['pages'], 'page')}, {one['damaged']:,} damaged"
            click.echo(f"{one['path']}: {one['why'] or result}")
        if not reports:
            click.echo(f"{folder}: no cache files")
    if any(one["damaged"] or one["why"] for one in reports):
        raise click.exceptions.Exit(1)


@cache.command("clear")
@folder_argument
@click.option("--all", "every", is_flag=True, help="Also those that are current.")
@json_option
def clear_(folder: Path, every: bool, as_json: bool) -> None:
    """Remove cache files from FOLDER that are outdated or damaged; with --all every one.

    Files that a job has open stay. Data files are not touched.

    \b
    Examples:
        lmdbio cache clear /local/scratch
        lmdbio cache clear /local/scratch --all
    """
    reports: list[dict[str, Any]] = []
    for entry in find(folder):
        is_wanted = every or entry.state != "current"
        why_not = "" if is_wanted else "in use" if entry.is_open else str(entry.state)
        try:
            if is_wanted and not clear(entry):
                why_not = "in use"
        except OSError as error:
            why_not = error.strerror or str(error)
        reports.append({"path": entry.path, "disk_bytes": entry.disk_bytes, "kept": why_not})
    gone = [one for one in reports if not one["kept"]]
    if as_json:
        print_json(reports)
        return
    for one in reports:
        what = f"kept, {one['kept']}" if one["kept"] else f"removed, {size(one['disk_bytes'])}"
        click.echo(f"{one['path']}: {what}")
    freed = size(sum(one["disk_bytes"] for one in gone))
    click.echo(f"{plural(len(gone), 'file')} removed, {freed}")


def cache_status(folder: Path, data: Sequence[str]) -> list[Entry]:
    """Return the cache files in a folder that keep parts of a data file, or of several as one.

    Raises:
        OSError: the folder cannot be read.
    """
    path = named(data)
    return [entry for entry in find(folder) if entry.source == path]


def cache_facts(folder: Path, found: list[Entry]) -> Lines:
    """Return lines about them."""
    if not found:
        return [("  cache", f"no file in {folder} keeps a part of it")]
    lines = [("  cache", f"{plural(len(found), 'file')} in {folder}")]
    for entry in found:
        lines.append(("", f"{entry.path.name}: {_part(entry)} it, {_state(entry)}"))
    return lines
