r"""Find what a text gives as its answer: in a box, after a phrase, behind a marker.

What is found is returned as written; `aera.canonical` decides what it means. Every function is
linear in the length of the text.
"""

import re
from collections.abc import Iterator

LONGEST = 400
"""Characters beyond which no answer is worth reading: an essay in a box is not an answer."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"[-\w.][^\s${}\\]*")


def visible(text: str) -> str:
    """The text without its thinking section: whatever follows the last `</think>`.

    A section that is opened and never closed hides everything behind it.
    """
    if "think>" not in text:
        return text
    shown = text.rpartition("</think>")[2]
    return shown.partition("<think>")[0]


def last_boxed(text: str) -> str | None:
    r"""The content of the last brace-matched, non-empty \boxed{} or \fbox{}, as written."""
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    box = _BOX.match(text, start)
    if box and text.startswith("{", box.end()):
        end = _closing_brace(text, box.end())
        if end is not None and (content := text[box.end() + 1 : end].strip()):
            return content
    found = [(place, content) for place, content in _boxes(text) if content]
    return max(found)[1] if found else None


def _closing_brace(text: str, opening: int) -> int | None:
    depth = 0
    for brace in _BRACE.finditer(text, opening):
        if brace[0] == "{":
            depth += 1
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                return brace.start()
    return None


def _boxes(text: str) -> Iterator[tuple[int, str]]:
    """Every box with its place, by one pass over all braces; a box may also have none."""
    openings = {box.end(): box.start() for box in _BOX.finditer(text)}
    stack: list[int] = []
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            stack.append(brace.start())
        elif brace[0] == "}" and stack:
            opening, end = stack.pop(), brace.start()
            # Longer boxes are not read, so a thousand nested ones cost no more than their text.
            if opening in openings and end - opening <= LONGEST:
                yield openings[opening], text[opening + 1 : end].strip()
    for end, start in openings.items():
        if bare := _BARE.match(text, end, end + LONGEST):
            yield start, bare[0]


_PHRASE = re.compile(
    r"\b(?:answer|option|choice)\**\s{0,4}(?:(?:is|was)\b\s{0,4}:?|[:=])\**([^\n]{1,80})",
    re.IGNORECASE,
)
_HASHES = re.compile(r"####([^\n]{1,80})")
_DIGITS = r"[-\u2212]?\$?\d(?:[\d,]*\d)?(?:\.\d+)?(?:/\d+)?"
_NUMBER = re.compile(_DIGITS)
_LEADING_NUMBER = re.compile(rf"[\s*$\\(\[:]{{0,8}}({_DIGITS})")
_LEADING_CHOICE = re.compile(
    r"[\s*$\\(\[:\"']{0,8}(?:(?:option|choice)\s)?(?:(?:text|mathrm|mathbf)\{)?\(?([A-Za-z])(?![\w'])",
    re.IGNORECASE,
)
_LEADING_MATH = re.compile(r"[\s*:]{0,8}(?:\$([^$]{1,80})\$|\\\((.{1,80}?)\\\)|(\S.*))")


def stated_number(text: str) -> str | None:
    """The last number that follows "answer is", "Answer:" or "####"."""
    return _first_group(_LEADING_NUMBER, text)


def stated_choice(text: str) -> str | None:
    """The last letter that follows such a phrase."""
    return _first_group(_LEADING_CHOICE, text)


def stated_expression(text: str) -> str | None:
    """The last expression that follows such a phrase."""
    found = _first_group(_LEADING_MATH, text)
    return found.strip().rstrip(".*") if found else None


def _first_group(pattern: re.Pattern[str], text: str) -> str | None:
    """What `pattern` finds right behind the last phrase where it finds anything."""
    places = [*_PHRASE.finditer(text), *_HASHES.finditer(text)]
    for place in sorted(places, key=lambda place: place.start(), reverse=True):
        if match := pattern.match(place[1]):
            return next(group for group in match.groups() if group is not None)
    return None


def last_number(text: str) -> str | None:
    """The last number anywhere in the text: the weakest way to read an answer."""
    found = _NUMBER.findall(text)
    return found[-1] if found else None
