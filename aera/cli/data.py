"""The commands on files: import, export, merge, info, drop, label, and what names mean."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from aera.cli.options import (
    SILENT,
    advise,
    argument,
    as_set,
    diagnose,
    grouped,
    key_option,
    load_controller,
    option,
    pool_argument,
    say,
    without_password,
)
from aera.core import Question
from aera.errors import AeraError, UpstreamError, UsageError, check_count
from aera.policies.rules import DESCRIPTIONS, LIMITS, parse_policy
from aera.pools.log import FAILURES, count_dropped
from aera.pools.log import drop as drop_from
from aera.pools.parquet import ParquetPool, open_pool, show_address
from aera.pools.pool import Pool, Record, is_open, read_audits, read_growing
from aera.pools.stats import count_contents, judge_audits, name_few, tell_pool
from aera.reading.task import TASKS, Readability, Task, task_from_json
from aera.solving.controller import Controller, read_config


@grouped
def import_(
    file: str = argument("Recorded responses: a file, or a Parquet folder or URI."),
    out: Path = option("Directory the pool is written to.", default=...),
    task: str | None = option("Task by which answers are read (aera tasks); else the file's own."),
    format_name: str | None = option(
        "jsonl, json, csv, tsv, parquet, lm-eval, inspect or openai-batch; else it is recognised.",
        "--format",
    ),
    questions: Path | None = option("For openai-batch: the batch's input, or questions by id."),
    columns: list[str] | None = option(
        "A column under another name, as question=asked or question=item.question; repeatable. "
        "Ours: question, messages, system, id, choices, answer (what is right), group, responses, "
        "text, response_answer, tokens, finish_reason, index.",
        "--map",
    ),
    responses: int | None = option(
        "Responses a question needs to count; else the number that keeps most responses.", min=1
    ),
) -> None:
    """Bring recorded responses into a pool: JSON, CSV, Parquet, or logs of other programs."""
    from aera.lab.formats.pools import import_file

    found = import_file(
        file,
        out,
        task=task or None,
        format_name=format_name,
        questions=questions,
        columns=columns,
        responses=responses,
    )
    for line in found.lines:
        say(line)
    if found.warning is not None:
        say(found.warning, stderr=True, style="bold red")


@grouped
def export(
    source: Path = argument("A pool, or a file of what aera solve printed."),
    out: str = option(
        "FILE.parquet, a folder, or a URI of either; for answers a file.", default=...
    ),
) -> None:
    """Write a pool as Parquet, or allocations as the output of an OpenAI batch."""
    from aera.lab.formats.foreign import export_allocations
    from aera.lab.formats.pools import export_pool

    if source.is_dir():
        export_pool(Pool.open(source), out)
        say(f"{show_address(out)}: Parquet, a row per response")
    elif source.is_file():
        if "://" in out:
            raise UsageError("allocations go to a file on this disk; give its path as --out")
        lines = export_allocations(source, Path(out))
        say(f"{out}: OpenAI batch output, {lines:,} lines")
    else:
        raise UsageError(f'there is no pool and no file "{source}" to export')


@grouped
def merge(
    pools: list[str] = argument(
        "Pools with the same task and prompt; also exports, by folder or URI."
    ),
    out: Path = option("Directory the merged pool is written to.", default=...),
    responses: int | None = option(
        "Responses a question needs to count; else the number that keeps most responses."
    ),
) -> None:
    """Merge pools: their questions together, and more responses to those that are in several."""
    from aera.lab.formats.pools import merge_pools

    pool = merge_pools(pools, out, responses=responses)
    for line in tell_pool(pool.manifest, out):
        say(line)


Told = dict[str, Any]


@grouped
def info(
    address: str = argument(
        "A pool, also one that is being filled, an exported pool, or a controller; with "
        "--model, a model server.",
        metavar="POOL_OR_CONTROLLER",
    ),
    model: str | None = option("Ask the model server at this address what it gives of this model."),
    api_key_env: str = key_option(),
    as_json: bool = option("Print it as JSON, for programs.", "--json", default=False),
) -> None:
    """Say what a pool or a controller is: its size, its task, and what could be read of it.

    With --model, what a server gives: one request of a few tokens finds it out.
    """
    told, lines = _look(address) if model is None else _ask(address, model, api_key_env)
    if as_json:
        typer.echo(json.dumps(told, indent=2))
        return
    for line in lines:
        say(line)


def _look(address: str) -> tuple[Told, Iterator[str]]:
    """What stands at an address, as values and as lines."""
    path = Path(address)
    if (path / "config.json").is_file():
        told = _controller(path)
        return told, _controller_lines(told)
    if "://" not in address and not path.exists():
        raise UsageError(f'there is no pool and no controller at "{address}"')
    unfinished = read_growing(path) if is_open(path) else None
    if unfinished is not None:
        told = {"kind": "unfinished pool", **_unfinished(unfinished)}
    else:
        told = _pool(open_pool(address))
    told |= {"path": address, "awaiting": count_dropped(path)}
    return told, _pool_lines(told)


def _ask(address: str, model: str, api_key_env: str) -> tuple[Told, Iterator[str]]:
    """What a model server gives, found out by a request of a few tokens."""
    import asyncio

    from aera.sampling.client import Endpoint, Upstream

    endpoint = Endpoint(address, api_key_env, tries=1, timeout=60)

    async def probe() -> Told:
        if (problem := await diagnose(endpoint, [model])).endswith(SILENT):
            raise AeraError(problem)  # found out in seconds
        async with Upstream(endpoint) as upstream:
            return await upstream.probe(model)

    try:
        found = asyncio.run(probe())
    except UpstreamError as error:
        raise AeraError(f"{error}{advise(endpoint, model, str(error))}") from None
    place = without_password(address)
    told = {"kind": "model server", "path": place, "model": model, **found}
    takes = "several" if told["takes_n"] else "one only, so each response is a call of its own"
    lines = (
        f"{place}: a model server, asked for {model}",
        f"responses of one call (n): {takes}",
        f"logprobs: it gives {told['gives']}",
    )
    return told, iter(lines)


# --- pools ----------------------------------------------------------------------------------------


def _pool(pool: Pool | ParquetPool) -> Told:
    from aera.lab.label import open_truths

    manifest, truths = pool.manifest, open_truths(pool)
    stored = pool if isinstance(pool, Pool) else None
    grown = read_growing(stored.path) if stored else None
    return {
        "kind": "exported pool" if stored is None else "open pool" if stored.is_open else "pool",
        "written_by": manifest.written_by,
        "questions": len(pool),
        "responses": manifest.responses,
        "responses_each": manifest.each,
        "checkpoints": list(manifest.schedule),
        **_contents(pool, pool, [*pool.questions.values()]),
        "seed": manifest.seed,
        "truths": sum(name in truths.answers for name in pool.questions) if truths else None,
        "left_out": dict(pool.left_out),
        "growing": _unfinished(grown, stored) if grown else None,
        "audits": judge_audits(read_audits(stored.path, stored.dropped)) if stored else [],
    }


def _unfinished(found: Pool, base: Pool | None = None) -> Told:
    """How far a log is, with what was there before where it makes a pool larger."""
    before, failed = base.stored_counts if base else {}, found.path / FAILURES
    counts = [count + before.get(name, 0) for name, count in found.stored_counts.items()]
    each = found.wanted
    return {
        "questions": len(counts),
        "responses_each": each,
        "wanted": each * len(counts),
        "done": sum(counts),
        "fewest": min(counts, default=0),
        "most": max(counts, default=0),
        "finished_questions": sum(count >= each for count in counts),
        "failures": failed.read_bytes().count(b"\n") if failed.is_file() else 0,
        **_contents(found, found.everything(), [*found.stored_questions.values()]),
    }


def _contents(
    pool: Pool | ParquetPool, records: Iterable[Record], questions: Sequence[Question]
) -> Told:
    """How the questions were asked, how their answers are read, and what there is of them."""
    task, sampler = pool.task, pool.manifest.sampler
    about = _task(task, sampler.get("system") or task.system)
    sources = [sampler, *sampler.get("merged_from", ())]
    about["prompt"]["as_sampled"] = not any("imported_from" in told for told in sources)
    return {
        **about,
        "own_systems": sum(question.system is not None for question in questions),
        "groups": len({question.group for question in questions} - {None}),
        "sampler": dict(sampler),
        **count_contents(records, task),
    }


def _task(task: Task, system: str | None) -> Told:
    return {
        "task": {**task.as_json(), "read_from": task.describe()},
        "prompt": {"template": task.template, "system": system},
    }


def _task_lines(told: Told) -> Iterator[str]:
    task, prompt = told["task"], told["prompt"]
    yield f"task: {task['name']}, {task['kind']}; answers are read from {task['read_from']}"
    sent = " (the task's; what was sent is not recorded)" * (not prompt.get("as_sampled", True))
    yield f"prompt{sent}: {json.dumps(prompt['template'], ensure_ascii=False)}"
    system = prompt["system"]
    yield f"system: {json.dumps(system, ensure_ascii=False) if system else 'none'}"


def _pool_lines(told: Told) -> Iterator[str]:
    finished = "truths" in told
    if finished:
        version = f", written by aera {told['written_by']}" if told["written_by"] else ""
        yield f"{told['path']}: a{'n' * (told['kind'][0] in 'eo')} {told['kind']}{version}"
        exact = told["responses"] == told["questions"] * told["responses_each"]
        yield (
            f"{told['questions']:,} questions with {'' if exact else 'at least '}"
            f"{told['responses_each']} responses each, {told['responses']:,} in all; "
            f"checkpoints {', '.join(map(str, told['checkpoints']))}"
        )
    else:
        yield f"{told['path']}: a pool that is not finished; aera sample goes on with it"
        yield _progress_line(told)
    yield from _task_lines(told)
    yield from _contents_lines(told)
    if finished:
        truths = told["truths"]
        yield "truths: none" if truths is None else f"truths: for {truths:,} questions"
        yield f"groups: {told['groups']:,}" if told["groups"] else "groups: none"
        if told["left_out"]:
            yield f"left out: {name_few(told['left_out'])}"
        if told["growing"]:
            yield "it is being grown; aera sample goes on with it"
            yield _progress_line(told["growing"])
        yield from map(_audits_line, told["audits"])
    if told["awaiting"]:
        yield (
            f"dropped: {told['awaiting']:,} still stand in its files and are read by nobody; "
            "whoever writes to it erases them at the end, else aera drop"
        )


def _progress_line(told: Told) -> str:
    return (
        f"{told['done']:,} of {told['wanted']:,} responses are there: {told['fewest']} to "
        f"{told['most']} of {told['responses_each']} for each of {told['questions']:,} questions, "
        f"{told['finished_questions']:,} of which are finished; {told['failures']:,} failures"
    )


def _contents_lines(told: Told) -> Iterator[str]:
    if told["own_systems"]:
        yield f"{told['own_systems']:,} questions have a system message of their own"
    fields = {k: v for k, v in told["readability"].items() if k != "share"}
    known = task_from_json({k: v for k, v in told["task"].items() if k != "read_from"})
    yield f"read: {Readability(**fields).summary(known)}"
    for example in fields["examples"]:
        yield f"  not read: {example}"
    tokens, sampler = told["tokens"], told["sampler"]
    each = "" if tokens["each"] is None else f", {tokens['each']:,} a response"
    guessed = f", {sampler['tokens']}" if sampler.get("tokens") else ""
    yield f"tokens: {tokens['all']:,}{each}{guessed}"
    models = [f"{name} ({count:,})" for name, count in told["models"].items()]
    yield f"models: {', '.join(models) or sampler.get('model') or 'not recorded'}"
    only = f", {told['answers_only']:,} with only an answer" if told["answers_only"] else ""
    texts = f"{told['texts']:,} responses have one" if told["texts"] else "none"
    yield f"texts: {texts}{only}"
    traced = f", {told['traces']:,} with a trace of their tokens" if told["traces"] else ""
    some = f"{told['logprobs']:,} responses have them" if told["logprobs"] else "none"
    yield f"logprobs: {some}{traced}"


def _audits_line(told: Told) -> str:
    found = f"audits of {told['model']} by {told['policy']}: {told['audits']:,}"
    if not told["judged"]:
        return f"{found}; what came of them is not recorded"
    alarm = f"alarm at {told['alarm']}" if told["alarm"] else "no alarm"
    limit = "" if told["limit"] is None else f" of more than {told['limit']:.2%}"
    return (
        f"{found}, of {told['judged']:,} the answer changed in {told['changed']:,} "
        f"({told['low']:.2%} to {told['high']:.2%}, 95 % at any time); {alarm}{limit}"
    )


# --- controllers ----------------------------------------------------------------------------------


def _controller(path: Path) -> Told:
    config = read_config(path)
    unasked: Any = object()  # a scorer is not kept with a controller, and not needed here
    made = Controller.load(path, scorer=unasked if config.get("scorer") else None)
    return {
        "kind": "controller",
        "path": str(path),
        "label": made.label,
        "format": config["format"],
        "written_by": config.get("written_by"),
        "checkpoints": list(made.schedule),
        **_task(made.task, made.task.system),
        "fitted": len(made.fitted),
        "calibrated": len(made.calibrated),
        "shared": len(made.fitted & made.calibrated),
        "features": list(made.gate.features) if made.gate else [],
        "weighs": made.weigher is not None,
        "encoder": config["encoder"],
        "scorer": config.get("scorer"),
        "home": made.home.as_json() if made.home else None,
        "calibration": dict(made.calibration),
    }


def _controller_lines(told: Told) -> Iterator[str]:
    calibration = told["calibration"]
    wrote = f"aera {told['written_by']}" if told["written_by"] else "an older aera"
    yield f"{told['path']}: the controller {told['label']}, written by {wrote}"
    yield f"checkpoints {', '.join(map(str, told['checkpoints']))}"
    yield from _task_lines(told)
    others = "others" if not told["shared"] else f"questions, {told['shared']:,} of them the same"
    tuned = f", calibrated on {told['calibrated']:,} {others}" if told["calibrated"] else ""
    if calibration.get("out_of_fold"):
        tuned = ", calibrated on the same, out of fold"
    taught = f"{told['fitted']:,} questions{tuned}" if told["fitted"] or tuned else "nothing"
    yield f"taught on {taught}"
    yield _home_line(told["home"])
    for name in ("summary", "learned"):
        if calibration.get(name):
            yield str(calibration[name])
    encoder, votes = told["encoder"]["identity"], "weighted" if told["weighs"] else "plain"
    yield f"inputs: {len(told['features'])}, encoder {encoder or 'none'}, {votes} votes"


def _home_line(home: Told | None) -> str:
    """What it was taught on, or that it cannot know where it is."""
    if home is None:
        return "home: not recorded, so it does not notice when questions are of another kind"
    middle = len(home["spread"]["length"]) // 2
    length, numbers = (home["spread"][name][middle] for name in ("length", "numbers"))
    return (
        f"home: {home['questions']:,} questions, half of them above {length:.0f} characters and "
        f"{numbers:.0f} numbers; answers of {', '.join(home['models']) or 'a model not recorded'}, "
        f"weighed by {home['tier']}"
    )


@grouped
def label(
    pool: str = pool_argument(),
    out: Path = option("The table to fill in, as labels.csv.", default=...),
    controller: Path | None = option("Compare this controller and its weights with plain votes."),
    policies: str = option(
        "Policies by label that are compared with the full budget.", default="lead-4"
    ),
    questions: int = option("Most questions to list.", default=50),
    equivalence: bool = as_set("equivalence"),
) -> None:
    """List the questions where a right answer would decide most, as a table to fill in.

    Those are the ones on which plain and weighted votes, or two policies, answer differently.
    """
    from aera.lab.label import find_candidates, write_labels

    check_count("--questions", questions)
    loaded = load_controller(controller, equivalence) if controller else None
    records = open_pool(pool, equivalence=loaded.task.equivalence if loaded else equivalence)
    stated = [parse_policy(each) for each in policies.split(",")]
    own = [loaded.policy] if loaded else []
    found = find_candidates(records, [*own, *stated], loaded.weigher if loaded else None)
    total = len(records.questions)
    if not found:
        say(f"all {total:,} questions are answered alike; no label would decide anything")
        return
    kept = found[:questions]
    write_labels(out, kept)
    by_chance = len(kept) * len(found) / total
    say(
        f"{out}: {len(kept):,} of the {len(found):,} questions, of {total:,}, that are answered "
        f"differently; {len(kept):,} drawn by chance would hold {by_chance:.1f} of them"
    )
    say("fill in the column answer; a question that you cannot decide stays empty")


def policies() -> None:
    """List the policies that --policies and a gateway's requests may name."""

    table = _table("label", "stops", "from")
    for label, told in DESCRIPTIONS.items():
        table.add_row(label, *told)
    console = Console()
    console.print(table)
    for limit, meaning in LIMITS.items():
        console.print(f"{limit}: {meaning}", highlight=False)


