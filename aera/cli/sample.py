"""The command `sample`: fill a pool, and show how far it is."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aera.cli.endpoint import (
    CAOption,
    ConcurrencyOption,
    HeaderOption,
    KeyOption,
    MapOption,
    MaximumOption,
    ModelOption,
    MoneyOption,
    PricesOption,
    ResponsesLimit,
    SecondsOption,
    SettingOption,
    SystemOption,
    TokensOption,
    URLOption,
    headers_from,
    prices_from,
    settings_from,
    without_password,
)
from aera.cli.options import ScheduleOption, say
from aera.cli.spending import Estimate, Shown, tell_lost
from aera.errors import PoolError, UsageError
from aera.policies.labels import parse_policy
from aera.policies.policy import Fixed
from aera.reading.presets import get_task
from aera.schedule import Schedule

if TYPE_CHECKING:
    from aera.pools.log import Log
    from aera.pools.pool import Pool
    from aera.sampling.budget import Ledger
    from aera.sampling.sampler import OpenAISampler


QuestionsArgument = Annotated[
    Path, typer.Argument(help="JSON lines, CSV or Parquet with question, id, choices, answer.")
]
OutOption = Annotated[Path, typer.Option(help="Directory of the pool; run again to resume.")]
TaskOption = Annotated[str, typer.Option(help="Task: how to ask and how to read (aera tasks).")]
ResponsesOption = Annotated[
    int | None, typer.Option(help="Responses sampled for each question; 128 if nobody says.")
]
SeedOption = Annotated[int, typer.Option(help="Seed of the first response; later ones add one.")]
PolicyOption = Annotated[str | None, typer.Option(help="Only fixed-N, which is --responses N.")]
TracesOption = Annotated[
    bool,
    typer.Option(
        help="Ask for the 20 likeliest tokens in every place, and keep what they say of each "
        "response; replies are about forty times as long."
    ),
]
RawOption = Annotated[
    Path | None,
    typer.Option(help="Keep the logprobs of every token in this file too, as JSON lines."),
]
BlockOption = Annotated[int, typer.Option(help="Responses asked for in one call.")]


def sample(
    questions: QuestionsArgument,
    out: OutOption,
    base_url: URLOption,
    model: ModelOption,
    task: TaskOption,
    responses: ResponsesOption = None,
    seed: SeedOption = 0,
    policy: PolicyOption = None,
    schedule: ScheduleOption = None,
    max_samples: MaximumOption = None,
    system: SystemOption = None,
    settings: SettingOption = None,
    header: HeaderOption = None,
    ca_file: CAOption = None,
    api_key_env: KeyOption = "OPENAI_API_KEY",
    concurrency: ConcurrencyOption = 64,
    block: BlockOption = 16,
    traces: TracesOption = False,
    raw_traces: RawOption = None,
    max_tokens_total: TokensOption = None,
    max_responses: ResponsesLimit = None,
    max_seconds: SecondsOption = None,
    max_money: MoneyOption = None,
    prices: PricesOption = "0,0",
    columns: MapOption = None,
) -> None:
    """Sample responses into a pool. Interrupted at any moment, it goes on where it was.

    Run again with more --responses or added questions, a finished pool grows by what is missing.
    """
    from aera.lab.formats.questions import read_question_set
    from aera.lab.formats.rows import Columns, parse_map
    from aera.pools.log import Log
    from aera.pools.pool import Plan
    from aera.sampling.budget import Budget, Ledger
    from aera.sampling.sampler import DEFAULTS, Chat, OpenAISampler
    from aera.sampling.upstream import Endpoint
    from aera.trace import FULL, PLAIN

    chosen = get_task(task)
    asked = read_question_set(questions, chosen, Columns(parse_map(columns or ())), seed=seed)
    fields = {**DEFAULTS, **settings_from(settings or ()), "seed": seed}
    chat = Chat(model, chosen, fields, system, dict(FULL if traces else PLAIN))
    endpoint = Endpoint(base_url, api_key_env, headers_from(header or ()), ca_file, concurrency)
    budget = Budget(max_responses, max_tokens_total, max_seconds, max_money, *prices_from(prices))
    points = Schedule.parse(schedule) if schedule else None
    each = _count_each(responses, policy, max_samples, points)
    plan = Plan(chosen, each, {"model": model, "system": system, **fields}, seed, points)
    with Log.open(out, plan, asked.questions) as log:
        if asked.truths is not None:  # right answers go apart from everything else
            asked.truths.save(out)
        sampler, ledger = OpenAISampler(endpoint, chat), Ledger(budget)
        _Job(log, sampler, ledger, concurrency, block, raw_traces).conclude()


def _count_each(
    responses: int | None, policy: str | None, maximum: int | None, schedule: Schedule | None
) -> int:
    """How many responses each question gets; whatever says it must say the same."""
    told = {"--responses": responses, "--max-samples": maximum}
    if policy is not None:
        parsed = parse_policy(policy)
        if not isinstance(parsed, Fixed):
            raise UsageError(
                f"a pool holds as many responses for every question, so that any policy can be "
                f"replayed on it; --policy {policy} goes with aera solve, here it is fixed-N"
            )
        told["--policy"] = parsed.responses
    said = {name: count for name, count in told.items() if count is not None}
    if len(set(said.values())) > 1:
        named = " and ".join(f"{name} ({count})" for name, count in said.items())
        raise UsageError(f"{named} disagree about how many responses a question gets")
    default = schedule.last if schedule else 128
    return next(iter(said.values()), default)


@dataclass(frozen=True)
class _Job:
    """A log, and everything it is filled with."""

    log: "Log"
    sampler: "OpenAISampler"
    ledger: "Ledger"
    concurrency: int
    block: int
    raw: Path | None

    def announce(self) -> None:
        """Say what is about to be asked."""
        from aera.sampling.sampler import request_bound

        log, budget = self.log, self.ledger.budget
        left = log.wanted - log.done
        if not left:
            return
        paid = log.paid
        missing = [each for each in log.questions if log.missing(each, block=1)]
        bounds = [request_bound(self.sampler.chat.body(each)) for each in missing]
        blocks = -(-log.wanted // len(log.questions) // self.block)
        estimate = Estimate(
            len(missing),
            left,
            left,
            bounds[0].max_tokens,
            sum(each.tokens for each in paid) / len(paid) if paid else None,
            blocks * sum((bound.prompt_tokens or 0) / 4 for bound in bounds),
        )
        where = without_password(self.sampler.upstream.endpoint.base_url)
        asking = f"asking {self.sampler.chat.model} at {where}"
        say(f"{asking}, {estimate.describe(budget, concurrency=self.concurrency)}", stderr=True)

    async def run(self) -> "Pool | None":
        """Sample what is missing."""
        from aera.sampling.recording import record

        with Shown("sampling", self.log.wanted, done=self.log.done) as shown:
            async with self.sampler as sampler:
                return await record(
                    self.log,
                    sampler,
                    concurrency=self.concurrency,
                    block=self.block,
                    ledger=self.ledger,
                    watch=lambda log: shown.update(log.done, self._progress),
                    raw=self.raw,
                )

    def _progress(self) -> str:
        ledger = self.ledger
        money = f", {ledger.money:,.4g} in money" if ledger.budget.priced else ""
        return f"responses, {ledger.spent.completion_tokens:,} tokens{money}"

    def conclude(self) -> None:
        """Say what is about to be asked, sample it, and say what became of it."""
        log, ledger, out = self.log, self.ledger, self.log.path
        self.announce()
        try:
            pool = asyncio.run(self.run())
        except KeyboardInterrupt:
            kept = f"{log.done:,} of {log.wanted:,} responses kept"
            say(f"{kept}; run the same command again to go on", stderr=True)
            raise
        for damage in log.damaged:
            say(f"{damage}: half-written, dropped and asked for again", stderr=True)
        for sentence in tell_lost(ledger):
            say(sentence, stderr=True)
        if pool is None and ledger.refused:
            raise PoolError(
                f"the limit in {ledger.limit} ended it: {log.done:,} of {log.wanted:,} responses "
                f'of "{out}" are there; run the same command with a higher limit to go on'
            )
        if pool is None:
            raise PoolError(
                f'{log.wanted - log.done} of {log.wanted} responses of "{out}" are missing, '
                f"failures are noted in {log.folder / 'failures.jsonl'} (the last: {log.trouble}); "
                "run the same command again"
            )
        cost = f"; {ledger.money:,.4g} in money" if ledger.budget.priced else ""
        say(f"{out}: {log.done:,} responses, {log.resumed:,} were there already{cost}")
