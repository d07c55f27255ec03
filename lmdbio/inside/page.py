"""page: one HTML page of small pictures, which needs nothing else: no network, no script. Pure.

A value has a card: a small picture, or the first lines of it. Types are chosen by radio buttons,
which the style sheet obeys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from lmdbio.inside.summary import size_bins
from lmdbio.page.document import document, header, section, tiles
from lmdbio.page.drawing import COLOURS
from lmdbio.system.amounts import size_text

__all__ = ["Card", "Gallery", "gallery_page", "histogram_svg"]

#: Types that have a button of their own, and a color.
TYPES_MAX = 7
TEXT_LINES, LEGEND_MAX = 7, 6

#: Beside the style of all pages.
STYLE = """
:root { --wide: 84rem; }
.panels { display: grid; gap: 1rem; margin: 1.1rem 0 1.8rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); }
.panels section { margin: 0; min-width: 0; } .panels h2 { font-size: .95rem; }
.stack { display: flex; gap: 2px; height: .8rem; border-radius: .4rem; overflow: hidden;
  margin-top: .6rem; }
.stack i { background: var(--shade); min-width: 3px; }
.kinds { list-style: none; margin: .7rem 0 0; padding: 0; font-size: .88rem; }
.kinds li { display: flex; gap: .5rem; align-items: baseline; padding: .1rem 0; min-width: 0; }
.kinds span { flex: 1; overflow-wrap: anywhere; }
.kinds b { font-weight: 400; color: var(--quiet); font-variant-numeric: tabular-nums; }
.kinds li[style]::before { content: ""; width: .65rem; height: .65rem; border-radius: .2rem;
  flex: none; background: var(--shade); }
code { font: .85em ui-monospace, SFMono-Regular, Menlo, monospace; overflow-wrap: anywhere; }
.panels svg { width: 100%; height: auto; } .panels rect { fill: var(--lmdbio); }
.choose { position: absolute; opacity: 0; pointer-events: none; }
.chips { display: flex; flex-wrap: wrap; gap: .45rem; margin: 0 0 1rem; align-items: center; }
.chips label { border: 1px solid var(--rule); background: var(--card); border-radius: 2rem;
  padding: .28rem .85rem; font-size: .88rem; cursor: pointer; user-select: none; }
.chips label:hover { border-color: var(--quiet); }
.chips p { margin: 0 0 0 auto; color: var(--quiet); font-size: .88rem; }
.cards { display: grid; gap: .8rem;
  grid-template-columns: repeat(auto-fill, minmax(10.2rem, 1fr)); }
.card { margin: 0; background: var(--card); border: 1px solid var(--rule); border-radius: .7rem;
  overflow: hidden; display: flex; flex-direction: column; min-width: 0; }
.well { aspect-ratio: var(--ratio, 1); background: var(--paper); display: grid;
  place-items: center; overflow: hidden; }
