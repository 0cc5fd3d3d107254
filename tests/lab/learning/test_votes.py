from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from made_questions import SCHEDULE, made_records, made_table, table_of
from small_study import Bench

from aera import Schedule
from aera.arrays import Columns, Floats
from aera.errors import ProtocolError
from aera.lab import Choice, Judgement, LossLimit, VoteLearner, holdout, limit_for, nested
from aera.lab.calibrating.families import ASC_FAMILY, GATE_FAMILY, Family
from aera.lab.judging.protocols import learn_and_tune
from aera.lab.learning import votes
from aera.lab.learning.perceptron import Perceptron
from aera.lab.learning.vote_gate import VoteGateFit, VoteStates
from aera.lab.learning.votes import LOSSES, ReplayedVotes, VoteModel, VoteTable, mean_saving
from aera.lab.learning.weigher import Responses, WeigherFit
from aera.policies.features import VOTE_FEATURE_NAMES, vote_features
from aera.policies.gate import VoteGate
from aera.policies.rules import confidence
from aera.solving.replay import replay
from aera.voting.weigher import Weigher

EVERY = np.arange(60)
LEARNER = VoteLearner(WeigherFit(Perceptron((32, 32), 0.2, 1e-2, 1e-2, epochs=4, batch=32)))
LOOSE, SURE = limit_for(LEARNER, 0.05), limit_for(LEARNER, 0.3, 0.2)


@pytest.fixture(scope="module")
def table() -> VoteTable:
    return made_table()


@pytest.fixture(scope="module")
def model(table: VoteTable) -> VoteModel:
    return LEARNER.fit(table, np.arange(40), seed=0)


@dataclass
class Watched:
    """Which questions went into a fit of the weigher, of the gate, and into calibration."""

    weighers: list[set[int]] = field(default_factory=list)
    gates: list[int] = field(default_factory=list)
    tunes: list[tuple[float | None, frozenset[str]]] = field(default_factory=list)


@pytest.fixture
def watched(table: VoteTable, monkeypatch: pytest.MonkeyPatch) -> Watched:
    seen = Watched()
    fit_weigher, fit_gate, choose = WeigherFit.fit, VoteGateFit.fit, LossLimit.choose
    row_of = {own.tobytes(): row for row, own in enumerate(table.responses.traits)}
    assert len(row_of) == len(table), "questions are told apart by their traits"

    def weighing(self: WeigherFit, learned: Responses, *, seed: int) -> Weigher:
        seen.weighers.append({row_of[own.tobytes()] for own in learned.traits})
        return fit_weigher(self, learned, seed=seed)

    def gating(self: VoteGateFit, states: VoteStates) -> VoteGate:
        seen.gates.append(len(states))
        return fit_gate(self, states)

    def tuning(self: LossLimit, family: Family, values: Any, known: Any, **rest: Any) -> Choice:
        seen.tunes.append((self.alpha, frozenset(known.question_ids)))
        return choose(self, family, values, known, **rest)

    monkeypatch.setattr(WeigherFit, "fit", weighing)
    monkeypatch.setattr(VoteGateFit, "fit", gating)
    monkeypatch.setattr(LossLimit, "choose", tuning)
    return seen


def names(rows: set[int] | Columns) -> frozenset[str]:
    return frozenset(f"q{row}" for row in rows)


# --- a table --------------------------------------------------------------------------------------


def test_replaying_takes_the_weighted_votes(table: VoteTable) -> None:
    rows, weights = np.array([3, 8]), np.random.default_rng(0).random((2, 8))
    replayed = table.replay(rows, weights)
    grades = replayed.trajectories.known_grades
    assert replayed.evidence.shape == (2, 3, len(VOTE_FEATURE_NAMES))
    assert replayed.trajectories.question_ids == ("q3", "q8")
    for place, record in enumerate(table.weigh(rows, weights)):
        for column, prefix in enumerate(record.prefixes(SCHEDULE)):
            np.testing.assert_array_equal(replayed.evidence[place, column], vote_features(prefix))
            truth = table.truths[prefix.question.id]
            right = prefix.tally.leaders.answer == truth
            assert grades[place, column] == float(right)
            assert replayed.confidence[place, column] == confidence(prefix)


def test_a_table_is_cut_to_the_schedule(bench: Bench) -> None:
    some = replace(bench.records, records=bench.records.records[:20])
    made = LEARNER.prepare(some, bench.truths, schedule=Schedule((2, 4)))
    assert made.responses.traits.shape[:2] == (20, 4)
    assert made.schedule == Schedule((2, 4))


