"""Votes on structure: the name first, then every field among the replies that have that name."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from aera.reading.json_values import canonical_json, parse_json
from aera.reading.structure import (
    Kind,
    Leaf,
    Path,
    Structure,
    StructureVote,
    prune,
    structure_of_text,
)
from aera.response import Prefix
from aera.tally import Tally, Vote
from aera.voting.aggregation import Aggregate

ABSENT = "absent"
"""What a reply says in a field that it does not have; all other values are JSON."""
TO_DISAGREE = 5
"""Replies with a word in a field, after which it may be taken for free text."""
QUARTER = 0.25
"""Share of the replies that have the same there; fewer are no agreement."""
MOST_TOGETHER = 1_000
"""Fields of all replies together, beyond which each reply is voted on as a whole."""
Column = Sequence[Leaf | None]
"""What each reply has in one field."""


class Field(Enum):
    """What becomes of a field."""

    TEXT = "long strings, no half of them the same"
    SPLIT = "short strings, hardly any two of them the same"
    VOTED = "voted on"


@dataclass(frozen=True, eq=False)
class StructureOutcome:
    """What was voted on, who won, and what was left out."""

    votes: tuple[Vote, ...]
    names: Tally
    group: tuple[int, ...]
    """Places of the replies with the winning name."""
    fields: dict[Path, Tally]
    """What was voted on among them."""
    texts: tuple[Path, ...]
    """Fields that hold long strings."""
    split: tuple[Path, ...]
    """Fields with short strings of which hardly any two are the same."""

    @property
    def name(self) -> str | None:
        """What most replies do."""
        return self.names.leaders.answer

    @property
    def left_out(self) -> tuple[Path, ...]:
        """Fields that were not voted on."""
        return (*self.texts, *self.split)

    @property
    def weakest(self) -> Path | None:
        """The field on which the replies agree least."""
        confidence = {path: tally.leaders.confidence for path, tally in self.fields.items()}
        return min(confidence, key=lambda path: confidence[path], default=None)

    @cached_property
    def answers(self) -> tuple[str | None, ...]:
        """What each reply said of what was voted on; other names' replies in full."""
        inside, left_out = frozenset(self.group), frozenset(self.left_out)
        return tuple(
            _without(vote, left_out) if place in inside else vote.answer
            for place, vote in enumerate(self.votes)
        )

    @cached_property
    def tally(self) -> Tally:
        """The same, counted."""
        return Tally().add(map(Vote, self.answers))

    @cached_property
    def matches(self) -> dict[int, int]:
        """In how many fields each reply of the group says what won."""
        winners = {path: tally.leaders.answer for path, tally in self.fields.items()}
        return {
            place: sum(_value(self.votes[place], path) == won for path, won in winners.items())
            for place in self.group
        }

    @property
    def matched(self) -> int:
        """Fields in which the reply that is returned says what won."""
        return max(self.matches.values(), default=0)

    @cached_property
    def candidates(self) -> Counter[str | None]:
        """The answers that say most of what won, by how often they were given."""
        return Counter(
            self.answers[place] for place in self.group if self.matches[place] == self.matched
        )

    @property
    def answer(self) -> str | None:
        """The answer that says most of what won: one that was given, never a mixture."""
        return max(self.candidates, key=lambda said: self.candidates[said], default=None)

    @property
    def tied(self) -> bool:
        """Whether anything of it was won only by being first."""
        counts = [count for _, count in self.candidates.most_common(2)]
        tallies = (self.names, *self.fields.values())
        return any(tally.leaders.tied for tally in tallies) or len(set(counts)) < len(counts)

    @property
    def best(self) -> tuple[int, ...]:
        """Places of the replies that give that answer; of free text, the most frequent."""
        given = [
            place
            for place in self.group
            if self.answers[place] == self.answer and self.matches[place] == self.matched
        ]
        whole = Counter(self.votes[place].answer for place in given)
        most = max(whole.values(), default=0)
        return tuple(place for place in given if whole[self.votes[place].answer] == most)

    @property
    def structure(self) -> Structure:
        """That of a reply with the winning name, which knows what its fields are called."""
        return _structure(self.votes[self.group[0]]) if self.group else Structure()


