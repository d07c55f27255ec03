"""page: HTML pages that need nothing else, no network and no script: one style for all. Pure.

    document     the page, its sections, facts, and the style
    table        a table, written once for the terminal and for a page
    drawing      bars, ranges and charts in SVG

Uses no other room. Colours are variables of the style, so that one page serves light and dark.
"""