.well img { width: 100%; height: 100%; object-fit: contain; display: block; }
.well img.pixels { image-rendering: pixelated; }
.well pre { width: 100%; height: 100%; overflow: hidden; font-size: .72rem;
  mask-image: linear-gradient(#000 78%, transparent); }
.well pre.short { font-size: 1.05rem; display: grid; place-items: center; text-align: center;
  mask-image: none; }
.well em { color: var(--quiet); font-style: normal; font-size: .85rem; padding: .6rem;
  text-align: center; overflow-wrap: anywhere; }
figcaption { padding: .5rem .7rem .6rem; border-top: 2px solid var(--shade); font-size: .78rem;
  line-height: 1.4; min-width: 0; }
figcaption b, figcaption span { overflow: hidden; overflow-wrap: anywhere; display: -webkit-box;
  -webkit-box-orient: vertical; -webkit-line-clamp: 2; }
figcaption span { color: var(--quiet); }
footer { color: var(--quiet); font-size: .84rem; margin-top: 2rem; }
@media (max-width: 34rem) {
  .cards { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .6rem; }
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
    facts = [(name, value, "", COLOURS[0]) for name, value in gallery.facts]
    body = (
        f"{header(gallery.name, 'lmdbio gallery', gallery.path)}{tiles(facts)}"
        f"{_panels(gallery, shades)}{radios}{chips}"
        f'<div class="cards" style="--ratio:{_ratio(gallery.cards)}">{cards}</div>'
        "<footer>Made by <code>lmdbio gallery</code>. Types are guessed from the first bytes of "
        "each value.</footer>"
    )
    return document(f"{gallery.name}: gallery", body, STYLE + rules)


def _ratio(cards: Sequence[Card]) -> str:
    """Return width by height of the wells: those of the pictures, as far as these are alike."""
    ratios = sorted(card.width / card.height for card in cards if card.width and card.height)
    middle = ratios[len(ratios) // 2] if ratios else 1.0
    return f"{min(2.5, max(0.8, middle)):.2f}"


def _panels(gallery: Gallery, shades: dict[str, int]) -> str:
    stack = "".join(
        f'<i style="--shade:{_colour(shades[title])};flex:{count}"></i>'
        for title, count in gallery.types
    )
    hidden = len(gallery.types) - LEGEND_MAX
    more = f"<li><span>and {hidden} more</span></li>" if hidden > 0 else ""
    kinds = f'<ul class="kinds">{_shares(gallery.types, shades)}{more}</ul>'
    panels = section("Types", "", f'<div class="stack">{stack}</div>{kinds}')
    if gallery.sizes:
        panels += section("Sizes of values", "of the records shown", histogram_svg(gallery.sizes))
    if gallery.forms:
        ends = " to ".join(
            f"<code>{escape(_short(card.key))}</code>"
            for card in (*gallery.cards[:1], *gallery.cards[-1:])
        )
        forms = f'<ul class="kinds">{_shares(gallery.forms, {})}</ul>'
        panels += section("Keys", "", f"{forms}{ends}")
    return f'<div class="panels">{panels}</div>'


def _shares(counts: Sequence[tuple[str, int]], shades: Mapping[str, int]) -> str:
    """List texts with how many have each, and which share; with colours, the first of them."""
    total = sum(count for _, count in counts) or 1
    rows = ""
    for text, count in counts[:LEGEND_MAX] if shades else counts:
        style = f' style="--shade:{_colour(shades[text])}"' if shades else ""
        displayed = escape(text) if shades else f"<code>{escape(text)}</code>"
        rows += f"<li{style}><span>{displayed}</span><b>{count:,} · {count / total:.0%}</b></li>"
    return rows


def _colour(shade: int) -> str:
    return f"var(--{COLOURS[shade] if shade < TYPES_MAX else 'quiet'})"


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
    inputs = '<input class="choose" type="radio" name="t" id="all" checked="checked"/>'
    labels = '<label for="all">All</label>'
    rules = [_chip_rule("all", "var(--ink)")]
    for at, name in enumerate(names):
        inputs += f'<input class="choose" type="radio" name="t" id="t{at}"/>'
        labels += f'<label for="t{at}">{escape(name)}</label>'
        rules.append(
            f"#t{at}:checked ~ .cards .card:not(.k{at}) {{ display: none; }}"
            + _chip_rule(f"t{at}", _colour(at))
        )
    return inputs, f'<div class="chips">{labels}{note}</div>', "".join(rules)


def _chip_rule(name: str, shade: str) -> str:
    return (
        f"#{name}:checked ~ .chips label[for={name}] "
        f"{{ background: {shade}; border-color: {shade}; color: var(--paper); }}"
        f"#{name}:focus-visible ~ .chips label[for={name}] {{ outline: 2px solid; }}"
    )


def _card(card: Card, shade: int) -> str:
    if card.image:
        pixels = ' class="pixels"' if 0 < card.width <= 96 else ""
        well = f'<img{pixels} loading="lazy" alt="" src="{escape(card.image)}"/>'
    elif card.lines:
        text = "\n".join(card.lines[:TEXT_LINES])
        is_short = len(card.lines) == 1 and len(text) <= 32
        kind = ' class="short"' if is_short else ""
        well = f"<pre{kind}>{escape(text)}</pre>"
    else:
        well = f"<em>{escape(' '.join((card.title, card.detail)))}</em>"
    detail = " ".join(filter(None, (card.title, card.detail)))
    return (
        f'<figure class="card k{shade}" style="--shade:{_colour(shade)}">'
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
    base = f'<line class="grid" x1="0" x2="{WIDTH}" y1="{HEIGHT + 0.5}" y2="{HEIGHT + 0.5}"/>'
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
