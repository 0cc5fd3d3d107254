r"""One canonical form per kind of answer, so that equal answers are equal strings.

18, 18.0, $18, 36/2 and \frac{36}{2} are "18"; \text{B}, (B) and "B." are "B"; (1, 4.5) and
(1,\frac{9}{2}) are "(1,4.5)". What cannot be understood is None. Nothing here is clever: symbolic
equivalence is another matter and costs another process.
"""

import json
import re
import unicodedata
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate
from math import isfinite
from typing import Any

LONGEST = 400
"""Characters beyond which no answer is worth reading: an essay in a box is not an answer."""
LETTERS = "ABCDEFGHIJ"
_OR = "(?:or|ou|oder|maybe|perhaps|possibly|alternatively)"
OR = (
    rf"[ \t*_$)\]}}`\"',\u2013\u2014-]{{0,6}}\(?\b{_OR}"
    r"(?:,?[ ](?:maybe|perhaps|possibly|even|also|rather|alternatively))?,?[ ]"
)
"""What stands between an answer and another that might be meant, as in "5 (or 6)"."""

# What is canonical already, of whatever kind: most answers, and no work for them.
_PLAIN_NUMBER = re.compile(r"-?[1-9][0-9]{0,30}(?:\.[0-9]{0,9}[1-9])?|-?0\.[0-9]{0,9}[1-9]|0")
_WRAPPED = re.compile(r"(?:\$+|\\\(|\\\[)(.*?)(?:\$+|\\\)|\\\])", re.DOTALL)
_SPACE = re.compile(r"(?<!\\)\\[,;: ]|\\q?quad\b|~|\s+")
_STYLE = re.compile(r"\\(?:left|right|displaystyle|[bB]igg?[lr]?)(?![a-zA-Z])|\\!")
_TEXT = re.compile(
    r"\\(?:text\w{0,3}|math(?:rm|bf|it|sf)|mbox|boldsymbol|operatorname)\s*\{([^{}]*)\}"
)
_PYTHON_POWER = re.compile(r"(?<=[\w)])\*\*(?=[\w(])")
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degree|\u00b0")
_CURRENCY = r"$\u00a3\u00a5\u20a0-\u20bf"
_MONEY = re.compile(rf"\\?[%{_CURRENCY}]")
_NAMES = ("times", "cdot", "sqrt", "pi", "infty", "cup", "le", "ge")
_UNICODE = {ord(sign): f"\\{name} " for sign, name in zip("×·√π∞∪≤≥", _NAMES, strict=True)}
_MINUS = str.maketrans("\u2212\u2013", "--")
_UNICODE |= str.maketrans({"\u2212": "-", "\u2013": "-", "²": "^2", "³": "^3"})
_UNICODE |= str.maketrans({"½": " 1/2", "¼": " 1/4", "¾": " 3/4", "⅓": " 1/3", "⅔": " 2/3"})


def _plain(raw: str) -> str:
    """Without mathematical dress: wrapping dollars, spacing, style, degrees, currency, last dot."""
    text = raw.strip()
    if wrapped := _WRAPPED.fullmatch(text):
        text = wrapped[1]
    if not text.isascii():
        text = text.translate(_UNICODE)
    if "\\" in text:
        # \{ is spelled out, so that every brace left is one that groups.
        text = _STYLE.sub("", text.replace("\\{", "\\lbrace ")).replace("\\}", "\\rbrace ")
        text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    text = _PYTHON_POWER.sub("^", text)
    text = _MONEY.sub("", _DEGREES.sub("", text.replace("{,}", ",")))
    return _SPACE.sub(" ", text).strip().rstrip(".").strip()


# --- numbers --------------------------------------------------------------------------------------