def tasks() -> None:
    """List the tasks that --task may name: how a question is asked and its answer read."""

    table = _table("name", "answers are", "read from")
    for task in TASKS.values():
        table.add_row(task.name, task.kind, task.describe())
    Console().print(table)


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for place, name in enumerate(names):
        table.add_column(name, no_wrap=place == 0)
    return table


@grouped
def drop(
    pool: Path = argument("A pool, also one that is being written."),
    ids: str | None = option("Questions; of recorded audits replies or their requests: A,B,..."),
    before: str | None = option(
        "Audits of requests before 2026-01-31, or T12:00 of it.", metavar="DATE"
    ),
) -> None:
    """Have questions or recorded audits forgotten: nobody reads or writes them any more.

    They are erased at once, or by whoever is writing the pool, at the end.
    """
    named = [each.strip() for each in (ids or "").split(",") if each.strip()]
    if not named and before is None:
        raise UsageError("say what is to be dropped: --ids or --before")
    try:
        until = None if before is None else datetime.fromisoformat(before).timestamp()
    except ValueError:
        raise UsageError(f'--before is a date such as 2026-01-31, but got "{before}"') from None
    found, awaiting = drop_from(pool, named, until)
    left = f"; {awaiting:,} await whoever is writing it" if awaiting else ""
    say(f"{pool}: {found - awaiting:,} erased{left}; what comes of them later is not kept")