@pytest.mark.parametrize(("questions", "schedule"), [(19, (4, 8)), (60, (8,))])
def test_too_little_to_learn_from_is_refused(
    bench: Bench, questions: int, schedule: tuple[int, ...]
) -> None:
    some = replace(bench.records, records=bench.records.records[:questions])
    made = LEARNER.prepare(some, bench.truths, schedule=Schedule(schedule))
    with pytest.raises(ProtocolError, match=f'"{bench.pool.path.name}"') as refusal:
        LEARNER.fit(made, np.arange(questions), seed=0)
    assert "\n" not in str(refusal.value)


# --- what is kept ---------------------------------------------------------------------------------


def test_a_weigher_is_kept_where_a_trait_reveals_the_truth(model: VoteModel) -> None:
    assert model.weigher is not None
    assert model.gain > 10


def test_a_weigher_is_left_out_where_traits_are_noise() -> None:
    kept = [LEARNER.fit(made_table(seed, telling=False), EVERY, seed=0) for seed in range(4)]
    assert [one.weigher for one in kept] == [None] * 4
    assert all(one.gain < 10 for one in kept)


def test_a_weigher_is_left_out_where_the_grades_are_shuffled() -> None:
    records, truths = made_records()
    rng = np.random.default_rng(0)
    # Every question keeps its two answers, but chance says which of them is right.
    for record in records:
        said = sorted({vote.answer for vote in record.votes if vote.answer})
        truths[record.question.id] = str(rng.choice(said))
    assert LEARNER.fit(table_of(records, truths), EVERY, seed=0).weigher is None


def test_without_a_weigher_the_votes_are_plain() -> None:
    table, rows = made_table(0, telling=False), np.arange(40, 60)
    model = LEARNER.fit(table, np.arange(40), seed=0)
    assert model.weigher is None
    plain, seen = table.replay(rows, None), model.values(table, rows)
    np.testing.assert_array_equal(seen.values["asc"], plain.confidence)
    np.testing.assert_array_equal(seen.values["aera"], model.gate.chances(plain.evidence))
    assert [*seen.records] == [table.records[row] for row in rows]


def test_the_gain_is_measured_out_of_fold(table: VoteTable, model: VoteModel) -> None:
    rows = np.arange(40)
    weights = LEARNER.weigher.out_of_fold(table.responses.subset(rows), groups=rows, seed=0)
    plain, weighted = (table.replay(rows, w).trajectories.known_grades for w in (None, weights))
    assert model.gain == pytest.approx(100 * (weighted.mean() - plain.mean()))


@pytest.mark.parametrize(
    ("measured", "kept"),
    [([3.0], True), ([-0.5], False), ([1.4, -0.7, -0.7], False), ([0.5, 3.0, 3.0], True)],
)
def test_a_gain_that_is_unclear_is_measured_on_other_folds(
    table: VoteTable, monkeypatch: pytest.MonkeyPatch, measured: list[float], kept: bool
) -> None:
    """`measured`: standard errors gained, one measurement after the other."""
    rows, left, seeds = np.arange(40), list(measured), []
    out_of_fold, spread = WeigherFit.out_of_fold, np.where(rows % 2, 1.0, -1.0)

    def weighing(self: WeigherFit, *given: Any, seed: int, **rest: Any) -> Floats:
        seeds.append(seed)
        return out_of_fold(self, *given, seed=seed, **rest)

    def gaining(weighted: ReplayedVotes, plain: ReplayedVotes) -> Floats:
        gains: Floats = spread + left.pop(0) / np.sqrt(len(rows))
        return gains

    monkeypatch.setattr(WeigherFit, "out_of_fold", weighing)
    monkeypatch.setattr(votes, "_gains", gaining)
    model = LEARNER.fit(table, rows, seed=5)
    assert (model.weigher is not None) is kept
    assert not left
    assert len({*seeds}) == len(seeds) == len(measured)


@pytest.mark.parametrize(
    ("gate", "asc", "family"), [(0.3, 0.4, ASC_FAMILY), (0.4, 0.3, GATE_FAMILY)]
)
def test_the_gate_steps_aside_where_asc_saves_more(
    table: VoteTable, monkeypatch: pytest.MonkeyPatch, gate: float, asc: float, family: Family
) -> None:
    savings = {GATE_FAMILY.name: gate, ASC_FAMILY.name: asc}
    monkeypatch.setattr(votes, "mean_saving", lambda measured, asked: savings[asked.name])
    assert LEARNER.fit(table, np.arange(30), seed=0).family is family
    judged = holdout(LEARNER, table, LOOSE, test=0.5)
    twin = "asc" if family is ASC_FAMILY else "gate"
    assert judged.families["aera"] is family
    assert judged.stops["aera"].tolist() == judged.stops[twin].tolist()
    assert judged.choices["aera"] == judged.choices[twin]
    assert judged.choices["aera"][0].family == family.name


def test_a_saving_is_the_mean_over_a_few_losses(model: VoteModel) -> None:
    savings = [
        model.own.choose(GATE_FAMILY, LossLimit(loss, margin=0.0), seed=0).token_saving
        for loss in LOSSES
    ]
    assert mean_saving(model.own, GATE_FAMILY) == pytest.approx(np.mean(savings))


