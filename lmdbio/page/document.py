"""The page itself: its style, its head, sections and facts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape

__all__ = ["STYLE", "document", "facts_html", "header", "section", "tiles"]

STYLE = """
:root { color-scheme: light dark;
  --paper: #f6f5f1; --card: #ffffff; --ink: #1d2530; --quiet: #626d7a; --rule: #e2e4e6;
  --py-lmdb: #87919d; --lmdbio: #1c6db0; --plain: #2b8a6b; --fio: #c4712a;
  --fio-queue: #a93f5c; --fio-queue-32: #8c2f86; --fio-queue-128: #5b3aa6;
  --fio-uring-32: #b0892a; --ior: #7d55b3; --bad: #b3322b; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #12161b; --card: #1a2027; --ink: #e3e7ec; --quiet: #97a2af; --rule: #2d353f;
  --py-lmdb: #8d98a5; --lmdbio: #58a6e4; --plain: #4fb894; --fio: #e3994f;
  --fio-queue: #ea7d97; --fio-queue-32: #d98ad3; --fio-queue-128: #a392ea;
  --fio-uring-32: #d9bd62; --ior: #b08be0; --bad: #f0857e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: var(--wide, 60rem); margin: 0 auto; padding: 2rem 1.25rem 4rem; }
header p { color: var(--quiet); margin: .3rem 0 0; }
.eyebrow { font-size: .8rem; letter-spacing: .08em; text-transform: uppercase; }
h1 { font-size: clamp(1.5rem, 5vw, 2.2rem); line-height: 1.15; margin: .2rem 0 .4rem;
  overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0; }
header p.verdict { color: var(--ink); font-size: 1.1rem; margin-top: 1rem; max-width: 46rem; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: .6rem;
  padding: 1.1rem 1.2rem; margin-top: 1.1rem; }
section > p { color: var(--quiet); margin: .15rem 0 .9rem; font-size: .92rem; }
.tiles { display: grid; gap: 1.1rem; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr));
  margin-top: 1.4rem; }
.tile { background: var(--card); border: 1px solid var(--rule); border-radius: .6rem;
  padding: .8rem 1rem; border-top: 4px solid var(--shade); }
.tile b { display: block; font-size: 1.7rem; line-height: 1.2;
  font-variant-numeric: tabular-nums; }
.tile span { color: var(--quiet); font-size: .85rem; display: block; }
.row { display: grid; grid-template-columns: 18rem 1fr 14rem; gap: .9rem;
  align-items: center; font-size: .92rem; margin-bottom: .2rem; }
.value { font-variant-numeric: tabular-nums; text-align: right; white-space: nowrap; }
.row small, td small { color: var(--quiet); }
svg { display: block; overflow: visible; }
svg text { fill: var(--quiet); font-size: 11px; font-family: inherit; }
svg text.name { font-size: 12px; }
.lines { width: 100%; height: auto; max-width: 52rem; margin: 0 auto; }
.grid { stroke: var(--rule); stroke-width: 1; }
.whisker { stroke: var(--ink); stroke-width: 1.2; stroke-opacity: .75; }
.dot { fill: var(--card); stroke: var(--ink); stroke-width: 1; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; font-size: .88rem; padding: 0;
  list-style: none; margin: .7rem 0 0; }
.legend i { display: inline-block; width: 1.5rem; vertical-align: .28em; margin-right: .45rem;
  border-top: 3px solid var(--shade); } .legend i.dotted { border-top-style: dotted; }
.legend i.guide { border-top-style: dashed; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; width: 100%; white-space: nowrap; }
th { text-align: right; font-weight: 600; color: var(--quiet); vertical-align: bottom; }
th, td { padding: .32rem .6rem; border-bottom: 1px solid var(--rule); text-align: right;
  font-variant-numeric: tabular-nums; vertical-align: top; }
th:first-child, td:first-child { text-align: left; padding-left: 0; min-width: 11rem; }
th.left, td.left { text-align: left; white-space: normal; }
td[style]:first-child::before { content: ""; display: inline-block; width: .6rem; height: .6rem;
  border-radius: 50%; background: var(--shade); margin-right: .5rem; }
td.heat { background: color-mix(in srgb, var(--fio) var(--share), transparent); }
.good { color: var(--plain); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
pre { margin: 0; padding: .6rem .8rem; background: var(--paper); border-radius: .4rem;
  font-size: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: fit-content(22rem) 1fr; gap: .25rem 1rem;
  margin: .6rem 0 0; font-size: .92rem; } dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
.prose p, .prose li { color: var(--ink); max-width: 46rem; }
@media (max-width: 40rem) {
  main { padding: 1.2rem .8rem 3rem; } section { padding: .9rem .8rem; }
  .row { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 .6rem;
    margin-bottom: .4rem; }
  .row svg { order: 1; flex: 0 0 100%; } .pad { display: none; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; }
  svg.lines text { font-size: 15px; } }
"""


def document(title: str, body: str, style: str = "") -> str:
    """Return a whole page, which is XML as well.

    Args:
        title: title of the window.
        body: HTML of the page.
        style: further rules of CSS.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body><main>"
        f"{body}</main></body></html>\n"
    )


def header(
    title: str, eyebrow: str = "", facts: str = "", verdict: str = "", bad: str = ""
) -> str:
    """Return the head of a page.

    Args:
        title: title of the page.
        eyebrow: small line above it.
        facts: line below it.
        verdict: larger sentence below that.
        bad: warning below all.
    """
    before, *after = (
        f'<p class="{kind}">{escape(text)}</p>' if text else ""
        for kind, text in (("eyebrow", eyebrow), ("", facts), ("verdict", verdict), ("bad", bad))
    )
    return f"<header>{before}<h1>{escape(title)}</h1>{''.join(after)}</header>"


def section(title: str, lead: str, body: str, kind: str = "") -> str:
    """Return a section of a page: its title, a sentence, its body; "" without a body."""
    if not body:
        return ""
    below = f"<p>{escape(lead)}</p>" if lead else ""
    return f'<section class="{kind}"><h2>{escape(title)}</h2>{below}{body}</section>'


def facts_html(
    facts: Mapping[str, str], notes: Sequence[str] = (), bad: Collection[str] = ()
) -> str:
    """Return names and texts side by side, and notes below them.

    Args:
        facts: texts by name.
        notes: remarks below them.
        bad: names of those that warn.
    """
    items = "".join(
        f'<dt>{escape(name)}</dt><dd class="{"bad" * (name in bad)}">{escape(text)}</dd>'
        for name, text in facts.items()
    )
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<dl>{items}</dl>" * bool(items) + f"<ul>{listed}</ul>" * bool(listed)


def tiles(facts: Sequence[tuple[str, str, str, str]]) -> str:
    """Return large figures side by side.

    Args:
        facts: name, figure, a remark below it, and colour of each.
    """
    made = "".join(
        f'<div class="tile" style="--shade: var(--{shade})"><span>{escape(name)}</span>'
        f"<b>{escape(figure)}</b><span>{escape(note)}</span></div>"
        for name, figure, note, shade in facts
    )
    return f'<div class="tiles">{made}</div>'
