"""Cut text into BERT's uncased word pieces, in plain Python and in linear time."""

import re
import string
import unicodedata
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Generic, TypeVar

LONGEST_WORD = 100  # characters; BERT's own limit, which also keeps word pieces linear in the text
OPENING_CHARACTERS = 3
UNKNOWN = "[UNK]"
CACHED_WORDS = 32_768
CACHED_CHARACTERS = 8_192

_ASCII_PUNCTUATION = re.escape(string.punctuation)
_WORD = re.compile(rf"[^ \t\n\r{_ASCII_PUNCTUATION}]+|[{_ASCII_PUNCTUATION}]")
_SPECIAL = re.compile(r"[^\t\n\r\x20-\x7e]+")  # controls and everything past ASCII
# Unassigned characters (Cn) stay, so that a newer Python, which knows more of them, agrees.
_DROPPED = {"Cc", "Cf", "Co", "Cs"}
_IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)

Value = TypeVar("Value")


class WordPieces:
    """BERT's uncased tokenisation: split into words and marks, then greedily into known pieces."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        self._reach = _reach(vocabulary)
        self._unknown = (vocabulary[UNKNOWN],)
        self._cut_words = _Cache(self._cut, CACHED_WORDS)
        self._folded = _Cache(_fold, CACHED_CHARACTERS)

    def split(self, text: str) -> list[int]:
        """Numbers of the text's tokens, in order."""
        plain = _SPECIAL.sub(self._plain, text).lower()
        return list(chain.from_iterable(map(self._cut_words.__getitem__, _WORD.findall(plain))))

    def _plain(self, found: re.Match[str]) -> str:
        return "".join(map(self._folded.__getitem__, found[0]))

    def _cut(self, word: str) -> tuple[int, ...]:
        """Longest known piece first; a word with a part that no piece covers is unknown."""
        pieces: list[int] = []
        start = 0
        while start < len(word) <= LONGEST_WORD:
            piece, start = self._longest_piece(word, start)
            if piece is None:
                break
            pieces.append(piece)
        return tuple(pieces) if start == len(word) else self._unknown

    def _longest_piece(self, word: str, start: int) -> tuple[int | None, int]:
        """The longest piece that begins at `start`, if any, and where it ends."""
        prefix = "##" if start else ""
        opening = prefix + word[start : start + OPENING_CHARACTERS]
        reach = self._reach.get(opening, OPENING_CHARACTERS - 1)
        for end in range(min(len(word), start + reach), start, -1):
            piece = self._vocabulary.get(prefix + word[start:end])
            if piece is not None:
                return piece, end
        return None, start


def _reach(vocabulary: Mapping[str, int]) -> dict[str, int]:
    """Length of the longest piece with each opening, so that gibberish costs few look-ups."""
    longest: dict[str, int] = {}
    for token in vocabulary:
        mark = "##" if token.startswith("##") else ""
        opening = token[: len(mark) + OPENING_CHARACTERS]
        longest[opening] = max(longest.get(opening, 0), len(token) - len(mark))
    return longest


class _Cache(dict[str, Value], Generic[Value]):
    """Remembers what a function returned for up to `limit` keys, then starts afresh."""

    def __init__(self, compute: Callable[[str], Value], limit: int) -> None:
        super().__init__()
        self._compute = compute
        self._limit = limit

    def __missing__(self, key: str) -> Value:
        value = self._compute(key)
        if len(self) >= self._limit:
            self.clear()
        if len(key) <= LONGEST_WORD:  # a longer key could be the whole of a huge text
            self[key] = value
        return value


def _fold(character: str) -> str:
    """What a control or non-ASCII character becomes: nothing, a space, a base letter or a mark."""
    if unicodedata.category(character) in _DROPPED or character == "\ufffd":
        return ""
    if character.isspace():
        return " "
    letters = [c.lower() for c in unicodedata.normalize("NFD", character)]
    bare = "".join(
        f" {c} " if unicodedata.category(c).startswith("P") else c
        for c in letters
        if unicodedata.category(c) != "Mn"
    )
    return f" {bare} " if _is_ideograph(character) else bare


def _is_ideograph(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in _IDEOGRAPHS)