def test_learning_is_the_same_by_seed(table: VoteTable, model: VoteModel) -> None:
    again, other = (LEARNER.fit(table, np.arange(40), seed=s) for s in (0, 1))
    assert again.gate.identity == model.gate.identity
    assert again.gain == model.gain
    assert other.gate.identity != model.gate.identity


def test_the_rest_of_a_pool_has_no_part_in_what_is_learned(model: VoteModel) -> None:
    records, truths = made_records()
    turned = table_of(records, truths | {f"q{row}": "1000" for row in range(40, 60)})
    again = LEARNER.fit(turned, np.arange(40), seed=0)
    assert again.gate.identity == model.gate.identity
    assert again.family is model.family


def test_what_is_judged_live_is_what_was_measured(table: VoteTable, model: VoteModel) -> None:
    """A decision taken prefix by prefix equals the one read from the table."""
    rows = np.arange(40, 60)
    measured = model.values(table, rows)
    assert model.weigher is not None
    weights = model.weigher.weights(table.responses.traits[rows])
    assert [*measured.records] == table.weigh(rows, weights)
    for row, record in enumerate(measured.records):
        prefixes = record.prefixes(SCHEDULE)
        found = [model.gate.p_continue(prefix) for prefix in prefixes]
        assert found == pytest.approx(measured.values[GATE_FAMILY.name][row].tolist())
        stop = replay(prefixes, model.policy(0.8, ASC_FAMILY), task=table.task).prefix
        column = ASC_FAMILY.stops(measured.values[ASC_FAMILY.name][[row]], 0.8)[0]
        assert len(stop) == SCHEDULE.checkpoints[column]


# --- who may see what -----------------------------------------------------------------------------


def test_own_questions_are_weighed_by_weighers_of_others(
    table: VoteTable, watched: Watched
) -> None:
    LEARNER.fit(table, np.arange(40), seed=3)
    *folds, last = watched.weighers
    assert last == set(range(40)), "what is kept learns from all of them"
    held = [set(range(40)) - fold for fold in folds]
    assert sorted(row for part in held for row in part) == list(range(40))
    assert watched.gates == [32] * 5 + [40]


def test_a_certificate_comes_from_questions_nothing_was_learned_from(
    table: VoteTable, watched: Watched
) -> None:
    model, tuning = learn_and_tune(LEARNER, table, EVERY, certified=True, seed=1)
    taught = set.union(*watched.weighers)
    tuned = set(tuning.trajectories.question_ids)
    assert names(taught) | tuned == names(EVERY)
    assert not names(taught) & tuned
    assert model.own is not None
    assert set(model.own.trajectories.question_ids) == names(taught)
    assert len(tuned) == len(taught) == 30


def test_without_a_certificate_every_question_teaches(table: VoteTable) -> None:
    model, tuning = learn_and_tune(LEARNER, table, EVERY, certified=False, seed=1)
    assert tuning is model.own
    assert tuning.trajectories.question_ids == tuple(f"q{row}" for row in EVERY)


def taught_by(watched: Watched, folds: Columns) -> dict[int, set[int]]:
    """All questions that a weigher saw, by the outer fold it worked for: six fits or five each."""
    by_fold: dict[int, set[int]] = {}
    for rows in watched.weighers:
        outside = set(range(len(folds))) - rows
        home = [f for f in range(folds.max() + 1) if set(np.flatnonzero(folds == f)) <= outside]
        for fold in home:
            by_fold.setdefault(fold, set()).update(rows)
    return by_fold


@pytest.fixture(scope="module")
def judgements(table: VoteTable) -> list[Judgement]:
    return nested(LEARNER, table, [LOOSE, limit_for(LEARNER, 0.2)], folds=3, seed=1)


def test_nested_judges_every_question_once(judgements: list[Judgement]) -> None:
    assert len(judgements) == 2
    for judged in judgements:
        assert judged.trajectories.question_ids == tuple(f"q{row}" for row in EVERY)
        assert [record.question.id for record in judged.measured.records] == [
            *judged.trajectories.question_ids
        ]
        assert judged.rows.tolist() == EVERY.tolist()
        assert np.bincount(judged.folds).tolist() == [20, 20, 20]
        assert set(judged.stops) == set(judged.choices) == {"aera", "gate", "asc"}
        assert all(len(stops) == 60 for stops in judged.stops.values())
        assert all(len(choices) == 3 for choices in judged.choices.values())
        assert {c.max_loss for c in judged.choices["aera"]} <= {0.05, 0.2}
        assert [point.policy for point in judged.fixed()] == [f"weighted-{c}" for c in SCHEDULE]


