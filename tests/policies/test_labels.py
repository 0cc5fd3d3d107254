import pytest
from hypothesis import given
from hypothesis import strategies as st

from aera import (
    ASC,
    ESC,
    Bounded,
    Entropy,
    FirstValid,
    Fixed,
    Lead,
    Majority,
    Policy,
    Schedule,
    parse_policy,
    standard_policies,
)
from aera.errors import UsageError
from aera.policies.gate import Live
from aera.policies.labels import label_of, strip_weighted

counts = st.integers(1, 10**7)
shares = st.floats(0, 1)
plain = st.one_of(
    st.builds(Fixed, counts),
    st.builds(ESC, counts),
    st.builds(ASC, shares),
    st.builds(Majority, shares),
    st.builds(Entropy, shares),
    st.builds(Lead, st.floats(0, 1e30, exclude_min=True)),
    st.just(FirstValid()),
)
bounded = st.builds(
    lambda policy, low, more: Bounded(policy, minimum=low, maximum=low + more),
    plain,
    counts,
    counts,
)


@pytest.mark.parametrize(
    ("label", "policy"),
    [
        ("fixed-128", Fixed(128)),
        ("asc-0.95", ASC(0.95)),
        ("esc-5", ESC(5)),
        ("majority-0.8", Majority(0.8)),
        ("lead-3", Lead(3)),
        ("first-valid", FirstValid()),
        ("esc-5+min8+max64+vote", Bounded(ESC(5), minimum=8, maximum=64)),
        ("asc-0.9+max64", Bounded(ASC(0.9), maximum=64, need_vote=False)),
    ],
)
def test_canonical_labels_name_their_policies(label: str, policy: Policy) -> None:
    assert parse_policy(label) == policy
    assert str(policy) == label


@pytest.mark.parametrize(
    ("policy", "label"),
    [
        (ASC(0.71), "asc-0.71+weighted"),
        (Fixed(128), "weighted-128"),
        (Bounded(Fixed(8)), "weighted-8+vote"),
        (Live.of(Bounded(ESC(5), minimum=8)), "esc-5+min8+vote+weighted"),
    ],
)
def test_a_label_on_weighted_votes_says_so(policy: Policy, label: str) -> None:
    assert label_of(policy, weighted=True) == label
    assert label_of(policy, weighted=False) == str(policy)


class _Gate:
    def __str__(self) -> str:
        return "aera-0.17+vote"


def test_the_label_of_a_gate_is_the_same_on_all_votes() -> None:
    assert label_of(_Gate(), weighted=True) == "aera-0.17+vote"  # type: ignore[arg-type]


@given(plain | bounded)
def test_a_weighted_label_leads_back_to_the_plain_one(policy: Policy) -> None:
    assert strip_weighted(label_of(policy, weighted=True)) == str(policy)
    assert strip_weighted(str(policy)) == str(policy)


@pytest.mark.parametrize("label", ["asc-0.9+weighted", "weighted-128", "esc-5+vote+weighted"])
def test_a_weighted_label_needs_a_controller(label: str) -> None:
    with pytest.raises(UsageError, match="weights belong to a controller") as error:
        parse_policy(label)
    assert "\n" not in str(error.value)


@given(plain | bounded)
def test_every_label_reads_back_as_the_same_policy(policy: Policy) -> None:
    assert parse_policy(str(policy)) == policy


@pytest.mark.parametrize(
    "label",
    [
        "",
        "best",
        "asc",
        "asc-",
        "asc-much",
        "asc-1.5",
        "asc-nan",
        "esc-2.5",
        "esc-0",
        "fixed--4",
        "lead-nan",
        "lead-0",
        "first-valid-3",
        "esc-5+min",
        "esc-5+max0",
        "esc-5+min8+max4",
        "esc-5+sometimes",
        "esc-5+",
        "+min4",
    ],
)
def test_a_label_that_makes_no_sense_is_refused_in_one_sentence(label: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_policy(label)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r'"best".*asc-N.*first-valid'):
        parse_policy("best")


def test_the_standard_set_is_the_documented_one() -> None:
    labels = [str(policy) for policy in standard_policies(Schedule((4, 8)))]
    assert labels == [
        *("fixed-4", "fixed-8"),
        *("asc-0.8", "asc-0.9", "asc-0.95", "asc-0.99"),
        *("esc-3", "esc-5", "lead-3", "first-valid"),
    ]