_DECIMAL = r"\d+(?:\.\d+)?|\.\d+"
_SIGNED = rf"\{{\s*[-+]?\s*(?:{_DECIMAL})\s*\}}"
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALES |= {"lakh": 5, "crore": 7, "万": 4, "萬": 4, "만": 4, "亿": 8, "億": 8, "억": 8}
_SCALE = "|".join(f"{each}\\b" if each.isascii() else each for each in _SCALES)
_VALUE = re.compile(
    rf"""(?P<sign>[-+]?)\s*
    (?: (?P<whole>\d+)?\s*\\frac\s*(?P<above>{_SIGNED}|\d)\s*(?P<below>{_SIGNED}|\d)
      | (?:(?P<mixed>\d+)\s+(?=\d+\s*/))?
        (?P<num>{_DECIMAL})(?:\s*/\s*(?P<den>{_DECIMAL}))?
        (?:\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*\{{?(?P<power>[-+]?\d{{1,2}})\}}?
          |[eE](?P<exponent>[-+]?\d{{1,2}}))?
    )(?:\s*(?P<scale>{_SCALE}))?(?!\s*[百千천](?![克米瓦]))""",
    re.VERBOSE | re.IGNORECASE,
)
# As it stands in prose, where nothing may give back: 1,080 and 1 080 and 1.249,00.
_DIGITS = r"\d+(?:(?:[.,]|\{,\}|[ \u00a0\u2009\u202f](?=\d{3}(?![\w-])))\d+)*"
NUMBER = (
    r"(?:(?<![\w)])[-\u2212])?(?:\\[dtc]?frac\{-?\d{1,99}\}\{\d{1,99}\}"
    rf"|\\?[{_CURRENCY}]?(?:\d+\s\d+/\d+|\d*\s?[½¼¾⅓⅔]"
    rf"|(?:{_DIGITS}|\.\d+)(?:[eE][-+]?\d{{1,2}}\b|/\d+)?)"
    rf"(?:\s?(?:{_SCALE})|\s?(?:\u20ac|[eE]uros?\b))?)"
)
_GROUPED = re.compile(r"(?<![\d,.(\[])(?!0)\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+)(?!,?\d)")
_EUROS = re.compile(r"\u20ac|\b[eE]uros?\b|\bEUR\b")
_EUROPEAN = re.compile(r"(\d{1,3}(?:[.\s]\d{3})*|\d+),(\d\d?)(?!\d)|(\d{1,3}(?:\.\d{3})+)(?![\d,])")
_LAKHS = re.compile(r"\d{1,2}(?:,\d\d)+,\d{3}(?![\d,])")
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b")
_ANY_UNIT = re.compile(
    r"[ /]*(?:[^\W\d_]{2}|[\u3040-\ud7a3])[^\d=<>+*|(){}\[\],]*(?:\^\s*\{?\d\}?)?[^\W\d_ ]*"
)
_UNIT_TEXT = re.compile(
    rf"(?<=[^\s,(\[])\s*\\(?:text\w{{0,3}}|math(?:rm|bf)|mbox)\s*\{{(?!\s*(?:{_SCALE}))"
    r"[^{}\d]*\}\s*(?:\^\s*\{?\d\}?)?$"
)
_KNOWN_UNIT = re.compile(
    r"(?:square |sq |cubic |per )?(?:cm|mm|km|kg|ft|inch|inches|feet|foot|yards?|meters?|metres?|"
    r"miles?|degrees?|dollars?|cents?|units?|hours?|minutes?|seconds?|days?|weeks?|years?|mph|"
    r"percent|p\. ?m|a\. ?m|pounds?|grams?|points?|ways?|people|students?)"
    r"(?: per [a-z]{2,10})?(?:\s*\^\s*\{?\d\}?)?",
)
_NO_UNIT = re.compile(r"\b(?:and|or|pi|sqrt|to|plus|minus|times|over|sin|cos|tan|log|ln|mod)\b")
_SPELLED = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty"
)
SPELLED = {word: number for number, word in enumerate(_SPELLED.split())}
_EQUALS = re.compile(r"=|\\approx\b|\u2248|\babout\b|\bapproximately\b|\b[aA]nswer(?: is\b|:)")
_SEVERAL = re.compile(r",(?!\d{3})|;|\b(?:and|or|wrong|incorrect)\b")
_EXACT = Context(prec=LONGEST + 1)
_PAIRS = frozenset({"()", "[]", "{}", "**", "__", "``", '""', "''"})


