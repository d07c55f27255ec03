"""``lmdbio gallery``."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click

from lmdbio.cli.options import DATA, LIMIT, OUTPUT, db_option, json_option
from lmdbio.cli.output import bar, plural, print_json, size
from lmdbio.cli.records import Record, read_record
from lmdbio.inside.cards import CardMaker, sample_card
from lmdbio.inside.keytext import show_key
from lmdbio.inside.page import Card, Gallery, gallery_page
from lmdbio.inside.pictures import VALUE_BYTES_MAX, has_pillow
from lmdbio.inside.summary import key_forms
from lmdbio.layouts.known import AUTO, KNOWN
from lmdbio.layouts.layout import Selection
from lmdbio.layouts.wanted import Wanted
from lmdbio.locate.file_set import prefetching
from lmdbio.locate.open_database import OpenFile, guarded
from lmdbio.locate.samples import find_samples
from lmdbio.locate.view import DatabaseView, Seen, viewing
from lmdbio.provenance import data_files, in_words
from lmdbio.remote import absolute, is_url
from lmdbio.system.publish import Draft

CARDS, SIDE = 200, 256
#: Samples that are looked for in a file, some of which may not be there.
TRIES_MAX = 10_000
#: Without Pillow, of image files as they are, so many bytes in all make a page that opens.
PLAIN_BYTES = 24 << 20


@click.command()
@click.argument("path", type=DATA)
@click.option(
    "--output", "-o", type=OUTPUT, default="gallery.html", show_default=True,
    help="Write the page here; one that is there is replaced.",
)  # fmt: skip
@click.option(
    *LIMIT, type=click.IntRange(1, 5000), default=CARDS, show_default=True,
    help="Most records, or samples, to show.",
)  # fmt: skip
@click.option("--first", is_flag=True, help="Show the first records, not some of all.")
@click.option(
    "--random", "seed", type=int, metavar="SEED", help="Show records by chance, by this seed."
)
@click.option(
    "--side", type=click.IntRange(32, 1024), default=SIDE, show_default=True,
    help="Longest side of a picture, in pixels.",
)  # fmt: skip
@click.option(
    "--layout", type=click.Choice((AUTO, *KNOWN)), metavar="NAME",
    help="Show samples of this layout, a card each, as of an image and its label; auto: the one "
    "that is found.",
)  # fmt: skip
@db_option
@json_option
def gallery(
    path: Path | str,
    output: str,
    limit: int,
    first: bool,
    seed: int | None,
    side: int,
    layout: str | None,
    name: bytes | None,
    as_json: bool,
) -> None:
    """Make an HTML page of small pictures of PATH's records, which needs nothing else.

    Records are spread evenly over the file, or over those of a folder or a quoted pattern, found
    without a walk. Images are shrunk by Pillow,
    where it is installed (else they are embedded as they are, up to 24 MiB), also those within
    pickles, msgpack and the like; Datum and npy arrays are drawn; anything else shows its first
    lines. Sizes, types and the forms of keys stand above.

    \b
    Examples:
        lmdbio gallery train_lmdb                      writes gallery.html
        lmdbio gallery train_lmdb -o train.html --limit 500
        lmdbio gallery train_lmdb --first
        lmdbio gallery train_lmdb --random 7
        lmdbio gallery ocr_lmdb --layout auto          image and label on one card
        lmdbio gallery scenes.mdb --db depth --json
    """
    if first and seed is not None:
        raise click.UsageError("--first or --random, not both")
    data = open_files(path, name, layout)
    page, facts, left_out = make_page(data, limit, side, first=first, seed=seed)
    content = page.encode("utf-8", "replace")
    with Draft(Path(output), "the page") as draft:
        draft.write(content, 0)
        draft.publish(overwrite=True)
    if as_json:
        print_json({"page": output, "bytes": len(content), **facts})
        return
    displayed = plural(facts[f"{data.unit}s"], data.unit), plural(facts["pictures"], "picture")
    click.echo(f"{output}: {', '.join(displayed)}, {size(len(content))}")
    if left_out:
        click.echo(
            f"lmdbio: {plural(left_out, 'image')} without a picture: Pillow, which would "
            "shrink them, is not installed (pip install pillow)",
            err=True,
        )


@dataclass(frozen=True, slots=True)
class DataSet:
    """The files whose records, or samples, are shown, and what they have in all.

    Attributes:
        files: one, or those of a folder or a pattern.
        name: name of the database in each; None: the main one.
        selections: samples of each, as its layout finds them; None: each record is one.
        counts: samples of each.
        used_bytes: size of what all of them use, bytes.
        versions: versions of LMDB that wrote them.
        has_integer_keys: whether the first one has integer keys.
    """

    files: Sequence[str]
    name: bytes | None
    selections: Sequence[Selection | None]
    counts: Sequence[int]
    used_bytes: int
    versions: Sequence[str]
    has_integer_keys: bool

    @property
    def samples(self) -> int:
        return sum(self.counts)

    @property
    def unit(self) -> str:
        """The noun for what has a card."""
        return "sample" if any(self.selections) else "record"


def open_files(path: Path | str, name: bytes | None, layout: str | None) -> DataSet:
    """Look at the files of a data set, and at a few keys for a layout."""
    files, counts, used, versions = data_files(path), [], 0, set()
    is_integer, selections = [], []
    with prefetching(files):
        for file in files:
            with viewing(file, name) as view:
                found = None if layout is None else selection_of(view, layout)
                selections.append(found)
                counts.append(count_of(found, view.db.entries))
                used += (view.meta.last_pgno + 1) * view.meta.layout.page_size
                versions.add("0.9" if view.meta.layout.version == 1 else "1.0")
                is_integer.append(view.has_integer_keys)
    return DataSet(files, name, selections, counts, used, sorted(versions), is_integer[0])


def selection_of(view: DatabaseView, layout: str) -> Selection | None:
    """Return the samples of a layout; None: "auto" finds none, and each record is one.

    Raises:
        IncompatibleError: the database has another layout.
    """
    with guarded(view.engine, view.meta):
        file = OpenFile(view.engine, view.meta, view.db)
        return find_samples(file, view.name, Wanted(layout)).selection


def count_of(selection: Selection | None, entries: int) -> int:
    """Return how many samples a file has, by a look at a few keys."""
    if selection is None:
        return entries
    there = (entries - len(selection.metadata)) // selection.columns
    return there if selection.samples is None else min(selection.samples, there)


def make_page(
    data: DataSet, limit: int, side: int, *, first: bool, seed: int | None
) -> tuple[str, dict[str, Any], int]:
    """Return the page, facts about it, and how many images have no picture for want of Pillow."""
    records: list[Record] = []
    cards: list[Card] = []
    maker = CardMaker(
        side, pillow=has_pillow(), plain_bytes_max=PLAIN_BYTES, value_bytes_max=VALUE_BYTES_MAX
    )
    name = in_words(data.files)
    with bar(f"gallery of {name}") as progress:
        for view, sample in chosen(data, limit, first=first, seed=seed):
            found = []
            for seen in sample:
                one = read_record(view, seen)
                records.append(one)
                read = partial(view.value, seen)
                found.append(maker.card(one.key, one.kind, one.excerpt, read))
            cards.append(sample_card(found))
            progress(len(cards), min(limit, data.samples), f"{data.unit}s")
    facts = {"data": name, "records": len(records), f"{data.unit}s": len(cards)}
    facts |= {"pictures": sum(bool(card.image) for card in cards), "types": dict(types_of(cards))}
    page = gallery_page(gallery_of(data, records, cards, first=first, seed=seed))
    return page, facts, maker.left_out


def types_of(cards: Sequence[Card]) -> list[tuple[str, int]]:
    """Return the titles of cards and how many have each, the most frequent first."""
    return Counter(card.title for card in cards).most_common()


def chosen(
    data: DataSet, limit: int, *, first: bool, seed: int | None
) -> Iterator[tuple[DatabaseView, list[Seen]]]:
    """Yield the records of each sample that is shown, file by file, in order."""
    total, left, begun = data.samples, limit, 0
    if seed is None:
        fractions = [(number + 0.5) / limit for number in range(limit)]
    else:
        draw = random.Random(seed)
        fractions = sorted(draw.random() for _ in range(limit))
    for file, selection, count in zip(data.files, data.selections, data.counts, strict=True):
        places = [at * total - begun for at in fractions if begun <= at * total < begun + count]
        begun += count
        takes_first = first or total <= limit
        if not (left and count if takes_first else places):
            continue
        with viewing(file, data.name) as view:
            every = samples_of(view, selection, None if takes_first else places, count)
            for sample in islice(every, left):
                left -= 1
                yield view, sample


def samples_of(
    view: DatabaseView, selection: Selection | None, places: list[float] | None, count: int
) -> Iterator[list[Seen]]:
    """Yield the records of samples of one file.

    Args:
        selection: samples of the file; None: each record is one.
        places: places of the samples among all of the file, ascending; None: all of them.
        count: samples of the file.
    """
    if selection is not None and selection.keys_at is not None:
        numbers = range(count) if places is None else dict.fromkeys(map(int, places))
        for number in islice(numbers, TRIES_MAX):
            found = (next(view.find(key), None) for key in selection.keys_at(number))
            if sample := [seen for seen in found if seen is not None]:
                yield sample
        return
    beside = () if selection is None else selection.metadata
    every = view.records() if places is None else view.spread(at / count for at in places)
    yield from ([seen] for seen in every if seen.key not in beside)


def gallery_of(
    data: DataSet,
    records: list[Record],
    cards: list[Card],
    *,
    first: bool,
    seed: int | None,
) -> Gallery:
    """Return the content of the page."""
    sizes = [card.length for card in cards]
    count, total = len(cards), data.samples
    facts = [(f"{data.unit}s", f"{total:,}"), ("in all", size(data.used_bytes))]
    if len(data.files) > 1:
        facts.insert(0, ("files", f"{len(data.files):,}"))
    if sizes:
        one = "value" if data.unit == "record" else data.unit
        facts.append((f"a {one}, on average", size(sum(sizes) / len(sizes))))
    facts.append(("written by LMDB", " and ".join(data.versions)))
    if count >= total:
        how = f"all {total:,} {data.unit}s"
    elif first:
        how = f"the first {count:,} of {total:,} {data.unit}s"
    elif seed is not None:
        how = f"{count:,} of {total:,} {data.unit}s, by chance (seed {seed})"
    else:
        how = f"{count:,} of {total:,} {data.unit}s, spread evenly"
    path, more = data.files[0], len(data.files) - 1
    name = Path(path) if is_url(path) else Path(path).resolve()
    title = name.parent.name if name.name == "data.mdb" else name.name
    title += f" and {more:,} more" * (more > 0)
    return Gallery(
        name=title + (f" / {show_key(data.name)}" if data.name is not None else ""),
        path=absolute(path),
        facts=facts,
        chosen=how,
        types=types_of(cards),
        forms=key_forms((o.seen.key for o in records), integers=data.has_integer_keys),
        sizes=sizes,
        cards=cards,
    )
