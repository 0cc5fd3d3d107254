"""What each of three teachers makes of votes; every learner by every protocol: test_judging.py."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from made_questions import (
    EVERY,
    LEARNERS,
    SCHEDULE,
    TASK,
    TRUTHS,
    Written,
    bytes_of,
    data_of,
    made_records,
    made_table,
)

from aera import BestOfN, Question, Record, Response, lab
from aera.errors import ProtocolError, UsageError
from aera.lab.calibrating.families import SCORE_FAMILY
from aera.lab.learning.fit import fit_weigher
from aera.policies.gate import Gated
from aera.pools.pool import HeldRecords, VotedRecord, read_votes
from aera.voting.weigher import Weigher

# --- right answers --------------------------------------------------------------------------------


def test_weights_are_kept_where_a_trait_reveals_the_truth() -> None:
    model = LEARNERS["labels"].fit(data_of("labels"), EVERY, seed=0)
    assert isinstance(model.weigher, Weigher)
    assert model.learned.startswith("learned weights gain +")
    assert "points, 90 % [+" in model.learned  # the interval that decides


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_weights_are_left_out_where_traits_are_noise(seed: int) -> None:
    table, rows = made_table(seed, telling=False), np.arange(40, 60)
    model = LEARNERS["labels"].fit(table, np.arange(40), seed=0)
    assert model.weigher is None
    assert "do not clearly gain, so votes are plain" in model.learned
    plain, seen = table.replay(rows), model.values(table, rows)
    np.testing.assert_array_equal(seen.values["asc"], plain.values["asc"])
    assert [*seen.records] == [table.records[row] for row in rows]


@pytest.mark.parametrize("max_loss", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("alpha", [None, 0.2])
def test_the_cheaper_family_at_the_allowed_loss(max_loss: float, alpha: float | None) -> None:
    learner, data = LEARNERS["labels"], data_of("labels")
    model, _ = lab.learn_and_tune(learner, data, EVERY, certified=alpha is not None, seed=0)
    families = model.families(lab.limit_for(learner, max_loss, alpha))
    tried = lab.limit_for(learner, max_loss)
    saved = {
        name: tried.choose(families[name], model.own, grid=model.grid(families[name])).token_saving
        for name in ("aera", "gate", "asc")
    }
    assert saved["aera"] == max(saved["gate"], saved["asc"])
    policy = lab.policy_at(families["aera"], 0.5, model.gate)
    assert isinstance(policy, Gated) == (families["aera"] is lab.GATE_FAMILY)


def test_settings_spend_from_nearly_all_to_few() -> None:
    model = LEARNERS["labels"].fit(data_of("labels"), EVERY, seed=0)
    own = model.own.mixed
    for family in (lab.GATE_FAMILY, lab.ASC_FAMILY):
        grid = model.grid(family)
        stops = [family.stops(own.values[family.name], setting) for setting in grid]
        spent = [np.take_along_axis(own.tokens, s[..., None], 2).mean() for s in stops]
        assert spent == sorted(spent, reverse=True)
        assert len(grid) > 10


def test_weights_of_others_are_used_as_they_are() -> None:
    learner, data = LEARNERS["labels"], data_of("labels")
    given = learner.fit(data, EVERY[:100], seed=0).weigher
    model = replace(learner, given=given).fit(data, EVERY[100:], seed=0)
    assert model.weigher is given
    assert model.learned.startswith("weights taught elsewhere gain +")
    own = data.replay(EVERY[100:], given.weights(data.traits[EVERY[100:]]))
    np.testing.assert_array_equal(model.own.values["asc"], own.values["asc"])


# --- the majority ---------------------------------------------------------------------------------


def test_truths_change_nothing_that_the_majority_teaches() -> None:
    learner, (records, truths) = LEARNERS["majority"], made_records(questions=200)
    held = HeldRecords(records, TASK, SCHEDULE)
    found = [
        learner.fit(learner.prepare(held, known), EVERY, seed=1)
        for known in (None, lab.Truths(truths), lab.Truths(dict.fromkeys(truths, "5")))
    ]
    assert len({bytes_of(model) for model in found}) == 1
    assert found[0].gate is None
    assert found[0].learned.endswith("ASC is what was calibrated")


def clear_records(questions: int) -> list[VotedRecord]:
    """Questions on which nearly all responses agree."""
    records, _ = made_records(questions=1500)
    clear = [r for r in records if max(Counter(v.answer for v in r.votes).values()) > 6]
    return clear[:questions]


@pytest.mark.parametrize(
    ("questions", "said", "kept"),
    [(40, "too few questions to say", False), (200, "within the 5 allowed", True)],
)
def test_weights_are_used_where_halves_support_them(questions: int, said: str, kept: bool) -> None:
    learner = LEARNERS["majority"]
    data = learner.prepare(HeldRecords(clear_records(questions), TASK, SCHEDULE), None)
    model = learner.fit(data, np.arange(len(data)), seed=0)
    assert said in model.learned
    assert (model.weigher is not None) == kept
    assert model.learned.count("are used") == int(kept)


def test_weights_that_lead_votes_astray_are_refused() -> None:
    """Here most are wrong, and weights that know it turn votes round."""
    learner = LEARNERS["majority"]
    table = made_table(questions=1500)
    truth = fit_weigher(*table.examples(np.arange(1500)))
    model = replace(learner, given=truth).fit(table, np.arange(1500), seed=0)
    assert model.weigher is None
    assert "beyond the 5 allowed) are refused" in model.learned
    plain = replace(learner, weigh=False).fit(table, np.arange(1500), seed=0)
    np.testing.assert_array_equal(model.own.values["asc"], plain.own.values["asc"])


@pytest.mark.parametrize("right", [True, False])
def test_labels_decide_where_enough_of_them_differ(right: bool) -> None:
    """Weights taught by right answers, and labels that say what they say, or what votes say."""
    learner, data = LEARNERS["majority"], data_of("majority")
    given = LEARNERS["labels"].fit(data_of("labels"), EVERY, seed=0).weigher
    voted = {r.question.id: r.prefixes(SCHEDULE)[-1].tally.leaders.answer for r in data.records}
    labels = TRUTHS if right else lab.Truths(voted)
    model = replace(learner, given=given, labels=labels).fit(data, EVERY, seed=0)
    assert "labelled questions where they differ" in model.learned
    assert (model.weigher is given) == right
    few = lab.Truths({"q0": labels["q0"]})
    again = replace(learner, given=given, labels=few).fit(data, EVERY, seed=0)
    assert "between halves" in again.learned
    assert "; labels decide from 15 on, and there are " in again.learned


# --- scores ---------------------------------------------------------------------------------------


def test_a_higher_price_buys_less_and_the_gate_beats_every_fixed_budget() -> None:
    """On every other question all responses are good; on the rest a search pays."""
    rng, records, spent = np.random.default_rng(0), [], []
    for n in range(120):
        scores = 0.8 + 0.02 * rng.random(8) if n % 2 else rng.random(8) ** 3
        said = [Response(f"{score:.6f} {n}", tokens=10) for score in scores]
        records.append(Record(Question(f"q{n}", f"what is {n}?"), tuple(said)))
    learner = lab.VoteLearner("scores", best_of_n=BestOfN(Written()))
    data = learner.prepare(HeldRecords(read_votes(records, TASK), TASK, SCHEDULE))
    for price in (0.02, 0.3, 2.0):
        [done] = lab.nested(replace(learner, price=price), data, [lab.MostUtility(price)], folds=3)
        own, best = done.point("aera"), max(p.utility(price) for p in done.fixed())
        assert own.utility(price) > best - 0.01
        spent.append(own.responses)
    assert spent[0] > spent[1] > spent[2]


def test_a_bar_on_the_score_is_no_policy_of_a_controller() -> None:
    with pytest.raises(UsageError, match='"score" is only shown beside the gate'):
        lab.policy_at(SCORE_FAMILY, 0.5, None)


def test_the_truth_judges_where_it_is_known_unless_the_score_is_asked() -> None:
    records, truths = made_records(questions=5)
    held, known = HeldRecords(records, TASK, SCHEDULE), lab.Truths(truths)
    for judge, told in ((None, False), ("truth", False), ("score", True)):
        data = replace(LEARNERS["scores"], judge=judge).prepare(held, known)
        assert data.settings.rewarded is told
        assert (set(data.grades.ravel()) == {0.0, 1.0}) is not told
    assert LEARNERS["scores"].prepare(held).settings.rewarded
    with pytest.raises(ProtocolError, match="has no truths"):
        replace(LEARNERS["scores"], judge="truth").prepare(held)


def test_a_pool_without_truths_has_no_labels_to_teach() -> None:
    with pytest.raises(ProtocolError, match="no truths to learn weights from"):
        lab.VoteLearner().prepare(HeldRecords(made_records()[0], TASK, SCHEDULE), None)
