"""What docs/handbook.md takes from the catalogue: its index, the causes of each kind, and the causes kinds share.

``python -m lit_rlhf_callbacks.symptoms.handbook docs/handbook.md`` renews them in place; everything else on the page is
written by hand.
"""

import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill

from lit_rlhf_callbacks.symptoms import KINDS
from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind
from lit_rlhf_callbacks.symptoms.finding import link_of

WIDTH = 120
NUM_SHARING = 3  # kinds with the same cause, from which on how to tell it is said once
CAUSES = "*Causes, likeliest first*"
_SECTION = re.compile(r"^### (.+)\n((?:(?!^##).*\n)*)", re.MULTILINE)
_LIST = re.compile(rf"(^{re.escape(CAUSES)}\n\n)(?:(?:\d+\. | {{3,4}}).*\n)*\n?", re.MULTILINE)


def renew(text: str, kinds: Mapping[str, Kind] = KINDS) -> str:
    """Return the handbook with the parts that come from the catalogue brought up to date.

    Args:
        text: The page. A kind's section has a heading of level 3 that reads like its id (``### KL explosion``), and in
            it a line ``*Causes, likeliest first*``, after which the list of causes stands.
        kinds: The catalogue.

    Returns:
        The page. Sections that are no kind's are left alone.
    """
    by_anchor = {link_of(kind).split("#")[1]: kind for kind in kinds.values()}
    shared = _shared(kinds)

    def section(match: re.Match[str]) -> str:
        kind = by_anchor.get(anchor(match[1]))
        if kind is None:
            return match[0]
        causes = "".join(_item(number, cause, shared) for number, cause in enumerate(_ordered(kind), 1))
        return f"### {match[1]}\n" + _LIST.sub(lambda part: part[1] + causes + "\n", match[2], count=1)

    text = _SECTION.sub(section, text)
    table = ["| cause | what is wrong | how to tell |", "| --- | --- | --- |"]
    table += [f"| `{cause.id}` | {cause.text} | {cause.next_check} |" for cause in shared.values()]
    return _replaced(_replaced(text, "index", _index(text, by_anchor)), "shared causes", "\n".join(table))


def anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading.

    >>> anchor("A. The loss is flat, or `nan`")
    'a-the-loss-is-flat-or-nan'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _ordered(kind: Kind) -> list[Cause]:
    return sorted(kind.causes, key=lambda cause: -cause.prior)


def _shared(kinds: Mapping[str, Kind]) -> dict[tuple[str, str, str], Cause]:
    """Return the causes that several kinds have word for word, most frequent first."""
    causes = {_words(cause): cause for kind in kinds.values() for cause in kind.causes}
    counts = Counter(_words(cause) for kind in kinds.values() for cause in kind.causes)
    return {words: causes[words] for words, count in counts.most_common() if count >= NUM_SHARING}


def _words(cause: Cause) -> tuple[str, str, str]:
    return cause.id, cause.text, cause.next_check


def _item(number: int, cause: Cause, shared: Mapping[tuple[str, str, str], Cause]) -> str:
    if _words(cause) in shared:
        item = f"{number}. [`{cause.id}`](#shared-causes): {cause.text}."
    else:
        item = f"{number}. `{cause.id}`: {cause.text}. *To tell:* {cause.next_check}."
    return fill(item, WIDTH, subsequent_indent="   ", break_long_words=False, break_on_hyphens=False) + "\n"


def _index(text: str, by_anchor: Mapping[str, Kind]) -> str:
    """List the chapters that have kinds, and their kinds by title."""
    lines: list[str] = []
    chapter = ""
    for match in re.finditer(r"^(##|###) (.+)$", text, re.MULTILINE):
        kind = by_anchor.get(anchor(match[2]))
        if match[1] == "##":
            chapter = match[2]
        elif kind is not None:
            if chapter:
                lines.append(f"- **[{chapter}](#{anchor(chapter)})**")
                chapter = ""
            lines.append(f"  - [{kind.title}](#{anchor(match[2])})")
    return "\n".join(lines)


def _replaced(text: str, name: str, content: str) -> str:
    start, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    before, _, rest = text.partition(start)
    return before + start + content + end + rest.partition(end)[2]


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(renew(page.read_text(encoding="utf-8")), encoding="utf-8")