def canonical_number(raw: str) -> str | None:
    r"""18, 18.0, $18, 36/2, \frac{36}{2} and "18 apples" are "18"; no percent leniency."""
    if _PLAIN_NUMBER.fullmatch(raw):
        return raw
    return _canonical_number(raw) if len(raw) <= LONGEST else None


@lru_cache(maxsize=65_536)
def _canonical_number(raw: str) -> str | None:
    if _EUROS.search(raw):  # 1.249,00 and 1.500: no price has three decimals
        raw = _EUROPEAN.sub(_english, raw)
    text = _SPACE.sub(" ", _TEXT.sub(r" \1 ", _UNIT_TEXT.sub("", _plain(raw))))
    *before, text = _EQUALS.split(text)
    if any(map(_SEVERAL.search, before)):  # "a = 2, b = 3" is no number
        return None
    text = _unwrap(text.strip())
    if _LAKHS.match(text):
        text = text.replace(",", "")
    if text.lower() in SPELLED:
        return str(SPELLED[text.lower()])
    value = _number(text, unit=_ANY_UNIT)
    return None if value is None else _write(value)


def is_rounded(one: str, other: str) -> bool:
    """Whether one canonical number is another to fewer places, as 0.33 is 1/3."""
    places = len(one.partition(".")[2])
    try:
        return places > 0 and round(Fraction(other), places) == Fraction(one)
    except ValueError:
        return False


def _english(match: re.Match[str]) -> str:
    whole = re.sub(r"\D", "", match[1] or match[3])
    return f"{whole}.{match[2]}" if match[2] else whole


def _unwrap(text: str) -> str:
    """Without brackets, quotes or emphasis around the whole of it."""
    while len(text) > 2 and text[0] + text[-1] in _PAIRS:
        text = text[1:-1].strip()
    return text


def _number(text: str, *, unit: re.Pattern[str]) -> Fraction | None:
    """The value of a text that is a number, perhaps with a unit behind it."""
    text = _ORDINAL.sub("", _GROUPED.sub(lambda match: re.sub("[, ]", "", match[0]), text))
    match = _VALUE.match(text)
    if not match:
        return None
    rest = text[match.end() :].strip().lower()
    if rest and (not unit.fullmatch(rest) or _NO_UNIT.search(rest)):
        return None
    return _value(match)


def _value(match: re.Match[str]) -> Fraction | None:
    above, below = (
        Fraction(re.sub(r"[{}\s]", "", part))
        for part in (match["above"] or match["num"], match["below"] or match["den"] or "1")
    )
    if not below:
        return None
    value = above / below * Fraction(10) ** int(match["power"] or match["exponent"] or 0)
    value += int(match["whole"] or match["mixed"] or 0)
    value *= Fraction(10) ** _SCALES.get((match["scale"] or "").lower(), 0)
    return -value if match["sign"] == "-" else value


def _write(value: Fraction) -> str | None:
    """Whole numbers and finite decimals as people write them, everything else as a fraction."""
    decimal = _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))
    finite = Fraction(decimal) == value
    written = f"{_EXACT.normalize(decimal):f}" if finite else str(value)
    return written if len(written) <= LONGEST else None


# --- choices --------------------------------------------------------------------------------------