def settle(votes: Sequence[Vote]) -> StructureOutcome:
    """The outcome of the vote on these replies."""
    named = {place: found.name for place, v in enumerate(votes) if (found := structure_in(v))}
    names = Tally().add(Vote(name) for name in named.values())
    group = tuple(place for place, name in named.items() if name == names.leaders.answer)
    # A text in which nothing could be read counts as a text, and says no more than that.
    telling = [votes[place] for place in group if votes[place].answer is not None]
    columns = _columns(telling)
    if len(columns) > MOST_TOGETHER:
        return settle([_as_one(vote) if structure_in(vote) else vote for vote in votes])
    kinds = {path: _judge(column) for path, column in columns.items()}
    texts, split, voted = ([p for p in kinds if kinds[p] is kind] for kind in Field)
    if not voted and split:  # nothing else is left, so nothing is agreed on
        voted, split = split, []
    elif not voted and group and not _structure(votes[group[0]]).calls:
        voted, texts = texts, []
    fields = {path: Tally().add(map(Vote, map(_said, columns[path]))) for path in voted}
    return StructureOutcome(tuple(votes), names, group, fields, tuple(texts), tuple(split))


def outcome_of(prefix: Prefix) -> StructureOutcome:
    """The outcome at a checkpoint."""
    return prefix.remember(settle, lambda each: settle(each.votes))


def structure_vote(prefix: Prefix) -> Aggregate:
    """The rule that goes with it."""
    found = outcome_of(prefix)
    support = found.tally.weights.get(found.answer or "", 0.0)
    return Aggregate(found.answer, support, found.tally.total, found.tied)


def views(prefix: Prefix) -> list[Prefix]:
    """What a policy must be content with, one after the other: one answer per response in each.

    First the names; then the field on which the replies with the winning name agree least, for
    whoever stops on that would stop on every other.
    """
    found = outcome_of(prefix)
    inside, weakest = frozenset(found.group), found.weakest
    made = []
    if weakest is None or len(found.names) > 1:
        structures = [structure_in(vote) for vote in found.votes]
        made.append(_show(prefix, (each.name if each else None for each in structures)))
    if weakest is not None:
        said = (
            _value(vote, weakest) if place in inside else None
            for place, vote in enumerate(found.votes)
        )
        made.append(_show(prefix, said))
    return made


def _show(prefix: Prefix, answers: Iterable[str | None]) -> Prefix:
    """The same responses, checkpoint by checkpoint, with other votes."""
    votes, ends, at = [Vote(said) for said in answers], [], prefix
    while True:  # a loop, for chains are long
        ends.append(len(at))
        if at.previous is None:
            break
        at = at.previous
    made = Prefix(prefix.question, prefix.schedule)
    for end in reversed(ends):
        block = slice(len(made), end)
        made = made.extend(prefix.responses[block], votes[block])
    return made


def _structure(vote: Vote) -> Structure:
    return structure_in(vote) or Structure()


def structure_in(vote: Vote) -> Structure | None:
    """The structure behind a vote: its own, or that of a text with an answer."""
    if isinstance(vote, StructureVote):
        return vote.structure
    return None if vote.answer is None else structure_of_text(vote.answer)


def _fields(vote: Vote) -> Iterable[Path]:
    return _structure(vote).fields


def _value(vote: Vote, path: Path) -> str | None:
    """What a vote says in one field; nothing where it says nothing at all."""
    found = structure_in(vote)
    if found is None or vote.answer is None:
        return None
    return _said(found.fields.get(path))


def _said(leaf: Leaf | None) -> str:
    return ABSENT if leaf is None else leaf.value


def _columns(votes: Sequence[Vote]) -> dict[Path, Column]:
    """What each reply has in each field."""
    rows = [_structure(vote).fields for vote in votes]
    paths = dict.fromkeys(path for row in rows for path in row)
    if len(paths) > MOST_TOGETHER:
        return dict.fromkeys(paths, ())
    return {path: [row.get(path) for row in rows] for path in paths}


def _as_one(vote: Vote) -> StructureVote:
    """A vote that cannot be taken apart."""
    fields: dict[Path, Leaf] = {} if vote.answer is None else {(): Leaf(vote.answer)}
    return StructureVote(vote.answer, structure=Structure(_structure(vote).calls, fields))


def _judge(column: Column) -> Field:
    """Whether a field is voted on, or holds what nobody agrees on."""
    kinds = [leaf.kind for leaf in column if leaf is not None]
    if 2 * kinds.count(Kind.TEXT) > len(kinds):  # most have a long string, but half the same?
        [(_, most)] = Counter(map(_said, column)).most_common(1)
        if 2 * most <= len(column):
            return Field.TEXT
    if len(kinds) < TO_DISAGREE or Kind.VALUE in kinds:
        return Field.VOTED
    said = Counter(leaf.value for leaf in column if leaf is not None)
    return Field.SPLIT if max(said.values()) < QUARTER * said.total() else Field.VOTED


def _without(vote: Vote, left_out: frozenset[Path]) -> str | None:
    """A vote without some fields."""
    own = [path for path in _fields(vote) if path in left_out]
    if vote.answer is None or not own:
        return vote.answer
    return canonical_json(prune(parse_json(vote.answer), own))
