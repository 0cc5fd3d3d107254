"""Find what a text gives as its answer: in a box, after a phrase, behind a marker.

What is found is returned as written; `aera.reading.canonical` decides what it means. Every
function is linear in the length of the text: no pattern repeats without a bound over what it may
give back.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from aera.reading.canonical import (
    JSON,
    LETTERS,
    LONGEST,
    NUMBER,
    OR,
    SPELLED,
    WORDS,
    canonical_number,
    canonical_text,
)

TAIL = 16_000
"""Characters at the end of a text among which phrases are looked for."""
LAST = 2_000
"""Characters at its end that hold its last lines."""

# --- thinking -------------------------------------------------------------------------------------

THINKING = (
    ("<think>", "</think>", "DeepSeek-R1, Qwen3, QwQ, GLM-4.5, Kimi K2, MiniMax, Nemotron, Ernie"),
    ("<thinking>", "</thinking>", "prompts in Claude's manner, Reflection"),
    ("<thought>", "</thought>", "EXAONE Deep, Gemini and Gemma"),
    ("<reasoning>", "</reasoning>", "models trained with GRPO recipes"),
    ("<scratchpad>", "</scratchpad>", "prompts that ask for one"),
    ("<reflection>", "</reflection>", "Reflection"),
    ("[THINK]", "[/THINK]", "Magistral"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7", "Kimi k1.5 and Kimi-VL"),
    ("<seed:think>", "</seed:think>", "Seed-OSS"),
    ("<|begin_of_thought|>", "<|end_of_thought|>", "Sky-T1, OpenThinker"),
    ("<|START_THINKING|>", "<|END_THINKING|>", "Command A Reasoning"),
    ("<|thinking|>", "<|/thinking|>", "models with tags of pipes"),
    ("<|inner_prefix|>", "<|inner_suffix|>", "Apertus"),
    ("<|channel|>analysis", "<|channel|>final<|message|>", "gpt-oss"),
    ("<|channel|>commentary", "<|channel|>final<|message|>", "gpt-oss"),
    ("^analysis", "assistantfinal", "gpt-oss where its special tokens were removed"),
    ("Here is my thought process:", "Here is my response:", "Granite 3.2"),
    ("Here's my thought process:", "Here's my response:", "Granite 3.2"),
)
"""Where thinking begins and ends, in any letter case, and whose it is; ^ is the beginning."""
_BARE_CHANNEL = re.compile(r"analysis(?=[^\s:,.])")
_TAG = re.compile(r"\s*(<\|?[a-zA-Z][\w:-]{1,30}\|?>|\[[A-Z_]{2,20}\]|\u25c1\w{2,20}\u25b7)")
_KNOWN_TAG = re.compile(
    r"<(?:(?:final_)?answer|response|solution|output|final|tool_call|p|div|table"
    r"|\|(?:begin_of_\w+|start(?:_response)?|channel)\|)>"
)


@lru_cache(maxsize=64)
def _markers(own: tuple[str, ...], worded: bool) -> tuple[re.Pattern[str], dict[str, bool]]:
    """What finds the markers, by their first character first; and which of them open."""
    known = [each for each in THINKING if worded or each[0][0] not in "^H"]
    pairs = [*((first, last) for first, last, _ in known), *zip(own[::2], own[1::2], strict=True)]
    opens = {last.lower(): False for _, last in pairs}
    opens |= {first.lower(): True for first, _ in pairs if first[0] != "^"}
    firsts = "".join({first for each in opens for first in (each[0], each[0].upper())})
    rest = "|".join(re.escape(each[1:]) for each in sorted(opens, key=len, reverse=True))
    return re.compile(f"[{re.escape(firsts)}](?i:{rest})"), opens


def visible(text: str, own: tuple[str, ...] = ()) -> str:
    """The text without its thinking: what follows the last marker that closes some.

    A section that is opened and never closed hides everything. `own` are further markers, each
    that opens followed by the one that closes.
    """
    bare = _BARE_CHANNEL.match(text) is not None
    pattern, opens = _markers(own, bare or "my thought process:" in text)
    start, thinking = 0, bare
    for marker in pattern.finditer(text):
        thinking = opens.get(marker[0].lower(), thinking)
        start = start if thinking else marker.end()
    return "" if thinking else text[start:]


def opened_by_prompt(prompt: str, texts: Iterable[str], own: tuple[str, ...] = ()) -> str | None:
    """The marker by which a prompt opened the thinking of its responses; None where it did not.

    It ends the prompt, or a response closes it without having opened it.
    """
    pattern, opens = _markers(own, False)
    pairs = [(first, last) for first, last, _ in THINKING if "channel" not in first]
    found = {next(pattern.finditer(text), None) for text in texts}
    closed = {marker[0].lower() for marker in found if marker and not opens[marker[0].lower()]}
    ended = prompt[-LAST:].rstrip().lower()
    for first, last in [*pairs, *zip(own[::2], own[1::2], strict=True)]:
        if last.lower() in closed or (first[0] not in "^H" and ended.endswith(first.lower())):
            return first
    return None


def is_marked(text: str, own: tuple[str, ...] = ()) -> bool:
    """Whether a marker of thinking stands anywhere in a text."""
    return _markers(own, False)[0].search(text) is not None


def unknown_marker(text: str) -> str | None:
    """The tag a text begins with, where it is neither thinking nor an answer that is known of."""
    tag = _TAG.match(text)
    name = tag[1].lower() if tag else ""
    known = not name or _KNOWN_TAG.fullmatch(name) or name in _markers((), False)[1]
    return None if known else name


# --- boxes ----------------------------------------------------------------------------------------

_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s{0,9}(?=(?:\{([^{}\\]*)\})?)")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"[-\w.][^\s${}\\]{0,99}")


def last_boxed(text: str) -> str | None:
    r"""The content of the last brace-matched, non-empty \boxed{} or \fbox{}, as written."""
    return next((content for content, _, _ in boxes(text)), None)


def boxes(text: str) -> Iterator[tuple[str, int, int]]:
    """What every such box holds, where it begins and where its content ends, from the last on.

    Looks at every brace once: the closing braces seen so far and not yet used up by an opening
    one wait in a stack.
    """
    closing: list[int] = []
    end = len(text)
    place = text.rfind("box")
    while place > 0:
        box = _BOX.match(text, place - 1 if text[place - 1] == "\\" else max(0, place - 2))
        place = text.rfind("box", 0, place)
        if not box:
            continue
        start, opening = box.span()
        if box[1] and (content := box[1].strip()):  # no brace inside: nothing to match
            yield content, start, opening + len(box[1]) + 2
            if place > 0:
                _close(text, opening, end, closing)
            end = start
            continue
        braced = text.startswith("{", opening)
        _close(text, opening + braced, end, closing)
        if not braced:
            if bare := _BARE.match(text, opening):
                yield bare[0], start, bare.end()
        elif closing:
            stop = closing.pop()
            if content := text[opening + 1 : stop].strip():
                yield content, start, stop + 1
        end = start


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

_KEYS = (
    "answer option choice #### begin_of_box|> ponse respuesta resposta risposta antwort antwoord "
    "jibu ответ 答案 答え 正解 답 选 উত্তর उत्तर సమాధానం ตอบ إجابة جواب"
)
"""What every phrase and marker has in it, in lower case: answer in seventeen languages."""
_PLACE = re.compile(
    r"""(?:(?<![a-zA-Z])(?:answer|option|choice|respuesta|resposta|risposta|antwort|antwoord|jibu
          |ответ)|(?<=r[ée])ponse|答案|答え|正解|답|选项|ตอบ|উত্তর|उत्तर|సమాధానం|إجابة|جواب)
      (?:\s(?:final|corr?ec?t{1,2}|الصحيحة|النهائية)[ae]?|\sto\sth(?:e|is)\s\w+)?["'*_]{0,4}\s{0,4}
      (?:(?:is|was|(?:should|must|will)\sbe|est|es|ist|lautet|[\u00e8\u00e9]|ni|هي|هو)\b
        |[:=\uff1a\u2192是为為は은选]|คือ|হলো?|(?<=[\u0430-\u044f]\s)[\u2013\u2014]
        |(?<=[\u0900-\u0dff]\s)(?=[\dA-J(]))  # Hindi, Telugu: no word between
      [*_]{0,3}[:\uff1a]?[*_]{0,3}
      (?:\s(?:most\slikely|likely|probably|definitely|clearly|simply|therefore|thus|donc|also|about
          |approximately|roughly|around|exactly|at\sleast|at\smost|the\soption
          |la\sr[\u00e9e]ponse|la\sopci\u00f3n|a\sletra)\b)?
      (?:\snot\s[^\s,.;]{1,20},?\sbut\b)?
    |(?:(?<=<)|(?<=<final_))answer>|(?<=\[)answer\]|(?<=<\|)begin_of_box\|>
    |answer[*_\s]{0,4}$   # a heading
    |(?<=[故此以应])选(?!项)择?
    |\#\#\#\#(?![ \t]{0,4}\d{1,3}[.):][ \t]\w)   # "#### 18", but not the heading "#### 2. Add"
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_DENIED = re.compile(
    r"\b(?:(?:wrong|incorrect|(?:if|unless|suppose|whether) the)\s"
    r"|(?:each|every|one|another|other|previous) (?:answer )?)\Z",
    re.IGNORECASE,
)
_HEADING = re.compile(r"(?:^|\n)[#*_ \t]{0,8}(?:final\s)?\Z", re.IGNORECASE)
_DRESS = r"[\s*_$\\(\[:`\"']{0,8}(?:\\?(?:text|math)\w{0,3}\s?\{\s?)?[$\\]{0,2}"
_SPELLED = "|".join(each for each in SPELLED if each != "one")
_FOREIGN = r"[ ]?(?:或|和|到|、|と|または|와|과|또는|или|и|أو|و|या|और|หรือ)[ ]?"
"""And, or, to: where the question was asked in a language without spaces, or with other letters."""
_SEVERAL = r"""[ \t]{0,3}(?:
      (?:\*{0,2},?[ ]?\(?(?:or(?:[ ]\w{4,8}){0,2}|maybe|perhaps)|to|and|ou|oder)\s{1,3}
      (?:[a-z]\s?=\s?)?[-\u2212$\\*]{0,3}\d
    | or[ ](?:more|less|fewer)\b | [ \t](?:R|remainder|mod)[ ]\d | !\s?[=.] | x[\dA-F] | _\d
    | [\u00b2\u00b3\u00b1\u03c0\u2070-\u2079\u221a]
    | [-\u2013+*/^=\u00d7\u00f7:][ \t]{0,3}[\d({$\\] | ,?[ \t]?\d | '\d | (?:[b-z]|a\.m)\b
    | (?<=\d)[KMB]\b | [百万萬亿億만억]|[千천](?![克米瓦])
    | -?(?:and[ ]a[ ])?(?:dozen|hal(?:f|ves)|(?:third|quarter|fourth|fifth|sixth|eighth|tenth)s?)\b
    | \\(?!text|math|quad)[a-z]
    | \*{0,2}[ ]?(?!of|in|on|out|per|as|if|so|is|with|since|because)
      [a-z]{2,12},?[ ](?:and[ ])?\*{0,2}\d+\*{0,2}[ ][a-z])"""
_OPERATION = (
    rf"[ ]?(?:times|plus|minus|(?:divided|multiplied)[ ]by)[ ][-$\\]{{0,3}}(?:\d|(?:{_SPELLED})\b)"
)
_LETTER = (
    # A lone "A" or "I" may be a word of English and any lower-case letter a variable, so these must
    # look like a choice; other capitals may be followed by anything but a second choice.
    r"""(?:(?:option|choice|letter|la\sr[\u00e9e]ponse|la\sopci\u00f3n|a\sletra)[\s*:]{1,3})?
    (?-i: [(\[]\s?([A-Za-z])\s?[)\]]
      | \\(?:text|math)(?:rm|bf|it)?\{\s?\(?([A-Za-z])\)?\s?\}
      | ([B-HJ-Z])(?![a-zA-Z0-9_+]|'\w)
      | ([AI])(?=\s{0,3}(?:[.,:;!()\]*_$"`\\\u0900-\u0e7f\u2013\u3000-\ud7a3}<-]|'(?!\w))
          |\s{0,3}(?:because|since|as)\b|[ \t]{0,9}(?:\n|\Z)|\s{0,3}/)
      | ([a-z])(?=\)|[.*_$"'`]{0,5}[ \t]{0,9}(?:\n|\Z)))"""
)
# Without dollars a formula ends where prose begins: at a word, or at the dot of a sentence.
_FORMULA = r"""[\s*_:]{0,8}
    (?: \$\$?([^$\n]{1,200})\$\$? | \\\(((?:[^\\\n]|\\[^)\n]){1,200})\\\)
      | \\\[((?:[^\\]|\\[^\]]){1,200})\\\] | `([^`\n]{1,200})`
      | ((?>(?:\\[a-zA-Z]+|\\[^\n]|(?:and|or)\b|[a-zA-Z](?![a-zA-Z])
          |[^a-zA-Z\\.\n<]|<(?![/|])|\.(?=\d)){1,200}))
        (?:(?<![rd]\s)(?=[a-zA-Z])|\.|\n|\Z|(?=</|<\|))
    )"""
_VERBOSE = re.IGNORECASE | re.VERBOSE
_STATED = {
    # What stands right behind a phrase, and what may not follow it, for then it says several.
    # Numbers are atomic, lest "15 or 16" be read as 1; they may end a chain, as in "5 + 3 = 8",
    # whose pieces are atomic too, lest a row of "\\text{" take seconds.
    "numeric": (
        re.compile(
            r"(?!\s{0,9}\n\s{0,9}\d{1,2}[.)]\s+\w)"  # a numbered list
            r"(?:(?>[A-Za-z]\b|\\[a-z]{2,6}|[-+*/\u00d7\u00f7\u00b7\d\s.,$(){}\\`]){1,60}=){0,3}"
            rf"{_DRESS}((?>{NUMBER})|(?i:{_SPELLED})\b(?![- ](?:of|{_SPELLED}|one|\w+red|\w+and)))"
        ),
        re.compile(rf"[\u3040-\ud7a3]{{0,4}}?{_FOREIGN}\d|{_SEVERAL}|{_OPERATION}", re.VERBOSE),
    ),
    "choice": (
        re.compile(rf"[\s*_$\"'`:]{{0,8}}{_LETTER}", _VERBOSE),
        re.compile(
            rf"{_FOREIGN}\(?[A-J]|"
            r"\s{0,3}(?:[,/&]|(?:and|or)\b(?:\s\w{4,8})?)\s{0,3}\(?[A-Z]\b|[ ]{1,3}\([A-Z]\)"
            r"|[ ]?=|[ ](?:major|minor|sharp|flat)\b"  # a formula, a key
        ),
    ),
    "expression": (
        re.compile(_FORMULA, re.VERBOSE),
        re.compile(rf"[\s,]{{0,3}}(?:or|and)?\s{{0,3}}[$`]|{_OPERATION}"),
    ),
    "text": (re.compile(r"[\s*_:\"'`$]{0,8}((?:[^\n<]|<(?![/|])){1,200})"), None),
    "yes-no": (
        re.compile(r"[\s*_:\"'`$(]{0,8}(yes|no|true|false)\b", re.IGNORECASE),
        re.compile(
            r"\s{0,3}(?:and|or|/)\s{0,3}(?:yes|no|true|false)\b|\s(?:idea|clue|answer)\b",
            re.IGNORECASE,
        ),
    ),
}
# Both may have a unit, if it is the same.
OTHER = re.compile(
    rf"(?:[\s*_$]{{1,3}}(?P<unit>[a-z]{{2,12}}))?{OR}[\s*_$(]{{0,4}}"
    rf"(?P<other>(?>{NUMBER})|[A-J]|(?i:yes|no|true|false))"
    r"(?:\s(?P=unit))?(?=[\s*_$)]{0,4}(?:[.,;!?\n<]|\Z))"
)
"""What names another answer right behind one; two formulas may be the same."""
_WORDED = re.compile(r"[ -][a-z]")
_MATH = re.compile(r"\d|\\[a-zA-Z]")
_SENTENCE = re.compile(
    r"(?<!\b[A-Z])(?<!\b(?:St|Mt|Mr|Ms|Dr))(?<!\bMrs)[.!?](?=\s|[*_\"'`$)]{0,4}(?:\s|\Z))"
)
EDGES = " \t*_`\"'$"
_MOST_PLACES = 100
"""Phrases that are looked at, from the end of the text."""


Statement = tuple[str | None, int, int]
"""What is said behind a phrase, and where; None where several things are."""


def statements(kind: str, text: str, options: Sequence[str] = ()) -> Iterator[Statement]:
    """What a text says behind "answer is", "Answer:", "####" and the like, from the last on.

    An option of a choice may be named by its words.
    """
    pattern, several = _STATED[kind]
    for place in phrase_ends(text):
        match = pattern.match(text, place)
        if not match:
            line = _line(text, place)
            if named := named_option(line, options):
                yield named, place, place + len(line)
            continue
        found = match.lastindex or 0
        value: str | None = match[found]
        if kind == "text":
            value = _SENTENCE.split(match[1])[0].strip(EDGES)
        elif kind == "expression":
            if (match[5] is not None and not _MATH.search(match[5])) or "\\boxed" in match[0]:
                continue  # a letter that begins a sentence is no formula, nor is an empty box
            value = match[found].strip(" *_").rstrip("( ")
        if several is not None and several.match(text, match.end()):
            value = None
        if kind == "choice" and options and _WORDED.match(text, match.end()):
            value = named_option(_line(text, match.start(found)), options) or value  # "B cells"
        if value is not None and contradicts(value, _line(text, match.end()), options):
            value = None
        if value != "":
            yield value, match.start(found), match.end()


def phrase_ends(text: str) -> Iterator[int]:
    """Where phrases and markers end behind which answers stand, from the last to the first."""
    floor = max(0, len(text) - TAIL)
    low = text[floor:].lower()
    low = low if len(low) == len(text) - floor else text[floor:]
    places = [floor + place for key in _KEYS.split() for place in _all(key, low)]
    for place in sorted(places, reverse=True)[:_MOST_PLACES]:
        match = _PLACE.match(text, place)
        if match is None or _DENIED.search(text, max(0, place - 20), place):
            continue
        bare = match[0].rstrip(" *_\n\t").lower() == "answer"
        if not bare or _HEADING.search(text, max(0, place - 20), place):
            yield match.end()


def _all(key: str, text: str) -> Iterator[int]:
    place = text.find(key)
    while place >= 0:
        yield place
        place = text.find(key, place + len(key))


def _line(text: str, start: int) -> str:
    return text[start : start + LONGEST].lstrip().partition("\n")[0]


# --- the options of a choice ----------------------------------------------------------------------

_CLAUSE = re.compile(r"[.,;:(\u2013\u2014]|\s-\s|\bis\b")
_CHOSEN = re.compile(
    rf"""\b(?:(?:go\swith|choose|pick|select)\s(?:(?:the\s)?(?:option|choice|answer)\s)?
        |(?:corresponds\sto|matches)\s(?:option|choice)\s)
      \(?([A-J])\)?(?![\w'\u2019])(?!{OR}|\sand\s)
    |(?<![\w'\u2019])(?<!nor\s)(?<!and\s)(?<!or\s)\(?([A-J])\)?\s(?:is|must\sbe)\s
      (?:(?!not|wrong|never|only|in)\w+\s){{0,3}}?(?:correct|right|best|better|answer)\b(?!\sif)""",
    re.VERBOSE,
)
_CONDITION = re.compile(r"\b(?:if|unless|whether|neither)\b", re.IGNORECASE)
BOLD = re.compile(r"\*\*([^*\n]{1,80})\*\*")
_LETTERED = r"^[-\s*_(]{0,4}([A-J])[*_]{0,2}[).:]"
_LISTED = re.compile(_LETTERED, re.MULTILINE)
OPTION = re.compile(rf"{_LETTERED}[*_]{{0,2}}[ \t]+(\S[^\n]{{0,200}})$", re.MULTILINE)
_SOLE = re.compile(r"(?<![\w'\u2019])(?:([B-HJ])(?![\w'\u2019])|([AI])(?=[.,;:!)*/]|\Z))")
DENIAL = {
    "numeric": re.compile(r"\b(?:not|never|cannot|unable)\b|n['\u2019]t\b|\?", re.IGNORECASE),
    "choice": re.compile(
        r"\b(?:not|no|never|wrong|incorrect|neither|either|both|or|cannot|unable"
        rf"|except|rule|exclude|eliminate)\b|n['\u2019]t\b|\?|{_LETTERED}[^\n]*\n{_LETTERED}",
        re.IGNORECASE | re.MULTILINE,
    ),
}
"""What makes a last sentence, or for a choice a last paragraph, no answer."""
DOUBT = re.compile(
    r"\b(?:unclear|ambiguous|cannot be determined|not enough information"
    r"|can(?:not|'t) (?:be sure|determine|say|tell))\b|\b(?:[Ww]ait|Hmm),"
)


def named_option(said: str, options: Sequence[str]) -> str | None:
    """The letter of the option that is named, by all that is said or by its first clause."""
    for form in (said, _CLAUSE.split(said, maxsplit=1)[0]) if options else ():
        words, number = canonical_text(form, WORDS), canonical_number(form.strip(EDGES))
        for letter, option in zip(LETTERS, options, strict=False):
            if words is not None and words == canonical_text(option, WORDS):
                return letter
            if number is not None and number == canonical_number(option):
                return letter
    return None


def offered(letter: str | None, options: Sequence[str]) -> str | None:
    """A letter, unless it stands beyond the options there are."""
    return None if letter and options and letter in LETTERS[len(options) :] else letter


def contradicts(letter: str, said: str, options: Sequence[str]) -> bool:
    """Whether what is said behind a letter are the words of another option."""
    return named_option(said.lstrip(" .:)]*_-"), options) not in (None, letter.strip("()").upper())


def chosen(text: str, options: Sequence[str]) -> str | None:
    """The one letter a text declares for, by a verb, in bold, or on a line like an option's."""
    text = text[-TAIL:]
    lines = dict(OPTION.findall(text))
    sure = " ".join(each for each in _ENDED.split(text) if not _CONDITION.search(each))
    declared = {one or other for one, other in _CHOSEN.findall(sure)}
    if not declared and len(lines) == 1:
        [(letter, said)] = lines.items()
        declared = {letter} if named_option(said, options) == letter else set()
    return declared.pop() if len(declared) == 1 else None


def option_line(text: str) -> str:
    """A line like an option's that begins or ends a text; of several, a last one said again."""
    listed = _LISTED.findall(text[-TAIL:])
    before, line = ["", "", *lines(text)][-2:]
    if len(set(listed)) > 1:
        again = OPTION.match(line) and not OPTION.match(before) and listed[-1] in listed[:-1]
        return line if again else ""
    first = text.strip().partition("\n")[0]
    return next((each for each in (line, before, first) if OPTION.match(each)), "")


def choices_in(sentence: str, options: Sequence[str]) -> set[str | None]:
    """The options that a sentence names, by letter or words."""
    words, named = f" {canonical_text(sentence, WORDS) or ''} ", zip(LETTERS, options, strict=False)
    found = {one or other for one, other in _SOLE.findall(sentence)}
    return found | {each for each, said in named if f" {canonical_text(said, WORDS)} " in words}


# --- last lines -----------------------------------------------------------------------------------

_CHATTER = re.compile(r"(?=.{20})[^\d\\]*[?!][^\w]*")
_SPECIAL = re.compile(r"</?\|?[a-zA-Z_]{1,30}\|?>|\[/?[A-Z]{2,20}\]")


def lines(text: str) -> list[str]:
    """The last two lines that say anything."""
    found = [_SPECIAL.sub("", line).strip() for line in text[-LAST:].splitlines()]
    return [line for line in found if line][-2:]


def sentences(text: str) -> list[str]:
    """The last sentences that say anything."""
    return [each for each in _ENDED.split(text[-LAST:].strip()) if _WORD.search(each)]


def last_said(parts: list[str]) -> str | None:
    """The last line or sentence, behind which a question or a goodbye may stand."""
    while len(parts) > 1 and _CHATTER.fullmatch(parts[-1]):
        parts.pop()
    return parts[-1] if parts else None


_LABEL = r"(?<!step )(?<!case )(?<!figure )(?<!part )(?<!chapter )(?<!equation )(?<![a-z0-9.,])"
_ANY_NUMBER = re.compile(_LABEL + NUMBER, re.IGNORECASE)
_ANY_SPELLED = re.compile(rf"\b(?:{_SPELLED})\b", re.IGNORECASE)
_WORD = re.compile(r"\w")
_ENDED = re.compile(r"(?<=[.!?])\s+|(?<=\u3002)|\n+")


def numbers_in(sentence: str) -> list[str]:
    """The numbers of a sentence, what a sum comes to where it has one; else those in words."""
    said = sentence.rpartition("=")[2]
    return _ANY_NUMBER.findall(said) or _ANY_SPELLED.findall(said)


# --- JSON values ----------------------------------------------------------------------------------

MOST_TRIES = 100
"""Opening braces at which a value may begin that are looked at, from the end of the text."""


def find_json(text: str) -> Any:
    """The last whole object or list in a text, None where there is none."""
    try:
        return JSON.decode(text)
    except (ValueError, RecursionError):
        pass
    place, found = len(text), None
    for _ in range(MOST_TRIES):
        place = max(text.rfind("{", 0, place), text.rfind("[", 0, place))
        if place < 0:
            break
        try:
            value, stop = JSON.raw_decode(text, place)
        except (ValueError, RecursionError):
            continue
        if found is not None and stop < found[1]:
            break  # it stands before the one that was found, not around it
        found = value, stop
    return None if found is None else found[0]


def select(value: Any, path: str) -> Any:
    """The part of a value at a dotted path, as result.0.answer; None where there is none."""
    for name in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.lstrip("-").isdecimal():
            place = int(name)
            value = value[place] if -len(value) <= place < len(value) else None
        else:
            return None
    return value