def test_what_looks_at_weighted_votes_says_so(judgements: list[Judgement]) -> None:
    points = judgements[0].points()
    assert all(point.weighted for point in points)
    assert [point.policy for point in points] == [
        "aera-calibrated",
        "gate-calibrated",
        "asc-calibrated+weighted",
    ]


def test_a_looser_limit_is_cheaper(judgements: list[Judgement]) -> None:
    tight, loose = (judged.point("aera").tokens for judged in judgements)
    assert loose <= tight


def test_each_fold_stops_where_its_own_choice_says(judgements: list[Judgement]) -> None:
    (judged, _) = judgements
    for row, fold in enumerate(judged.folds):
        setting = judged.choices["gate"][fold].setting
        wanted = 2 if setting is None else GATE_FAMILY.stops(judged.p_continue[[row]], setting)[0]
        assert judged.stops["gate"][row] == wanted


def test_judged_questions_have_no_part_in_their_own_judgement(
    judgements: list[Judgement],
) -> None:
    """Other truths for one fold: nothing about it moves but its grades; other folds do."""
    before = judgements[0]
    outer = np.flatnonzero(before.folds == 0)
    records, truths = made_records()
    turned = table_of(records, truths | {f"q{row}": "1000" for row in outer})
    (after,) = nested(LEARNER, turned, [LOOSE], folds=3, seed=1)
    assert before.p_continue[outer].tobytes() == after.p_continue[outer].tobytes()
    for name in before.choices:
        assert before.choices[name][0] == after.choices[name][0]
        assert before.stops[name][outer].tolist() == after.stops[name][outer].tolist()
        assert before.choices[name][1:] != after.choices[name][1:]
    assert after.trajectories.grades is not None
    assert not after.trajectories.grades[outer].any()


@pytest.mark.parametrize("limits", [[SURE], [LOOSE, SURE], [SURE, LOOSE]])
def test_nested_certifies_on_questions_nothing_was_learned_from(
    table: VoteTable, watched: Watched, limits: list[LossLimit]
) -> None:
    (judged, *_) = nested(LEARNER, table, limits, folds=2, seed=1)
    taught = taught_by(watched, judged.folds)
    for alpha, tuned in watched.tunes:
        if alpha is None:
            continue
        rows = {int(name[1:]) for name in tuned}
        (fold,) = (f for f in (0, 1) if not rows & set(np.flatnonzero(judged.folds == f)))
        assert not rows & taught[fold]
        assert len(rows) == 15
    assert any(alpha for alpha, _ in watched.tunes)


def test_holdout_tests_on_questions_nobody_has_seen(table: VoteTable, watched: Watched) -> None:
    judged = holdout(LEARNER, table, LOOSE, seed=1)
    tested = set(judged.rows.tolist())
    assert len(tested) == 24
    assert set.union(*watched.weighers) == set(range(60)) - tested
    assert not names(tested) & frozenset.union(*(tuned for _, tuned in watched.tunes))
    assert judged.trajectories.question_ids == tuple(f"q{row}" for row in sorted(tested))
    assert {len(stops) for stops in judged.stops.values()} == {24}


def test_a_certified_holdout_keeps_three_parts_apart(table: VoteTable, watched: Watched) -> None:
    judged = holdout(LEARNER, table, SURE, seed=1)
    taught = set.union(*watched.weighers)
    tuned = {int(name[1:]) for alpha, ids in watched.tunes if alpha for name in ids}
    tested = set(judged.rows.tolist())
    assert [len(taught), len(tuned), len(tested)] == [18, 18, 24]
    assert taught | tuned | tested == set(range(60))


def test_holdout_ignores_the_truths_of_what_it_tests(table: VoteTable) -> None:
    before = holdout(LEARNER, table, LOOSE, seed=1)
    records, truths = made_records()
    turned = table_of(records, truths | {f"q{row}": "1000" for row in before.rows})
    after = holdout(LEARNER, turned, LOOSE, seed=1)
    assert before.choices == after.choices
    assert all((before.stops[n] == after.stops[n]).all() for n in before.stops)


def test_a_limit_nobody_meets_keeps_the_full_budget(table: VoteTable) -> None:
    (judged,) = nested(LEARNER, table, [limit_for(LEARNER, 0.02, 0.1)], folds=2)
    assert all((stops == 2).all() for stops in judged.stops.values())
    assert not any(choice.feasible for choices in judged.choices.values() for choice in choices)


def test_a_pool_of_real_responses_goes_through(bench: Bench) -> None:
    made = LEARNER.prepare(bench.records, bench.truths)
    (judged,) = nested(LEARNER, made, [limit_for(LEARNER, 0.02)], folds=3)
    assert judged.trajectories.question_ids == tuple(bench.pool.questions)
    assert np.isfinite(judged.p_continue).all()
    assert judged.point("aera").tokens <= judged.fixed()[-1].tokens
