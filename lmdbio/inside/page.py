"""page: one HTML page of thumbnails, which needs nothing else: no network, no script. Pure.

A value has a card: a small picture, or the first lines of it. Types are chosen by radio buttons,
which the style sheet obeys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from lmdbio.inside.summary import size_bins, size_text

__all__ = ["Card", "Gallery", "gallery_page", "histogram_svg"]

#: Types that have a button of their own, and a color.
TYPES_MAX = 7
TEXT_LINES, LEGEND_MAX = 7, 6

STYLE = """
:root { color-scheme: light dark; --paper: #f5f5f2; --card: #fff; --ink: #1b222b; --quiet: #5f6b78;
  --rule: #e1e3e5; --well: #eceeee; --shadow: 0 1px 2px rgb(20 30 40 / .06);
  --c0: #1c6db0; --c1: #c4712a; --c2: #2b8a6b; --c3: #8c3f86; --c4: #b0892a; --c5: #a93f5c;
  --c6: #5b53b0; --c7: #7a858f; }
@media (prefers-color-scheme: dark) { :root { --paper: #0f1317; --card: #181d23; --ink: #e4e8ed;
  --quiet: #94a0ad; --rule: #2a323b; --well: #11161b; --shadow: none;
  --c0: #58a6e4; --c1: #e3994f; --c2: #4fb894; --c3: #d98ad3; --c4: #d9bd62; --c5: #ea7d97;
  --c6: #a39bf0; --c7: #8d98a5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 84rem; margin: 0 auto; padding: 2.2rem 1.4rem 4rem; }
.eyebrow { font-size: .78rem; letter-spacing: .09em; text-transform: uppercase;
  color: var(--quiet); margin: 0; }
h1 { font-size: clamp(1.55rem, 4.5vw, 2.4rem); line-height: 1.15; margin: .15rem 0 .3rem;
  overflow-wrap: anywhere; letter-spacing: -.01em; }
.path { color: var(--quiet); font: .85rem/1.4 ui-monospace, SFMono-Regular, Menlo, monospace;
  overflow-wrap: anywhere; margin: 0; }
.facts { display: flex; flex-wrap: wrap; gap: .5rem 2.4rem; margin: 1.3rem 0 0; padding: 0; }
.facts div { display: flex; flex-direction: column-reverse; }
.facts dt { color: var(--quiet); font-size: .82rem; }
.facts dd { margin: 0; font-size: 1.35rem; font-weight: 600; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.panels { display: grid; gap: 1rem; margin: 1.5rem 0 1.8rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); }
.panel { background: var(--card); border: 1px solid var(--rule); border-radius: .7rem;
  padding: .95rem 1.1rem 1rem; box-shadow: var(--shadow); min-width: 0; }
h2 { font-size: .95rem; margin: 0 0 .6rem; }
h2 small { font-weight: 400; color: var(--quiet); margin-left: .4rem; }
.stack { display: flex; gap: 2px; height: .8rem; border-radius: .4rem; overflow: hidden; }
.stack i { background: var(--shade); min-width: 3px; }
.legend { list-style: none; margin: .7rem 0 0; padding: 0; font-size: .88rem; }
.legend li { display: flex; gap: .5rem; align-items: baseline; padding: .1rem 0; min-width: 0; }
.legend span { flex: 1; overflow-wrap: anywhere; }
.legend b { font-weight: 400; color: var(--quiet); font-variant-numeric: tabular-nums; }
.legend li::before { content: ""; width: .65rem; height: .65rem; border-radius: .2rem; flex: none;
  background: var(--shade, var(--c7)); }
.legend.forms li::before { display: none; }
code { font: .85em ui-monospace, SFMono-Regular, Menlo, monospace; overflow-wrap: anywhere; }
.panel p { margin: 0; color: var(--quiet); }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg rect { fill: var(--c0); } svg line { stroke: var(--rule); }
svg text { fill: var(--quiet); font: 11px system-ui, sans-serif; }
.choose { position: absolute; opacity: 0; pointer-events: none; }
.chips { display: flex; flex-wrap: wrap; gap: .45rem; margin: 0 0 1rem; align-items: center; }
.chips label { border: 1px solid var(--rule); background: var(--card); border-radius: 2rem;
  padding: .28rem .85rem; font-size: .88rem; cursor: pointer; user-select: none; }
.chips label:hover { border-color: var(--quiet); }
.chips p { margin: 0 0 0 auto; color: var(--quiet); font-size: .88rem; }
.grid { display: grid; gap: .8rem;
  grid-template-columns: repeat(auto-fill, minmax(10.2rem, 1fr)); }
.card { margin: 0; background: var(--card); border: 1px solid var(--rule); border-radius: .7rem;
  overflow: hidden; display: flex; flex-direction: column; min-width: 0;
  box-shadow: var(--shadow); }
.well { aspect-ratio: var(--ratio, 1); background: var(--well); display: grid; place-items: center;
  overflow: hidden; }
.well img { width: 100%; height: 100%; object-fit: contain; display: block; }
.well img.pixels { image-rendering: pixelated; }
.well pre { margin: 0; padding: .7rem .75rem; width: 100%; height: 100%; overflow: hidden;
  font: .72rem/1.45 ui-monospace, SFMono-Regular, Menlo, monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; mask-image: linear-gradient(#000 78%, transparent); }
.well pre.short { font-size: 1.05rem; display: grid; place-items: center; text-align: center;
  mask-image: none; }
.well em { color: var(--quiet); font-style: normal; font-size: .85rem; padding: .6rem;
  text-align: center; overflow-wrap: anywhere; }
figcaption { padding: .5rem .7rem .6rem; border-top: 2px solid var(--shade); font-size: .78rem;
  line-height: 1.4; min-width: 0; }
figcaption b { font: 600 .78rem/1.4 ui-monospace, SFMono-Regular, Menlo, monospace;
  overflow: hidden; overflow-wrap: anywhere; display: -webkit-box; -webkit-box-orient: vertical;
  -webkit-line-clamp: 2; }
figcaption span { color: var(--quiet); overflow: hidden; overflow-wrap: anywhere;
  display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; }
footer { color: var(--quiet); font-size: .84rem; margin-top: 2rem; }
@media (max-width: 34rem) { main { padding: 1.3rem .8rem 3rem; }
  .grid { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .6rem; }
  .facts { gap: .5rem 1.6rem; } .facts dd { font-size: 1.15rem; }
  .chips p { margin: .2rem 0 0; flex-basis: 100%; } }
@media print { .chips { display: none; } .card { break-inside: avoid; } }
"""


@dataclass(frozen=True, slots=True)
class Card:
    """A record as it is shown.

    Attributes:
        key: key of the record, as text.
        length: size of the value, bytes.
        title, detail: title and detail of the value's kind.
        image: address of its picture; "": it has none.
        width, height: size of the picture, pixels; 0: not known.
        lines: lines that show it, where it has no picture.
    """

    key: str
    length: int
    title: str
    detail: str
    image: str = ""
    width: int = 0
    height: int = 0
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gallery:
    """All that a page tells.

    Attributes:
        name, path: name and path of the data set.
        facts: name and value of each fact.
        chosen: choice of these records, in words.
        types: titles of kinds, and how many have each.
        forms: forms of keys, and how many have each.
        sizes: size of each value, bytes.
        cards: cards of the records, in the order of their keys.
    """

    name: str
    path: str
    facts: Sequence[tuple[str, str]]
    chosen: str
    types: Sequence[tuple[str, int]]
    forms: Sequence[tuple[str, int]]
    sizes: Sequence[int]
    cards: Sequence[Card]


def gallery_page(gallery: Gallery) -> str:
    """Return the whole page."""
    shades = {title: min(at, TYPES_MAX) for at, (title, _) in enumerate(gallery.types)}
    cards = "".join(_card(card, shades.get(card.title, TYPES_MAX)) for card in gallery.cards)
    radios, chips, rules = _chips(gallery, len(set(shades.values())))
    body = (
        f"{_header(gallery)}{_panels(gallery, shades)}{radios}{chips}"
        f'<div class="grid" style="--ratio:{_ratio(gallery.cards)}">{cards}</div>'
        "<footer>Made by <code>lmdbio gallery</code>. Types are guessed from the first bytes of "
        "each value.</footer>"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(gallery.name)}: gallery</title><style>{STYLE}{rules}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _ratio(cards: Sequence[Card]) -> str:
    """Return width by height of the wells: those of the pictures, as far as these are alike."""
    ratios = sorted(card.width / card.height for card in cards if card.width and card.height)
    middle = ratios[len(ratios) // 2] if ratios else 1.0
    return f"{min(2.5, max(0.8, middle)):.2f}"


def _header(gallery: Gallery) -> str:
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in gallery.facts
    )
    return (
        f'<header><p class="eyebrow">lmdbio gallery</p><h1>{escape(gallery.name)}</h1>'
        f'<p class="path">{escape(gallery.path)}</p><dl class="facts">{facts}</dl></header>'
    )


def _panels(gallery: Gallery, shades: dict[str, int]) -> str:
    total = sum(count for _, count in gallery.types) or 1
    stack = "".join(
        f'<i style="--shade:var(--c{shades[title]});flex:{count}"></i>'
        for title, count in gallery.types
    )
    rows = "".join(
        f'<li style="--shade:var(--c{shades[title]})"><span>{escape(title)}</span>'
        f"<b>{_share(count, total)}</b></li>"
        for title, count in gallery.types[:LEGEND_MAX]
    )
    hidden = len(gallery.types) - LEGEND_MAX
    more = f"<li><span>and {hidden} more</span></li>" if hidden > 0 else ""
    panels = [
        f'<section class="panel"><h2>Types</h2><div class="stack">{stack}</div>'
        f'<ul class="legend">{rows}{more}</ul></section>'
    ]
    if gallery.sizes:
        panels.append(
            '<section class="panel"><h2>Sizes of values<small>of the records shown</small></h2>'
            f"{histogram_svg(gallery.sizes)}</section>"
        )
    if gallery.forms:
        total = sum(count for _, count in gallery.forms) or 1
        rows = "".join(
            f"<li><span><code>{escape(form)}</code></span><b>{_share(count, total)}</b></li>"
            for form, count in gallery.forms
        )
        ends = ""
        if gallery.cards:
            first, last = gallery.cards[0].key, gallery.cards[-1].key
            ends = (
                f"<li><span><code>{escape(_short(first))}</code> to "
                f"<code>{escape(_short(last))}</code></span></li>"
            )
        panels.append(
            f'<section class="panel"><h2>Keys</h2><ul class="legend forms">{rows}{ends}</ul>'
            "</section>"
        )
    return f'<div class="panels">{"".join(panels)}</div>'


def _share(count: int, total: int) -> str:
    return f"{count:,} · {count / total:.0%}"


def _short(text: str, length: int = 60) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _chips(gallery: Gallery, shades: int) -> tuple[str, str, str]:
    """Return radio buttons, their labels, and the rules by which they hide cards."""
    note = f"<p>{escape(gallery.chosen)}</p>"
    if len(gallery.types) < 2:
        return "", f'<div class="chips">{note}</div>', ""
    names = [title for title, _ in gallery.types[:TYPES_MAX]]
    if shades > TYPES_MAX:
        names.append("others")
    inputs = '<input class="choose" type="radio" name="t" id="all" checked>'
    labels = '<label for="all">All</label>'
    rules = [_chip_rule("all", "--ink")]
    for at, name in enumerate(names):
        inputs += f'<input class="choose" type="radio" name="t" id="t{at}">'
        labels += f'<label for="t{at}">{escape(name)}</label>'
        rules.append(
            f"#t{at}:checked ~ .grid .card:not(.k{at}) {{ display: none; }}"
            + _chip_rule(f"t{at}", f"--c{at}")
        )
    return inputs, f'<div class="chips">{labels}{note}</div>', "".join(rules)


def _chip_rule(name: str, shade: str) -> str:
    return (
        f"#{name}:checked ~ .chips label[for={name}] "
        f"{{ background: var({shade}); border-color: var({shade}); color: var(--paper); }}"
        f"#{name}:focus-visible ~ .chips label[for={name}] {{ outline: 2px solid var(--c0); }}"
    )


def _card(card: Card, shade: int) -> str:
    if card.image:
        pixels = ' class="pixels"' if 0 < card.width <= 96 else ""
        well = f'<img{pixels} loading="lazy" alt="" src="{escape(card.image)}">'
    elif card.lines:
        text = "\n".join(card.lines[:TEXT_LINES])
        is_short = len(card.lines) == 1 and len(text) <= 32
        kind = ' class="short"' if is_short else ""
        well = f"<pre{kind}>{escape(text)}</pre>"
    else:
        well = f"<em>{escape(' '.join((card.title, card.detail)))}</em>"
    detail = " ".join(filter(None, (card.title, card.detail)))
    return (
        f'<figure class="card k{shade}" style="--shade:var(--c{shade})">'
        f'<div class="well">{well}</div><figcaption title="{escape(card.key)}">'
        f"<b>{escape(_short(card.key, 120))}</b><span>{escape(_short(detail, 80))}</span>"
        f"<span>{size_text(card.length)}</span></figcaption></figure>"
    )


# --- the histogram ------------------------------------------------------------------------

WIDTH, HEIGHT, FOOT = 320, 96, 16


def histogram_svg(sizes: Sequence[int]) -> str:
    """Return a histogram of sizes as SVG; a sentence where all are alike."""
    bins = size_bins(sizes)
    ordered = sorted(sizes)
    median = ordered[len(ordered) // 2]
    if len(bins) == 1:
        return f"<p>All values have {median:,} bytes.</p>"
    most, step = max(each.count for each in bins), WIDTH / len(bins)
    bars = "".join(
        f'<rect x="{at * step + 0.75:.1f}" y="{HEIGHT - height:.1f}" width="{step - 1.5:.1f}" '
        f'height="{height:.1f}" rx="2"><title>{size_text(each.low)} to {size_text(each.high)}: '
        f"{each.count:,}</title></rect>"
        for at, each in enumerate(bins)
        if (height := max(2.0, HEIGHT * each.count / most) if each.count else 0.0)
    )
    base = f'<line x1="0" x2="{WIDTH}" y1="{HEIGHT + 0.5}" y2="{HEIGHT + 0.5}"/>'
    marks = (
        f'<text x="0" y="{HEIGHT + FOOT}">{size_text(ordered[0])}</text>'
        f'<text x="{WIDTH / 2}" y="{HEIGHT + FOOT}" text-anchor="middle">'
        f"median {size_text(median)}</text>"
        f'<text x="{WIDTH}" y="{HEIGHT + FOOT}" text-anchor="end">{size_text(ordered[-1])}</text>'
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + FOOT + 4}" role="img" '
        f'aria-label="Sizes of values">{bars}{base}{marks}</svg>'
    )