_CHOICE = re.compile(
    r"""(?:(?:option|choice|answer)\b[\s:]*)?
    [(\[]?\s*([a-z])\s*(?: [)\]]?[.:]?
      | (?!\s*(?:[,/&]|[)\]]\s*(?:,|and|or|&|/))\s*[(\[]?[a-z]\b)      # "A, C", "(A) and (C)"
        (?: [)\]].* | [.:,]\s.* | \s[-\u2013\u2014]\s.* | -\s.*) )""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)


def canonical_choice(raw: str, letters: str = LETTERS) -> str | None:
    r"""One capital letter out of those allowed: B, (B), "B.", \text{B} and "B) bank" are "B"."""
    letter = raw if len(raw) == 1 else _letter(raw) if len(raw) <= LONGEST else ""
    return letter.upper() if letter and letter.upper() in letters else None


@lru_cache(maxsize=65_536)
def _letter(raw: str) -> str:
    text = _TEXT.sub(r"\1", _TEXT.sub(r"\1", _plain(raw))).strip("*_`\"'{} ")
    match = _CHOICE.fullmatch(text)
    return match[1] if match else ""


# --- expressions ----------------------------------------------------------------------------------

_JOINED = re.compile(
    r"\\(?:text\w{0,3}|mathrm|mbox)\s*\{\s*,?\s*(?:and|or)\s*\}|,?\s\b(?:and|or)\b\s"
)
_NAMED = re.compile(
    r"""\s*( [A-Za-z](?:_\{?\w{1,3}\}?)? | [A-Z]{2,4} | [a-zA-Z](?:'{0,2}|\^\{-1\})\([a-zA-Z]\)
      | \\(?:theta|alpha|beta|gamma|lambda|mu|phi|omega) | \\text\w{0,3}\{[^{}=]*\}
      | \([a-zA-Z](?:,[ ]?[a-zA-Z])+\)(?=[ ]?=) | m?[ ]?\\angle[ ]?[A-Z]{1,3}
      | [\d\s+*/-]+(?==[\s\d.,/-]+$) | (?=\\approx)
    )\s*(?:=|\\in\b|\\approx\b)([^=]*)""",
    re.VERBOSE,
)
_ALTERNATIVE = re.compile(rf"\(\s*{_OR}\b")
_SHORT_FRACTION = re.compile(r"(\\frac\s*(?:\{[^{}]*\})?)\s*(\d)")
_NEGATIVE = re.compile(r"\\frac\{\s*-\s*((?:[^-+{}]|\{[^{}]*\})*)\}(?=\{)")
_FUNCTION = re.compile(r"(\\(?:ln|log|sin|cos|tan)(?:_\w|_\{\w+\})?)\s*[{(](\w+)[)}](?![\w\\({^])")
_SHORT_ROOT = re.compile(r"\\sqrt\s*(\w)")
_SLASH = re.compile(r"(?<![\w}.)])(\d+)/(\d+)(?![\w.\\(])")
_POWER = re.compile(r"([\^_])\{(\w)\}")
_PRODUCT = re.compile(r"\s*(?:\*|\\(?:cdot|times)(?![a-zA-Z]))\s*(?:(?=(\d))|)")
# A space stays where without it two things became one: \\pi r, 1 2.
_NEEDED_SPACE = re.compile(r"(\\[a-zA-Z]+\s)\s*(?=[a-zA-Z])|(\d\s)\s*(?=\d)|\s+")
_SYMBOLS = {"lbrace": "{", "rbrace": "}", "leq": "le", "geq": "ge", "neq": "ne"}
_SYMBOLS |= {"leqslant": "le", "geqslant": "ge", "varnothing": "emptyset"}
_SYMBOL = re.compile(rf"(?<=\\)(?:{'|'.join(_SYMBOLS)})(?![a-zA-Z])")
_PLUS_MINUS = re.compile(r"\\pm(?![a-zA-Z])")
_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_DEEPEST = 4
_ROUNDS = 8


def canonical_expression(raw: str) -> str | None:
    r"""A mathematical expression without dress; numbers inside it become canonical numbers.

    A list without brackets is in no order ("1, -1" is "-1, 1"); a tuple or interval keeps its own.
    """
    if _PLAIN_NUMBER.fullmatch(raw):
        return raw
    return _canonical_expression(raw) if len(raw) <= LONGEST else None


@lru_cache(maxsize=65_536)
def _canonical_expression(raw: str) -> str | None:
    """Undressed until nothing is left to take off: what is canonical stays as it is."""
    if _ALTERNATIVE.search(raw):
        return None
    text = raw
    for _ in range(_ROUNDS):
        before, text = text, _expression(_UNIT_TEXT.sub("", _plain(text)))
        if text == before or _PLAIN_NUMBER.fullmatch(text):
            return text or None
        if len(text) > LONGEST:
            return None
    return None


def _expression(text: str, depth: int = 0) -> str:
    text = _JOINED.sub(", ", text).strip()
    value = _number(text, unit=_KNOWN_UNIT)
    if value is not None:
        return _write(value) or ""
    if depth >= _DEEPEST:
        return _leaf(text)
    if len(parts := _split(text, "\\cup")) > 1:
        return "\\cup".join(sorted({_expression(part, depth + 1) for part in parts}))
    if not depth:
        text = _GROUPED.sub(lambda match: match[0].replace(",", ""), text)
    parts = _split(text, ",")
    if depth == 0 and (len(parts) > 1 or len(_PLUS_MINUS.findall(text)) == 1):
        return _list(parts)
    if named := _NAMED.fullmatch(text):
        return _expression(named[2], depth + 1)
    return _bracket(text, depth) or _leaf(text)


def _list(parts: list[str]) -> str:
    """A list in no order. Joined by comma and space: "1, 234" is not the number 1,234."""
    names = [named[1] if (named := _NAMED.fullmatch(part)) else None for part in parts]
    # The names of x = 2, y = 3 matter; in x = 1, 2 there is one.
    one = len({*names} - ({None} if names[0] else set())) == 1
    read = partial(_expression, depth=1) if one else _leaf
    # Plus-minus stands for two values.
    values = {_PLUS_MINUS.sub(sign, part, 1) for part in parts for sign in "+-"}
    return ", ".join(sorted({read(value) for value in values}))


def _bracket(text: str, depth: int) -> str | None:
    """A tuple, an interval, a set, whose order does not count, or a choice like (B)."""
    inner = _unbracket(text)
    if not inner:
        return None
    parts = [_expression(part, depth + 1) for part in _split(inner, ",")]
    if text.startswith("\\lbrace"):
        return "\\{" + ",".join(sorted(set(parts))) + "\\}"
    if len(parts) > 1:
        return text[0] + ",".join(parts) + text[-1]
    return parts[0] if len(parts[0]) == 1 and parts[0].isalpha() else None


def _unbracket(text: str) -> str | None:
    """What stands between the outermost brackets, when they enclose everything."""
    if text.startswith("\\lbrace") and text.endswith("\\rbrace"):
        return text[7:-7]
    if len(text) < 3 or text[0] not in "([" or text[-1] not in ")]":
        return None
    depths = accumulate(_BRACKETS.get(character, 0) for character in text[:-1])
    return text[1:-1] if all(depths) else None


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators that stand in no bracket."""
    parts: list[str] = []
    depth = 0
    for part in text.split(separator):
        if depth > 0:
            parts[-1] += separator + part
        else:
            parts.append(part)
        counted = part.replace("\\lbrace", "{").replace("\\rbrace", "}")
        depth += sum(_BRACKETS.get(character, 0) for character in counted)
    return parts


def _leaf(text: str) -> str:
    """One expression: short forms spelled out, spaces and needless signs removed."""
    text = text.strip().removeprefix("+")
    if "\\" in text:
        text = _SYMBOL.sub(lambda match: _SYMBOLS[match[0]], _TEXT.sub(r"\1", text))
        # What is above the line, then what is below it.
        text = _SHORT_FRACTION.sub(r"\1{\2}", _SHORT_FRACTION.sub(r"\1{\2}", text))
        text = _SHORT_ROOT.sub(r"\\sqrt{\1}", text)
        text = _FUNCTION.sub(r"\1 \2", _NEGATIVE.sub(r"-\\frac{\1}", text))
    # A product needs its sign only before a digit: 2 \cdot 3 is not 23.
    text = _PRODUCT.sub(lambda match: "\\cdot" if match[1] else " ", text)
    text = _NEEDED_SPACE.sub(r"\1\2", _SLASH.sub(r"\\frac{\1}{\2}", text.strip()))
    text = _POWER.sub(r"\1\2", text)
    if text.isalpha() and len(text) > 1 and (len(text) > 3 or text.istitle()):
        return text.lower()
    return _monomial(text) or text


# --- a number times a root times a symbol ---------------------------------------------------------

_ROOT, _LETTER = r"\\sqrt\{\d{1,6}\}", r"\\pi|[a-zA-Z]"
_FACTORS = rf"(?:{_DECIMAL})?(?:{_ROOT})?(?:{_LETTER})?(?:{_ROOT})?"
_MONOMIAL = re.compile(
    rf"(-?)(?:\\frac\{{({_FACTORS})\}}\{{({_FACTORS})\}}({_FACTORS})|({_FACTORS})(?:/({_FACTORS}))?)"
)
_FACTOR = re.compile(rf"({_DECIMAL})|\\sqrt\{{(\d+)\}}|({_LETTER})")


def _monomial(text: str) -> str | None:
    r"""\frac{1}{\sqrt{3}} and \sqrt{3}/3, \frac{2}{3}\pi and 2\pi/3, \sqrt{12} and 2\sqrt{3}."""
    match = _MONOMIAL.fullmatch(text)
    if not match or not text:
        return None
    above = "".join(part or "" for part in match.group(2, 4, 5))
    below = match[3] or match[6] or ""
    if match[3] == "" or match[2] == "" or (match[6] == "" and "/" in text):
        return None
    value, radicand, letters = _product(above)
    divisor, root, letters_below = _product(below)
    radicand *= root
    if not divisor * radicand or letters_below or len(letters) > 1:
        return None
    square = next(each for each in range(99, 0, -1) if radicand % (each * each) == 0)
    value, radicand = value * Fraction(square, root) / divisor, radicand // (square * square)
    if not value or (not letters and radicand == 1):
        return _write(-value if match[1] else value)
    symbols = (f"\\sqrt{{{radicand}}}" if radicand > 1 else "") + "".join(letters)
    top = f"{value.numerator if value.numerator != 1 else ''}{symbols}"
    return match[1] + (top if value.denominator == 1 else f"\\frac{{{top}}}{{{value.denominator}}}")


def _product(text: str) -> tuple[Fraction, int, list[str]]:
    """Coefficient, number under the root, and symbols of a product."""
    value, radicand, letters = Fraction(1), 1, []
    for number, root, letter in _FACTOR.findall(text):
        value *= Fraction(number or 1)
        radicand *= int(root or 1)
        letters += [letter] if letter else []
    return value, radicand, letters


# --- short texts ----------------------------------------------------------------------------------

WORDS = ("case", "punctuation", "articles")
"""What does not count when short texts are compared."""
NORMALISATIONS = (*WORDS, "accents")
"""What may be taken off a short text before it is compared; white space always is."""
_PUNCTUATION = re.compile(
    # What stays is 1,080 and 3.5, -5 and .5, but not the comma of [1,2] nor the hyphen of Covid-19.
    r"[^\w\s%$€£°+/=<>.,-]|(?<!\d),|,(?!\d{3}(?!\d))|(?<=[^\W\d])[.-]|[.-](?!\d)"
)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)
_YES = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}
_FIRST_WORD = re.compile(
    r"[\s*_\"'`$({\[]*+(?:\\(?:text|mathrm)\{)?\s*+([a-z]++)"
    r"(?!\s(?:idea|clue|problem|clear|doubt|answer|information|one)\b|,\s(?:wait|actually|hmm)\b"
    rf"|(?:{OR}[*_$(]{{0,3}}|\sand\s|/)(?:yes|no|true|false)\b)",
    re.IGNORECASE,
)


def canonical_text(raw: str, normalise: tuple[str, ...]) -> str | None:
    """A short text without what does not count; None where nothing, or too much, is left."""
    if len(raw) > LONGEST:
        return None
    text = unicodedata.normalize("NFKC", _TEXT.sub(r"\1", raw)).translate(_MINUS)
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


# --- JSON values ----------------------------------------------------------------------------------

EXACT = 2**53
"""Beyond this, a whole number and a fraction that look alike need not be equal."""


def canonical_json(value: Any) -> str | None:
    """One text for equal JSON values, whatever the order of keys, the spacing and 1 or 1.0."""
    try:
        return _ENCODER.encode(value)
    except RecursionError:
        return None


def _json_number(written: str) -> int | float:
    number = float(written)
    if not isfinite(number):
        raise ValueError(f"{written:.40} is beyond all numbers")
    return int(number) if number.is_integer() and abs(number) <= EXACT else number


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
JSON = json.JSONDecoder(parse_float=_json_number, parse_constant=_refuse)
"""Reads values of which whole numbers are the same however they are written."""
