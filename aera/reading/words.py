"""Answers in words: short texts, and yes or no, in one form each."""

import re
import unicodedata

from aera.reading.find import LONGEST

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
