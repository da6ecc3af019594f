"""Numbers, durations and long texts as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 table`` or ``1,200 tables``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_short(number: float) -> str:
    """Return a number in thousands, millions and so on, such as ``1.2 K``."""
    return _with_unit(number, ("", " K", " M", " B", " T"))


def format_bytes(number: float) -> str:
    """Return a size in decimal units, such as ``5.0 GB``."""
    return _with_unit(number, (" B", " kB", " MB", " GB", " TB", " PB", " EB"))


def format_seconds(seconds: float) -> str:
    """Return a duration, such as ``4.5 s``, ``1 min 01 s`` or ``1 h 02 min``."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02} min" if hours else f"{minutes} min {left:02} s"


def truncate_end(text: str, limit: int, whole_in: str = "the JSON report") -> str:
    """Return a text of at most ``limit`` characters; a longer one is cut, and says where the whole of it is."""
    return text if len(text) <= limit else f"{text[:limit]}… (whole in {whole_in})"


def truncate_middle(name: str, limit: int) -> str:
    """Return a name of at most ``limit`` characters, cut in its middle: tables of one database differ at the end."""
    return name if len(name) <= limit else f"{name[: limit // 3]}…{name[-(limit - limit // 3 - 1) :]}"


def truncate_list(texts: Sequence[str], limit: int, whole_in: str = "the JSON report") -> list[str]:
    """Return as many texts as have ``limit`` characters together, one at least, and how many more there are."""
    shown: list[str] = []
    for text in texts:
        if shown and sum(map(len, shown)) + len(text) > limit:
            return [*shown, f"{len(texts) - len(shown)} more in {whole_in}"]
        shown.append(truncate_end(text, limit, whole_in))
    return shown


def _with_unit(number: float, units: Sequence[str]) -> str:
    power = 0
    # 999.95 would be written as 1000.0.
    while abs(number) >= (1000 if power == 0 else 999.95) and power < len(units) - 1:
        number, power = number / 1000, power + 1
    return f"{number:,.0f}{units[0]}" if power == 0 else f"{number:,.1f}{units[power]}"
