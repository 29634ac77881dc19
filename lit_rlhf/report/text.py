"""Text of unknown origin inside HTML: escaped, with control characters made visible."""

import html
import re
from typing import Any

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escape(value: Any) -> str:
    r"""Escape text for HTML, inside attributes too.

    Example:
        >>> escape("<bos>\x07 & co")
        '&lt;bos&gt;␇ &amp; co'
    """
    return html.escape(_CONTROL.sub(_picture, str(value)), quote=True)


def table(header: list[str], rows: list[list[str]], head_cells: bool = True) -> str:
    """Build a table of cells that are HTML already; it scrolls by itself where it is too wide.

    Args:
        header: Column titles; none for a table without a head.
        rows: Cells.
        head_cells: Whether a row's first cell is its title.
    """
    head = f"<thead><tr>{''.join(f'<th scope=col>{cell}</th>' for cell in header)}</tr></thead>" if header else ""
    body = "".join(f"<tr>{_cells(row, head_cells)}</tr>" for row in rows)
    return f'<div class="wide" tabindex="0"><table>{head}<tbody>{body}</tbody></table></div>'


def _cells(row: list[str], head_cells: bool) -> str:
    first = [f"<th scope=row>{cell}</th>" for cell in row[:1]] if head_cells else []
    return "".join([*first, *(f"<td>{cell}</td>" for cell in row[len(first) :])])


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"
