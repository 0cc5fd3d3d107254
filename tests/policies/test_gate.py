from dataclasses import replace
from math import log, log1p, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab_fixtures import Letters
from nets import network_of, paper_gate_of

from aera import Prefix, Question, Response, Schedule, Vote, unfold
from aera.arrays import Floats
from aera.core import beta_confidence
from aera.errors import ControllerError
from aera.network import Network
from aera.paper.features import NAMES, characterize
from aera.policies.gate import TINY, VOTE_FEATURE_NAMES, Gate, Gated, vote_features

SCHEDULE = Schedule((2, 4, 8))


@pytest.fixture
def prefixes() -> list[Prefix]:
    answers = ["1", "2", "2", "2", "3", None, "2", "2"]
    responses = [Response("nor"[: place % 3 + 1], 3 + place) for place in range(8)]
    votes = [Vote(answer, redo=answer is None) for answer in answers]
    return list(unfold(Question("q", "?"), responses, votes=votes, schedule=SCHEDULE))


# --- what a gate may be fed -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "names"),
    [
        *(("paper", names) for names in ((NAMES[1], NAMES[0], *NAMES[2:]), NAMES[:-1], ())),
        *(("vote", names) for names in (VOTE_FEATURE_NAMES[::-1], NAMES, VOTE_FEATURE_NAMES[1:])),
    ],
)
def test_other_inputs_or_another_order_are_refused(made: str, names: tuple[str, ...]) -> None:
    with pytest.raises(ControllerError, match=r"\A[^\n]*train it again[^\n]*\Z"):
        replace(paper_gate_of(Letters()) if made == "paper" else Gate(linear()), features=names)


# --- policies -------------------------------------------------------------------------------------


def chance(net: Network, evidence: Floats) -> float:
    return float(1 / (1 + np.exp(-net.outputs(evidence[None])[0, 0])))


def test_the_chance_is_that_of_the_evidence(prefixes: list[Prefix]) -> None:
    made, encoder, votes = paper_gate_of(Letters()), Letters(), Gate(linear())
    for prefix in prefixes:
        evidence: Floats = characterize(prefix, encoder, projection=made.projection)
        assert made.p_continue(prefix) == pytest.approx(chance(made.network, evidence), abs=1e-12)
        wanted = chance(votes.network, vote_features(prefix)) if len(prefix.tally) else 1.0
        assert votes.p_continue(prefix) == pytest.approx(wanted)
    assert len(encoder.asked) == len(prefixes[-1]), "each response is embedded once"


# --- the vote gate --------------------------------------------------------------------------------


def linear(seed: int = 0) -> Network:
    return network_of(len(VOTE_FEATURE_NAMES), (), seed=seed)


NEVER = replace(linear(), weight=np.zeros((1, len(VOTE_FEATURE_NAMES))), bias=np.array([-9.0]))


@pytest.mark.parametrize("depth", [0, 1, 2, 11])
def test_a_network_of_any_depth_survives_the_trip_through_its_tensors(depth: int) -> None:
    net = network_of(4, (4,) * depth, seed=depth, reach=1.0)
    again = Network.from_tensors(dict(sorted(net.tensors().items())))
    rows = np.random.default_rng(depth).normal(size=(6, 4))
    np.testing.assert_array_equal(again.outputs(rows), net.outputs(rows))
    assert (len(again.layers), again.tensors().keys()) == (depth, net.tensors().keys())


def test_a_tie_is_marked_and_a_block_that_was_not_read_is_never_settled() -> None:
    bold = Gate(NEVER)
    schedule = Schedule((2, 4))
    for said, stop, reason in (
        (["1", "2"], True, "stopped on a tie"),
        ([None, None], False, "continuing may pay"),
        (["1", "1"], True, "little left to gain"),
    ):
        votes = [Vote(answer) for answer in said]
        prefix = Prefix(Question("q", "?"), schedule).extend([Response("", 1)] * 2, votes)
        decision = Gated(bold, 0.5).decide(prefix)
        assert (decision.stop, decision.reason) == (stop, reason)
        assert not Gated(bold, decision.p_continue).decide(prefix).stop, "only below the threshold"
    scored = [Vote("a", weight=0.5, scored=True), Vote("b", weight=0.5, scored=True)]
    best = Prefix(Question("q", "?"), schedule).extend([Response("", 1)] * 2, scored)
    assert Gated(bold, 0.5).decide(best).reason == "little left to gain"


