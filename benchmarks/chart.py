"""A bar chart of results as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

_BAR, _GAP, _LEFT, _WIDTH = 14, 12, 300, 900
_COLOURS = {
    "ours": "#1f77b4",
    "convert": "#d62728",
    "convert-no-statistics": "#ff9896",
    "delta-rs": "#2ca02c",
    "pyiceberg": "#9467bd",
    "footers": "#7f7f7f",
    "listing": "#c7c7c7",
}
_OTHER = "#17becf"


def draw_chart(lines: Sequence[Mapping[str, Any]]) -> str:
    """Warm times (cold where there is no warm one) on a logarithmic scale, by case."""
    bars = [(_label(line), line["contender"], _seconds(line)) for line in lines]
    shown = [(case, contender, seconds) for case, contender, seconds in bars if seconds]
    low = 10 ** math.floor(math.log10(min((seconds for *_, seconds in shown), default=0.1)))
    high = 10 ** math.ceil(math.log10(max((seconds for *_, seconds in shown), default=10.0)) + 1e-9)
    decades = max(round(math.log10(high / low)), 1)
    scale = (_WIDTH - _LEFT - 70) / decades
    drawn: list[str] = []
    y, last = 40, ""
    for case, contender, seconds in shown:
        if case != last:
            y += _GAP
            drawn.append(_text(8, y + _BAR - 3, case, weight="bold"))
            last = case
        length = max(math.log10(seconds / low) * scale, 1)
        colour = _COLOURS.get(contender, _OTHER)
        drawn.append(f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="{_BAR - 2}" fill="{colour}"/>')
        drawn.append(_text(_LEFT - 6, y + _BAR - 3, contender, anchor="end"))
        drawn.append(_text(_LEFT + length + 4, y + _BAR - 3, f"{format_seconds(seconds)} s"))
        y += _BAR
    height = y + 20
    grid = []
    for decade in range(decades + 1):
        x = _LEFT + decade * scale
        grid.append(f'<line x1="{x:.1f}" y1="30" x2="{x:.1f}" y2="{height - 10}" stroke="#dddddd"/>')
        grid.append(_text(x, 24, f"{low * 10**decade:g} s", anchor="middle"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join([*grid, *drawn])
        + "\n</svg>\n"
    )


def _label(line: Mapping[str, Any]) -> str:
    return f"{line['case']}, each table" if "tables" in line else str(line["case"])


def format_seconds(seconds: float) -> str:
    """Seconds with two digits after the point, more for very short times."""
    return f"{seconds:.2f}" if seconds >= 0.1 else f"{seconds:.4f}"


def _seconds(line: Mapping[str, Any]) -> float | None:
    """Seconds for one table where contenders have different numbers of tables, for all files elsewhere."""
    for mode in ("warm", "cold"):
        found = line.get(mode) or {}
        if seconds := found.get("seconds_per_table") or found.get("seconds"):
            return float(seconds)
    return None


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'
