r"""One canonical form per kind of answer, so that equal answers are equal strings.

18, 18.0, $18, 36/2 and \frac{36}{2} are "18"; \text{B}, (B) and "B." are "B"; (1, 4.5) and
(1,\frac{9}{2}) are "(1,4.5)". What cannot be understood is None. Nothing here is clever: symbolic
equivalence is another matter and costs another process.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from aera.answer import LONGEST

LETTERS = "ABCDEFGHIJ"

_INTEGER = re.compile(r"-?[1-9]\d{0,30}|0")
_WRAPPED = re.compile(r"(?:\$+|\\\(|\\\[)(.*?)(?:\$+|\\\)|\\\])", re.DOTALL)
_SPACE = re.compile(r"\\[,;: ]|\\q?quad\b|~|\s+")
_STYLE = re.compile(r"\\(?:left|right|displaystyle|bigl?|bigr?|!)(?![a-z])")
_TEXT = re.compile(r"\\(?:text\w{0,3}|math(?:rm|bf|it|sf)|mbox|operatorname)\s*\{([^{}]*)\}")
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degree|\u00b0")
_FRACTION = re.compile(r"\\[dtc]frac")
_MONEY = re.compile(r"\\?[$%\u20ac\u00a3]")


def _plain(raw: str) -> str:
    """Without mathematical dress: wrapping dollars, spacing, style, degrees, currency, last dot."""
    text = raw.strip()
    if wrapped := _WRAPPED.fullmatch(text):
        text = wrapped[1]
    text = text.replace("{,}", ",").replace("\u2212", "-").replace("\\{", "\\lbrace ")
    text = _STYLE.sub("", text).replace("\\}", "\\rbrace ")
    text = _FRACTION.sub(r"\\frac", _DEGREES.sub("", text))
    return _SPACE.sub(" ", _MONEY.sub("", text)).strip().rstrip(".").strip()


# --- numbers --------------------------------------------------------------------------------------

_DECIMAL = r"\d+(?:\.\d*)?|\.\d+"
_VALUE = re.compile(
    rf"""(?P<sign>[-+]?)\s*
    (?:(?P<whole>\d+)\s*(?=\\frac)|(?P<mixed>\d+)\s+(?=\d+\s*/))?
    (?: \\frac\s*(?:\{{\s*(?P<fsign>[-+]?)\s*(?P<fnum>{_DECIMAL})\s*\}}|\s*(?P<fnum1>\d))
        \s*(?:\{{\s*(?P<fden>{_DECIMAL})\s*\}}|(?P<fden1>\d))
      | (?P<num>{_DECIMAL})(?:\s*/\s*(?P<den>{_DECIMAL}))?
        (?:\s*(?:\\times|\\cdot|\*|\u00d7)\s*10\s*\^\s*\{{?(?P<power>[-+]?\d{{1,2}})\}}?
          |[eE](?P<exponent>[-+]?\d{{1,2}}))?
    )""",
    re.VERBOSE,
)
_GROUPED = re.compile(r"(?<![\d,.])\d{1,3}(?:(?:,\d{2,3})*,\d{3}|(?: \d{3})+)(?![\d,])")
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b")
_ANY_UNIT = re.compile(r"[ /]*[^\W\d_]{2}[^\d=<>+*|(){}\[\],]*(?:\^\s*\{?\d\}?)?[^\W\d_ ]*")
_KNOWN_UNIT = re.compile(
    r"(?:square |sq |cubic |per )?(?:cm|mm|km|kg|ft|inch|inches|feet|foot|yards?|meters?|metres?|"
    r"miles?|degrees?|dollars?|cents?|units?|hours?|minutes?|seconds?|days?|weeks?|years?|mph|"
    r"percent|p\. ?m|a\. ?m|pounds?|grams?|points?|ways?|people|students?)"
    r"(?: per [a-z]{2,10})?(?:\s*\^\s*\{?\d\}?)?",
)
_NO_UNIT = re.compile(r"\b(?:and|or|pi|sqrt|to|plus|minus|times|over|sin|cos|tan|log|ln|mod)\b")


@lru_cache(maxsize=65_536)
def canonical_number(raw: str) -> str | None:
    r"""18, 18.0, $18, 36/2, \frac{36}{2} and "18 apples" are "18"; no percent leniency."""
    if _INTEGER.fullmatch(raw):
        return raw
    if len(raw) > LONGEST:
        return None
    text = _TEXT.sub(r" \1 ", _plain(raw).rpartition("=")[2])
    value = _number(_SPACE.sub(" ", text).strip(), unit=_ANY_UNIT)
    return None if value is None else _written(value)


def _number(text: str, *, unit: re.Pattern[str]) -> Fraction | None:
    """The value of a text that is a number, perhaps with a unit behind it."""
    text = _GROUPED.sub(lambda match: re.sub("[, ]", "", match[0]), text)
    text = _ORDINAL.sub("", text)
    match = _VALUE.match(text)
    if not match:
        return None
    rest = text[match.end() :].strip(" .").lower()
    if rest and (not unit.fullmatch(rest) or _NO_UNIT.search(rest)):
        return None
    return _value(match)


def _value(match: re.Match[str]) -> Fraction | None:
    value = Fraction(match["num"] or match["fnum"] or match["fnum1"])
    if below := match["den"] or match["fden"] or match["fden1"]:
        if not Fraction(below):
            return None
        value /= Fraction(below)
    value *= Fraction(10) ** int(match["power"] or match["exponent"] or 0)
    value += int(match["whole"] or match["mixed"] or 0)
    return -value if (match["sign"] == "-") != (match["fsign"] == "-") else value


def _written(value: Fraction) -> str:
    """Whole numbers and finite decimals as people write them, everything else as a fraction."""
    twos = (value.denominator & -value.denominator).bit_length() - 1
    rest, fives = value.denominator >> twos, 0
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    if not (places := max(twos, fives)):
        return str(value.numerator)
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


# --- choices --------------------------------------------------------------------------------------

_CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\b[\s:]*)?[(\[]?\s*([A-Za-z])\s*(?:[)\].:,]\s*.*|[)\]]?)",
    re.IGNORECASE | re.DOTALL,
)


@lru_cache(maxsize=65_536)
def canonical_choice(raw: str, letters: str = LETTERS) -> str | None:
    r"""One capital letter out of those allowed: B, (B), "B.", \text{B} and "B) bank" are "B"."""
    if len(raw) > LONGEST:
        return None
    text = _TEXT.sub(r"\1", _TEXT.sub(r"\1", _plain(raw))).strip("*_`\"'{} ")
    match = _CHOICE.fullmatch(text)
    letter = match[1].upper() if match else ""
    return letter if letter and letter in letters else None


# --- expressions ----------------------------------------------------------------------------------

_UNIT_TEXT = re.compile(
    r"(?<=[^\s,(\[])\s*\\(?:text\w{0,3}|math(?:rm|bf)|mbox)\s*\{[^{}\d]*\}\s*(?:\^\s*\{?\d\}?)?$"
)
_JOINED = re.compile(
    r"\\(?:text\w{0,3}|mathrm|mbox)\s*\{\s*,?\s*(?:and|or)\s*\}|,?\s\b(?:and|or)\b\s"
)
_NAMED = re.compile(
    r"\s*(?:[A-Za-z](?:_\{?\w{1,3}\}?)?|[a-zA-Z]\([a-zA-Z]\))\s*(?:=|\\in\b)([^=]*)"
)
_SHORT_FRACTION = re.compile(r"\\frac\s*(?:(\d)|\{([^{}]*)\})\s*(?:(\d)|\{([^{}]*)\})")
_SHORT_ROOT = re.compile(r"\\sqrt\s*(\w)")
_SLASH = re.compile(r"(?<![\w}.])(\d+)/(\d+)(?![\w.])")
_POWER = re.compile(r"([\^_])\{(\w)\}")
_PRODUCT = re.compile(
    r"(?<!\d)\s*(?:\*|\\cdot\b|\\times\b)\s*|\s*(?:\*|\\cdot\b|\\times\b)\s*(?!\d)"
)
_SYMBOLS = {"\\lbrace": "\\{", "\\rbrace": "\\}", "\\leq": "\\le", "\\geq": "\\ge", "\\neq": "\\ne"}
_SYMBOL = re.compile(r"\\(?:lbrace|rbrace|leq|geq|neq)(?![a-z])")
_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_DEEPEST = 4


@lru_cache(maxsize=65_536)
def canonical_expression(raw: str) -> str | None:
    r"""A mathematical expression without dress; numbers inside it become canonical numbers.

    A list without brackets is in no order ("1, -1" is "-1, 1"); a tuple or interval keeps its own.
    """
    if _INTEGER.fullmatch(raw):
        return raw
    if len(raw) > LONGEST:
        return None
    return _expression(_UNIT_TEXT.sub("", _plain(raw)), depth=0) or None


def _expression(text: str, *, depth: int) -> str:
    text = _JOINED.sub(",", text).strip()
    if named := _NAMED.fullmatch(text):
        text = named[1].strip()
    value = _number(text, unit=_KNOWN_UNIT)
    if value is not None:
        return _written(value)
    parts = list(_split(text))
    if len(parts) > 1 and depth < _DEEPEST:
        return ",".join(sorted(set(_each(parts, depth=depth))))
    if inner := _unbracketed(text):
        return _bracketed(text, inner, depth=depth) if depth < _DEEPEST else _leaf(text)
    return _leaf(text)


def _each(parts: list[str], *, depth: int) -> Iterator[str]:
    """The canonical parts of a list; plus-minus stands for two of them."""
    for part in parts:
        if part.strip().startswith("\\pm"):
            rest = part.strip()[3:]
            yield _expression(rest, depth=depth + 1)
            yield _expression(f"-{rest.strip()}", depth=depth + 1)
        else:
            yield _expression(part, depth=depth + 1)


def _bracketed(text: str, inner: str, *, depth: int) -> str:
    """A tuple, an interval, or a set, whose order does not count."""
    is_set = text.startswith("\\lbrace")
    parts = [_expression(part, depth=depth + 1) for part in _split(inner)]
    if is_set:
        return "\\{" + ",".join(sorted(parts)) + "\\}"
    if len(parts) == 1 and len(parts[0]) == 1 and parts[0].isalpha():
        return parts[0]
    return text[0] + ",".join(parts) + text[-1] if len(parts) > 1 else _leaf(text)


def _unbracketed(text: str) -> str | None:
    """What stands between the outermost brackets, when they enclose everything."""
    if text.startswith("\\lbrace") and text.endswith("\\rbrace"):
        return text[7:-7]
    if len(text) < 3 or text[0] not in "([" or text[-1] not in ")]":
        return None
    depth = 0
    for place, character in enumerate(text):
        depth += _BRACKETS.get(character, 0)
        if depth == 0 and place < len(text) - 1:
            return None
    return text[1:-1]


def _split(text: str) -> Iterator[str]:
    """The parts between commas that stand in no bracket."""
    depth = start = 0
    for place, character in enumerate(
        text.replace("\\lbrace", "      {").replace("\\rbrace", "      }")
    ):
        depth += _BRACKETS.get(character, 0)
        if character == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def _leaf(text: str) -> str:
    """One expression: short forms spelled out, spaces and needless signs removed."""
    text = _SYMBOL.sub(lambda match: _SYMBOLS[match[0]], _TEXT.sub(r"\1", text))
    text = _SHORT_FRACTION.sub(_spell_fraction, text)
    text = _SHORT_ROOT.sub(r"\\sqrt{\1}", text)
    text = _SLASH.sub(r"\\frac{\1}{\2}", _PRODUCT.sub("", text))
    text = _POWER.sub(r"\1\2", "".join(text.split()))
    return text.lower() if len(text) > 3 and text.isalpha() else text


def _spell_fraction(match: re.Match[str]) -> str:
    above, below = (match[1] or match[2] or "").strip(), (match[3] or match[4] or "").strip()
    if above.startswith("-"):
        return f"-\\frac{{{above[1:].strip()}}}{{{below}}}"
    return f"\\frac{{{above}}}{{{below}}}"