def test_gates_of_both_kinds_do_not_share_their_chances(prefixes: list[Prefix]) -> None:
    gates: list[Gate] = [Gate(linear(1)), Gate(linear(2)), paper_gate_of(Letters())]
    led = next(prefix for prefix in prefixes if prefix.tally.gap)
    assert len({made.p_continue(led) for made in gates}) == 3


def test_a_guarded_vote_gate_goes_on_where_it_has_never_been(prefixes: list[Prefix]) -> None:
    led = next(prefix for prefix in prefixes if prefix.tally.gap)
    seen = np.array([vote_features(prefix) for prefix in prefixes])
    known = Gate(replace(NEVER, lows=seen.min(axis=0), highs=seen.max(axis=0)))
    strange = Gate(replace(NEVER, lows=seen.max(axis=0) + 5, highs=seen.max(axis=0) + 9))
    assert Gated(known, 0.5, guarded=True).decide(led).stop
    assert known.strays(led) == ()
    assert not Gated(known, 0.5, guarded=True).decide(led).outside
    guarded = Gated(strange, 0.5, guarded=True).decide(led)
    assert (guarded.stop, guarded.outside, guarded.forced) == (False, True, False)
    assert strange.strays(led) == VOTE_FEATURE_NAMES
    assert Gated(strange, 0.5, guarded=True).decide(prefixes[-1]).outside, "it led there"


# --- what a vote is described by ------------------------------------------------------------------

STEPS = Schedule((2, 4, 8, 16))
weights = st.sampled_from([0.0, 0.125, 0.5, 0.75, 1.0])
votes = st.builds(Vote, st.sampled_from(["1", "2", "3", None]), weight=weights)
streams = st.lists(votes, min_size=16, max_size=16)


def chain(stream: list[Vote], tokens: int = 9) -> list[Prefix]:
    responses = [Response("", tokens=tokens + place) for place in range(len(stream))]
    return list(unfold(Question("q", "?"), responses, votes=stream, schedule=STEPS))


def named(prefix: Prefix) -> dict[str, float]:
    return dict(zip(VOTE_FEATURE_NAMES, vote_features(prefix).tolist(), strict=True))


def test_a_vote_is_described_by_its_standing() -> None:
    stream = [Vote("1", weight=1.0), Vote("2", weight=0.5), Vote("1", weight=0.5), Vote(None)]
    horizon = 2.5 / (2 * sqrt(6 * 0.625 * 0.375 * 10 / 5 + 0.05))
    assert named(chain(stream * 4)[1]) == pytest.approx(
        {
            "log_responses": log(4),
            "tokens_each": log1p(10.5),
            "lead_share": 0.75,
            "lead_gap": 0.5,
            "lead_weight": log1p(1.5),
            "rival_weight": log1p(0.5),
            "lead_mean": 0.75,
            "mean_weight": 2 / 3,
            "doubt": log(TINY + 1 - beta_confidence(1.5, 0.5)),
            "plain_doubt": log(TINY + 5 / 16),
            "persistence": 2,
            "horizon": horizon,
            "horizon_later": horizon * log(4),
        }
    )


@given(streams, streams)
def test_nothing_after_a_checkpoint_moves_it(stream: list[Vote], later: list[Vote]) -> None:
    for column, checkpoint in enumerate(STEPS.checkpoints[:-1]):
        changed = chain([*stream[:checkpoint], *later[checkpoint:]])[column]
        np.testing.assert_array_equal(vote_features(changed), vote_features(chain(stream)[column]))


@given(streams, st.integers(0, 16))
def test_every_number_is_finite(stream: list[Vote], silent: int) -> None:
    muted = [replace(vote, answer=None) for vote in stream[:silent]]
    for prefix in chain([*muted, *stream[silent:]], tokens=0):
        assert np.isfinite(vote_features(prefix)).all()
