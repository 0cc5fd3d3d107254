"""Find what a text gives as its answer: in a box, after a phrase, behind a marker.

What is found is returned as written; `aera.reading.canonical` decides what it means. Every
function is linear in the length of the text: no pattern repeats without a bound over what it may
give back.
"""

import re
import unicodedata
from collections import deque
from collections.abc import Iterator

LONGEST = 400
"""Characters beyond which no answer is worth reading: an essay in a box is not an answer."""

_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s{0,9}(?=(?:\{([^{}\\]*)\})?)")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"[-\w.][^\s${}\\]{0,99}")


def visible(text: str) -> str:
    """The text without its thinking section: whatever follows the last `</think>`.

    A section that is opened and never closed hides everything behind it.
    """
    if "think>" not in text:
        return text
    shown = text.rpartition("</think>")[2]
    return shown.partition("<think>")[0]


def last_boxed(text: str) -> str | None:
    r"""The content of the last brace-matched, non-empty \boxed{} or \fbox{}, as written.

    Goes from the last box to the first and looks at every brace once: the closing braces seen so
    far and not yet used up by an opening one wait in a stack.
    """
    closing: list[int] = []
    end = len(text)
    for box in _boxes(text):
        if box[1] and (content := box[1].strip()):  # no brace inside: nothing to match
            return content
        start, opening = box.span()
        braced = text.startswith("{", opening)
        _close(text, opening + braced, end, closing)
        if not braced:
            if bare := _BARE.match(text, opening):
                return bare[0]
        elif closing and (content := text[opening + 1 : closing.pop()].strip()):
            return content
        end = start
    return None


def _boxes(text: str) -> Iterator[re.Match[str]]:
    r"""Every \boxed and \fbox from the last to the first, by what the two have in common."""
    place = text.rfind("box")
    while place > 0:
        if box := _BOX.match(text, place - 1 if text[place - 1] == "\\" else max(0, place - 2)):
            yield box
        place = text.rfind("box", 0, place)


def _close(text: str, start: int, end: int, closing: list[int]) -> None:
    """Match the braces of a stretch, backwards, with each other and those that wait behind it."""
    # Places, not matches: a hundred thousand objects would keep the garbage collector busy.
    braces = [brace.start() for brace in _BRACE.finditer(text, start, end) if brace[0] in "{}"]
    for place in reversed(braces):
        if text[place] == "}":
            closing.append(place)
        elif closing:
            closing.pop()


# --- phrases and markers --------------------------------------------------------------------------

_PLACE = re.compile(
    r"\b(?:answer|option|choice)[*_]{0,3}\s{0,4}(?:(?:is|was)\b|[:=])[*_]{0,3}:?[*_]{0,3}"
    r"(?:\s(?:most likely|likely|probably|therefore|thus|about|approximately)\b)?"
    # "#### 18" gives an answer, "#### 2. Add them up" is a heading.
    r"|####(?![ \t]{0,4}\d{1,3}[.):][ \t]\w)",
    re.IGNORECASE,
)
_MOST_PLACES = 100
"""Phrases that are looked at, from the end of the text."""
_DRESS = r"[\s*_$\\(\[:]{0,8}"
_NUMBER = (
    r"(?:(?<![\w)])[-\u2212])?(?:\\[dtc]?frac\{-?\d{1,99}\}\{\d{1,99}\}"
    r"|\$?(?:\d+(?:(?:,|\{,\})\d+)*(?:\.\d+)?|\.\d+)(?:/\d+)?)"
)
# Atomic, lest "15 or 16" be read as 1; behind a chain of equations, as in "5 + 3 = 8".
_STATED_NUMBER = re.compile(
    rf"(?:(?:[A-Za-z]\b|[-+*/\u00d7\d\s.,$()]){{1,60}}=){{0,3}}{_DRESS}((?>{_NUMBER}))"
    r"(?!\s{0,3}(?:(?:or|to|and)\s{1,3}[$\d]|[-+*/^=\u00d7]\s{0,3}[\d($\\]|[a-z]\b|\\[a-z]))"
)
_ANY_NUMBER = re.compile(_NUMBER)


def stated_number(text: str) -> str | None:
    """The last number that follows "answer is", "Answer:" or "####"."""
    return next((match[1] for match in _behind(_STATED_NUMBER, text)), None)


def last_number(text: str) -> str | None:
    """The last number anywhere in the text: the weakest way to read an answer."""
    found = None
    for found in _ANY_NUMBER.finditer(text):  # noqa: B007
        pass
    return found[0] if found else None


