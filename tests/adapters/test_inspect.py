"""The Inspect adapter, against the interface of its hook, and in Inspect where it is installed."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import inspect_state, stand_in_for_inspect

from aera import ASC, Controller, Fixed, Response, Schedule, get_task
from aera.adapters.inspect import VoteStopping
from aera.errors import UsageError

INSTALLED = find_spec("inspect_ai") is not None
SCHEDULE = Schedule((2, 4, 8))
UNREAD: Any = object()
"""Scores that would fail if anybody looked at them."""


def controller() -> Controller:
    return Controller(get_task("numeric"), SCHEDULE, ASC(0.85))


@pytest.fixture(autouse=True)
def early_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_inspect(monkeypatch)


def sample(name: str | int) -> SimpleNamespace:
    return SimpleNamespace(id=name, input="6 x 7?", choices=None)


def state(name: str | int, epoch: int, text: str | None) -> SimpleNamespace:
    """After an epoch; None is an epoch that failed."""
    failed = "broke" if text is None else None
    return inspect_state(name, epoch, Response(text or "", 5, error=failed))


async def played(texts: Sequence[str | None], order: Sequence[int] = ()) -> tuple[list[int], Any]:
    """Play epochs through the hook, in this order of finishing; which began, and the account."""
    stopping = VoteStopping(controller())
    assert await stopping.start_task(None, [sample("q")], len(texts)) == "aera asc-0.85"
    begun = []
    for epoch in order or range(1, len(texts) + 1):
        if await stopping.schedule_sample("q", epoch) is None:
            begun.append(epoch)
            await stopping.collect(state("q", epoch, texts[epoch - 1]))
            await stopping.complete_sample("q", epoch, UNREAD)
    return begun, await stopping.complete_task()


@pytest.mark.parametrize(
    ("answers", "epochs", "answer", "reason"),
    [
        ([42] * 8, 2, "42", "confident leader"),
        (range(8), 8, "0", "full budget"),
        ([None, None, 42, 42, 1, 1, 1, 1], 4, "42", "confident leader"),
    ],
    ids=["decided", "of many minds", "failed epochs abstain"],
)
async def test_epochs_stop_once_the_votes_are_decided(
    answers: Sequence[int | None], epochs: int, answer: str, reason: str
) -> None:
    begun, told = await played([None if a is None else f"\\boxed{{{a}}}" for a in answers])
    assert begun == [*range(1, epochs + 1)]
    assert told["samples"]["q"] == {"answer": answer, "epochs": epochs, "reason": reason}
    assert told["stopped_epochs"] == 8 - epochs


async def test_epochs_vote_in_their_order_whichever_ends_first() -> None:
    texts = ["\\boxed{1}", "\\boxed{2}", *["\\boxed{3}"] * 6]
    orders = range(1, 9), (4, 3, 2, 1, 8, 7, 6, 5)
    one, other = [(await played(texts, order))[1]["samples"]["q"] for order in orders]
    assert one == other


async def test_an_epoch_tried_again_votes_once_and_one_not_collected_is_told_at_once() -> None:
    stopping = VoteStopping(controller())
    await stopping.start_task(None, [sample(3)], 8)
    with pytest.raises(UsageError, match=r"cleanup=stopping\.collect"):
        await stopping.complete_sample(3, 1, UNREAD)
    for _ in range(3):
        await stopping.collect(state(3, 1, "\\boxed{42}"))
    assert (await stopping.complete_task())["samples"]["3"]["epochs"] == 1


async def test_the_same_hook_serves_a_second_task() -> None:
    stopping = VoteStopping(Controller(get_task("numeric"), SCHEDULE, Fixed(2)))
    for name in ("first", "second"):
        await stopping.start_task(None, [sample(name)], 8)
        for epoch in (1, 2):
            await stopping.collect(state(name, epoch, "\\boxed{1}"))
    assert [*(await stopping.complete_task())["samples"]] == ["second"]


@pytest.mark.skipif(not INSTALLED, reason="inspect-ai is not installed")
@pytest.mark.filterwarnings("ignore")
def test_inspect_itself_skips_the_epochs_that_are_not_worth_it(tmp_path: Path) -> None:
    inspect: Any = import_module("inspect_ai")
    model: Any = import_module("inspect_ai.model")
    sample: Any = import_module("inspect_ai.dataset").Sample
    calls = count()

    def reply(messages: Any, *_: object) -> Any:
        """Sure of the first question, of many minds about the second."""
        said = 42 if "6 x 7" in messages[-1].text else next(calls)
        made = model.ModelOutput.from_content("mockllm/model", f"\\boxed{{{said}}}")
        made.usage = model.ModelUsage(output_tokens=5)  # else it counts with a downloaded table
        return made

    stopping = VoteStopping(controller())
    task = inspect.Task(
        dataset=[sample("6 x 7?", target="42", id="easy"), sample("P = NP?", target="no", id=2)],
        scorer=import_module("inspect_ai.scorer").includes(),
        epochs=8,
        early_stopping=stopping,
        cleanup=stopping.collect,
    )
    mock = model.get_model("mockllm/model", custom_outputs=reply)
    (log,) = inspect.eval(task, mock, max_samples=1, log_dir=str(tmp_path), display="none")
    assert log.status == "success", log.error
    epochs = [each.id for each in log.samples]
    assert (epochs.count("easy"), epochs.count(2)) == (2, 8)
    summary = log.results.early_stopping
    assert (summary.manager, len(summary.early_stops)) == ("aera asc-0.85", 6)
    account = {"answer": "42", "epochs": 2, "reason": "confident leader"}
    assert summary.metadata["samples"]["easy"] == account