# A lone "A" or "I" may be a word of English and any lower-case letter a variable, so these must
# look like a choice; other capitals may be followed by anything but a second choice.
_STATED_CHOICE = re.compile(
    r"""[\s*_$"'`:]{0,8}(?:(?:[Oo]ption|[Cc]hoice|[Ll]etter)[\s*:]{1,3})?
    (?: [(\[]\s?([A-Za-z])\s?[)\]]
      | \\(?:text|math)(?:rm|bf|it)?\{\s?\(?([A-Za-z])\)?\s?\}
      | ([B-HJ-Z])(?![\w'\u2019+/])
      | ([AI])(?=\s{0,3}(?:[.,:;!()\]*_$"`\\\u2013-]|'(?!\w)|(?:because|since|as)\b)
          |[ \t]{0,9}(?:\n|\Z))
      | ([a-z])(?=\)|[.*_$"'`]{0,5}[ \t]{0,9}(?:\n|\Z))
    )(?!\s{0,3}(?:[,/&]|and\b|or\b)\s{0,3}\(?[A-Z]\b)""",
    re.VERBOSE,
)


def stated_choice(text: str) -> str | None:
    """The last letter that follows such a phrase; an article or a pronoun is no letter."""
    return next((match[match.lastindex or 0] for match in _behind(_STATED_CHOICE, text)), None)


# Without dollars a formula ends where prose begins: at a word, or at the dot of a sentence.
_FORMULA = re.compile(
    r"""[\s*_:]{0,8}
    (?: \$\$?([^$\n]{1,200})\$ | \\\(((?:[^\\\n]|\\[^)\n]){1,200})\\\)
      | \\\[((?:[^\\]|\\[^\]]){1,200})\\\]
      | ((?>(?:\\[a-zA-Z]+|\\[^\n]|(?:and|or)\b|[a-zA-Z](?![a-zA-Z])
          |[^a-zA-Z\\.\n]|\.(?=\d)){1,200}))
        (?:(?<![rd]\s)(?=[a-zA-Z])|\.|\n|\Z)
    )""",
    re.VERBOSE,
)
_MATH = re.compile(r"\d|\\[a-zA-Z]")


def stated_expression(text: str) -> str | None:
    """The last formula that follows such a phrase; a letter that begins a sentence is none."""
    for match in _behind(_FORMULA, text):
        if match[4] is None or _MATH.search(match[4]):
            return match[match.lastindex or 0].strip(" *_")
    return None


def phrase_ends(text: str) -> list[int]:
    """Where phrases and markers end behind which answers stand, from the last to the first."""
    return [*deque((place.end() for place in _PLACE.finditer(text)), maxlen=_MOST_PLACES)][::-1]


def _behind(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """What `pattern` finds right behind phrases and markers, from the last to the first."""
    for place in phrase_ends(text):
        if match := pattern.match(text, place):
            yield match


_TEXT = re.compile(r"[\s*_:\"'`$]{0,8}([^\n]{1,200})")
_SENTENCE = re.compile(r"[.!?](?=\s|[*_\"'`$)]{0,4}(?:\s|\Z))")
_YES_NO = re.compile(r"[\s*_:\"'`$(]{0,8}(yes|no|true|false)\b", re.IGNORECASE)
_EDGES = " \t*_`\"'$"


def stated_text(text: str) -> str | None:
    """What follows the last such phrase, to the end of its sentence or line."""
    for match in _behind(_TEXT, text):
        if said := _SENTENCE.split(match[1])[0].strip(_EDGES):
            return said
    return None


def stated_yes_no(text: str) -> str | None:
    """The last yes, no, true or false that follows such a phrase."""
    return next((match[1] for match in _behind(_YES_NO, text)), None)


def last_line(text: str) -> str | None:
    """The last line that says anything, without emphasis and quotes around it."""
    lines = text.rstrip().rsplit("\n", 1)
    said = lines[-1].strip(_EDGES)
    return said or None


NORMALISATIONS = ("case", "punctuation", "articles", "accents")
"""What may be taken off a short text before it is compared; white space always is."""
_PUNCTUATION = re.compile(r"[^\w\s%$€£°+/=<>.,-]|(?<!\d)[.,-]|[.,-](?!\d)")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)
_YES = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}
_FIRST_WORD = re.compile(r"[\s*_\"'`$({\[]*+(?:\\(?:text|mathrm)\{)?\s*+([a-z]++)", re.IGNORECASE)


def canonical_text(raw: str, normalise: tuple[str, ...]) -> str | None:
    """A short text without what does not count; None where nothing, or too much, is left."""
    if len(raw) > LONGEST:
        return None
    text = unicodedata.normalize("NFKC", raw)
    if "accents" in normalise:
        parts = unicodedata.normalize("NFD", text)
        text = "".join(each for each in parts if not unicodedata.combining(each))
    if "case" in normalise:
        text = text.casefold()
    if "punctuation" in normalise:
        text = _PUNCTUATION.sub(" ", text)
    if "articles" in normalise:
        text = _ARTICLES.sub(" ", text)
    return " ".join(text.split()) or None


def canonical_yes_no(raw: str) -> str | None:
    """yes or no, also for true and false, where a text begins with it."""
    first = _FIRST_WORD.match(raw)
    return _YES.get(first[1].casefold()) if first else None
