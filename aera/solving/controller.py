"""What a controller's directory holds, read and checked; what cannot be used is one sentence."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from aera.arrays import Floats
from aera.core import Question, Reader, Schedule, Weighting
from aera.errors import TRAIN_AGAIN, ControllerError, UsageError, check_count
from aera.files import (
    Json,
    check_format,
    file_hash,
    problem,
    replacing,
    write_json,
    write_whole,
    written_by,
)
from aera.network import Network
from aera.policies import rules
from aera.policies.domain import Home, Lookout, home_from_json
from aera.policies.gate import VOTE_FEATURE_NAMES, Gate, Gated, Live
from aera.reading.equivalence import check_installed
from aera.reading.task import Task, get_task, question_reader, task_from_json
from aera.solving.run import Pace, Run
from aera.trace import FULL
from aera.voting.rules import BestOfN, Scorer, TraceWeights, find_weights, gives_weights
from aera.voting.structure import StructureReader, structure_vote
from aera.voting.traits import TRACE, TRAIT_NAMES
from aera.voting.weigher import Weigher

WEIGHER = "weigher."
"""What the weigher's arrays are called after."""


def _load_model(file: Path, config: Mapping[str, Any]) -> tuple[Gate | None, Weigher | None]:
    """The gate and the weigher of a controller, if the file is the one it was saved with."""
    tensors: Mapping[str, Floats] = {}
    if (expected := config["model_sha256"]) is not None:
        if not file.is_file() or file_hash(file) != expected:
            trouble = "is not the file it was saved with" if file.is_file() else "is missing"
            raise ControllerError(f'"{file}" {trouble}; copy the whole controller again')
        try:
            tensors = load_file(file)
        except SafetensorError as error:
            raise ControllerError(f'"{file}" cannot be read: {error}') from None
    # Traits or arrays say that there is a weigher; half of one is refused.
    weighs = config.get("traits") or any(name.startswith(WEIGHER) for name in tensors)
    inputs = [config["traits"], *config.get("lower_traits", ())] if weighs else []
    what = "gate"
    try:
        gate = _load_gate(tensors, config) if tensors and config["features"] else None
        what = "weigher"
        weighers = [_load_weigher(tensors, *each) for each in enumerate(inputs)]
    except (KeyError, ValueError) as error:
        raise ControllerError(
            f'"{file}" does not hold a {what}: {problem(error)}; {TRAIN_AGAIN}'
        ) from None
    return gate, replace(weighers[0], lower=tuple(weighers[1:])) if weighers else None


def _load_gate(tensors: Mapping[str, Floats], config: Mapping[str, Any]) -> Gate:
    """The gate whose inputs the file names."""
    own = {name: array for name, array in tensors.items() if WEIGHER not in name}
    network, features = Network.from_tensors(own), tuple(config["features"])
    if features[0] in VOTE_FEATURE_NAMES:
        network.outputs(np.zeros((1, len(features))))
        return Gate(network, features=features)
    from aera.paper.features import load_paper_gate  # only here is it needed

    return load_paper_gate(network, own, features, config["encoder"])


def _load_weigher(tensors: Mapping[str, Floats], number: int, traits: Sequence[str]) -> Weigher:
    """The best weigher, or one of its lower ones."""
    prefix = _prefix(number)
    own = {n.removeprefix(prefix): array for n, array in tensors.items() if n.startswith(prefix)}
    made = Weigher(Network.from_tensors(own), tuple(traits))
    made.weights(np.zeros((1, len(TRAIT_NAMES))))
    return made


def _prefix(number: int) -> str:
    """What the arrays of a weigher are called after: the best, or one of its lower ones."""
    return f"lower{number - 1}.{WEIGHER}" if number else WEIGHER


def _best_of_n(path: Path, config: Mapping[str, Any], scorer: Scorer | None) -> BestOfN | None:
    """The scorer in its place, if there is one exactly where one is needed."""
    kept = config.get("scorer")
    if scorer is not None and kept is None:
        raise ControllerError(f'the controller at "{path}" was made for votes and takes no scorer')
    if scorer is None and kept is not None:
        raise ControllerError(
            f'the controller at "{path}" was made for a scorer, {kept["name"]}, which is code and '
            "is not kept: give it as --scorer MODULE:NAME to aera solve, serve or evaluate, or as "
            "Controller.load(path, scorer=...)"
        )
    return BestOfN(scorer) if scorer is not None else None


def read_config(path: Path) -> Any:
    """What config.json of a controller says, as it stands there."""
    return _read_json(path / "config.json")


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ControllerError(
            f'there is no controller at "{path.parent}": {path.name} is missing'
        ) from None
    except (ValueError, OSError) as error:
        raise ControllerError(f'"{path}" cannot be read: {error}') from None


FORMAT = 1


def question_hashes(question: Question) -> list[str]:
    """What a controller remembers of a question it has seen: its words and its group, no id."""
    keys = (key.encode("utf-8", "surrogatepass") for key in question.keys)
    return [hashlib.sha256(key).hexdigest()[:16] for key in keys]


def default_controller(task: Task | None = None) -> "Controller":
    """What is used without a trained controller: plain votes and UNTRAINED.

    Nothing learned on one benchmark was safe on another (docs/results.md, cold start); this is.
    """
    return Controller(task or get_task("expression"), Schedule(), rules.UNTRAINED)


@dataclass(frozen=True, eq=False)
class Controller:
    """A frozen task, schedule and policy: what gets deployed."""

    task: Task
    schedule: Schedule
    policy: rules.Policy
    """As calibrated. `start` adds what live answers need (Live)."""
    gate: Gate | None = None
    weigher: Weighting | None = None
    """Gives votes their weights or scores; without one every vote counts the same."""
    encoder_name: str | None = None
    """Name or path the encoder is loaded by; None is the shipped one."""
    calibration: Mapping[str, Any] = field(default_factory=dict)
    fitted: frozenset[str] = frozenset()
    """Hashes of the questions it was taught by: gate and weights, early stopping included."""
    calibrated: frozenset[str] = frozenset()
    """Hashes of the questions the threshold was chosen on.

    They are those that taught it where each was judged out of fold, which its calibration then says
    under "out_of_fold"; older controllers leave them out there.
    """
    card: str = ""
    """Its model card, the README.md of its directory."""
    home: Home | None = None
    """What it was taught on; without it nothing tells it that it is elsewhere."""

    def __post_init__(self) -> None:
        if gives_weights(self.weigher) and not rules.is_weighted(self.policy):
            object.__setattr__(self, "policy", _mark_weighted(self.policy))

    @property
    def label(self) -> str:
        """The policy and the votes it looks at: asc-0.71, asc-0.71+weighted, aera-0.17."""
        return rules.label_of(self.policy, weighted=gives_weights(self.weigher))

    @cached_property
    def live_label(self) -> str:
        """What allocations call the policy that answers people."""
        return rules.label_of(self._live[0], weighted=gives_weights(self.weigher))

    @cached_property
    def asks(self) -> Json:
        """Fields a request needs for its responses to be judged as in training."""
        confident = rules.confident_rule(self.policy) is not None
        return dict(FULL if confident else getattr(self.weigher, "asks", {}))

    @cached_property
    def pace(self) -> Pace:
        """Whether deciding embeds or scores, or waits for comparisons in another process."""
        scores = not isinstance(self.weigher, Weigher | TraceWeights | None)
        if self.task.equivalence and not scores:
            return "waits"
        return "works" if scores or (self.gate and self.gate.encoder_identity) else "quick"

    @property
    def seen(self) -> frozenset[str]:
        """Every question that had a part in it."""
        return self.fitted | self.calibrated

    @cached_property
    def plain(self) -> "Controller":
        """What answers where it is abroad: plain votes, by UNTRAINED or its own fixed budget."""
        rule = own if isinstance(own := rules.inside(self.policy), rules.Fixed) else rules.UNTRAINED
        policy = rules.within(self.policy, rule)
        return replace(self, policy=policy, gate=None, weigher=None, home=None)

    def make_lookout(self) -> Lookout:
        """Who tells it that it is abroad; nobody need where nothing that was learned is used."""
        learned = gives_weights(self.weigher) or isinstance(rules.inside(self.policy), Gated)
        return Lookout(self.home if learned else None)

    def start(
        self, question: Question, *, reader: Reader | None = None, label: str | None = None
    ) -> Run:
        """Begin to decide one question: every live run begins here.

        A `reader` of one's own takes the task's place; one of tool calls and JSON
        (StructureReader) is decided by plain votes.
        """
        structured = isinstance(reader, StructureReader)
        if structured and gives_weights(self.weigher):
            return self.plain.start(question, reader=reader, label=label)
        policy, schedule = self._live
        if structured:
            policy = replace(policy, structured=True)
        return Run(
            question,
            policy,
            task=reader or question_reader(self.task, question),
            schedule=schedule,
            rule=structure_vote if structured else None,
            weigher=None if structured else self.weigher,
            label=label or self.live_label,
            pace=self.pace,
        )

    @cached_property
    def _live(self) -> tuple[Live, Schedule]:
        """The policy that answers people, and where it decides; the same for all."""
        schedule = self.schedule
        if rules.fixed_in(self.policy):
            # Nothing is decided on the way: one block, one prompt.
            schedule = Schedule((rules.range_of(self.policy, schedule.last)[1],))
        return Live.of(self.policy), schedule

    def run_by(self, label: str) -> "Controller":
        """The same under another policy, by a label as `evaluate` prints it.

        Weighted votes (asc-0.9+weighted, weighted-64) and aera-T need what was learned; any other
        label is on plain votes. A fixed budget beyond the schedule makes it longer.
        """
        plain = rules.strip_weighted(label)
        own: dict[str, rules.Maker] = {}
        if (gate := self.gate) is not None:
            own["aera"] = lambda threshold: Gated(gate, float(threshold))
        elif label.startswith(rules.GATED):
            raise UsageError(f'"{label}" needs a gate, which comes with a trained controller')
        policy = rules.parse_policy(plain, own)
        learned = gives_weights(self.weigher)
        if plain != label and not learned:
            raise UsageError(
                f'"{label}" is on weighted votes, and weights come with a trained controller; '
                f'without one the policy is "{plain}"'
            )
        stated = isinstance(self.weigher, TraceWeights)  # somebody asked for these
        keeps = plain != label or label.startswith(rules.GATED) or stated or not learned
        schedule = self.schedule
        if isinstance(policy, rules.Fixed) and policy.responses > schedule.last:
            schedule = Schedule((*schedule, policy.responses))
        weigher = self.weigher if keeps else None
        return replace(self, policy=policy, weigher=weigher, schedule=schedule)

    def at(self, threshold: float) -> "Controller":
        """The same with its gate at another threshold."""
        if self.gate is None or not isinstance(rules.inside(self.policy), Gated):
            raise UsageError("a threshold needs a controller with a gate, and its policy")
        return replace(self, policy=rules.within(self.policy, Gated(self.gate, threshold)))

    def bounded(self, minimum: int | None, maximum: int) -> "Controller":
        """The same with no fewer and no more responses for a question, whatever it decides.

        Both become checkpoints, so that they hold exactly. Later ones stay, though none is reached:
        a gate knows how far the full budget is.
        """
        last, policy = self.schedule.last, self.policy
        least, most = rules.bounds_of(policy, last)
        least, most = max(least, minimum or 0), min(most, maximum)
        if least > most:
            raise UsageError(f"the minimum of {least} samples is above the maximum of {most}")
        schedule = Schedule(tuple(sorted({*self.schedule, most, least or most})))
        if least or most < last:
            # A maximum that the schedule does not reach is none: its end is the full budget.
            reached = most if most < last else None
            policy = rules.Bounded(rules.inside(policy), least or None, reached, need_vote=False)
        return replace(self, policy=policy, schedule=schedule)

    def cut_to(self, responses: int) -> "Controller":
        """The same with at most so many responses for a question."""
        check_count("--max-samples", responses)
        if responses > self.schedule.last:
            raise UsageError(
                f"at most {responses} samples are above the schedule, which ends at "
                f"{self.schedule.last}; --schedule sets another"
            )
        return replace(self, schedule=self.schedule.upto(responses))

    def __repr__(self) -> str:
        summary = self.calibration.get("summary") or "not calibrated"
        return f"<Controller {self.label} for {self.task.name}, {self.schedule}: {summary}>"

    def save(self, path: str | Path) -> None:
        """Write the directory; a file that is there is replaced whole, config.json last."""
        path = Path(path)
        self._check_lasting()
        path.mkdir(parents=True, exist_ok=True)
        model, gate = path / "model.safetensors", self.gate
        best = self.weigher if isinstance(self.weigher, Weigher) else None
        weighers = [best, *best.lower] if best else []
        tensors = gate.tensors() if gate else {}
        for number, each in enumerate(weighers):
            own = each.network.tensors().items()
            tensors |= {_prefix(number) + name: array for name, array in own}
        if tensors:
            with replacing(model) as partial:
                flat = {n: np.ascontiguousarray(array, np.float64) for n, array in tensors.items()}
                save_file(flat, partial)
        traits = [list(each.features) for each in weighers]
        config = {
            "format": FORMAT,
            "written_by": written_by(),
            "task": self.task.as_json(),
            "schedule": list(self.schedule),
            "policy": self.label,
            "threshold": self.policy.threshold if isinstance(self.policy, Gated) else None,
            "features": list(gate.features) if gate else [],
            "traits": traits[0] if traits else [],
            "lower_traits": traits[1:],
            "weights": TRACE if isinstance(self.weigher, TraceWeights) else None,
            "encoder": {"name": self.encoder_name, "identity": gate and gate.encoder_identity},
            "scorer": self.weigher.as_json() if isinstance(self.weigher, BestOfN) else None,
            "model_sha256": file_hash(model) if tensors else None,
            "home": self.home.as_json() if self.home else None,
            "fitted": sorted(self.fitted),
            "calibrated": sorted(self.calibrated),
        }
        write_json(path / "calibration.json", dict(self.calibration))
        write_whole(path / "README.md", self.card or f"# AERA controller\n\n`{self.label}`\n")
        write_json(path / "config.json", config)

    def _check_lasting(self) -> None:
        """Refuse weights of unknown kind, and a policy that label and gate could not bring back."""
        if not isinstance(self.weigher, Weigher | BestOfN | TraceWeights | None):
            raise ControllerError(
                f"a controller cannot keep a {type(self.weigher).__name__}; save it with "
                "weigher=None, and put yours back after loading"
            )
        try:
            lasts = (
                self.policy.gate is self.gate
                if isinstance(self.policy, Gated)
                else str(rules.parse_policy(str(self.policy))) == str(self.policy)
            )
        except UsageError:
            lasts = False
        if not lasts:
            raise ControllerError(
                f"a controller cannot keep the policy {self.policy}; it keeps those that a label "
                "names, and its own gate with a threshold"
            )

    @classmethod
    def load(cls, path: str | Path, *, scorer: Scorer | None = None) -> "Controller":
        """Read a directory; a foreign, truncated or changed file is refused in one sentence.

        One that was saved with a scorer needs it again, and no other takes one.
        """
        path, card = Path(path), Path(path) / "README.md"
        config, calibration = read_config(path), _read_json(path / "calibration.json")
        try:
            check_format(config, FORMAT, where=f'"{path / "config.json"}"', error=ControllerError)
            gate, weigher = _load_model(path / "model.safetensors", config)
            traced = find_weights(name) if (name := config.get("weights")) is not None else None
            made = cls(
                task=task_from_json(config["task"]),
                schedule=Schedule(tuple(map(index, config["schedule"]))),
                policy=_policy(config, gate),
                gate=gate,
                weigher=_best_of_n(path, config, scorer) or weigher or traced,
                encoder_name=config["encoder"]["name"],
                calibration=calibration,
                fitted=frozenset(config["fitted"]),
                calibrated=frozenset(config["calibrated"]),
                card=card.read_text("utf-8", "replace") if card.is_file() else "",
                home=None if (home := config.get("home")) is None else home_from_json(home),
            )
            if config["policy"] not in (made.label, str(made.policy)):  # of older ones
                raise ValueError(f'the policy "{config["policy"]}" is on other votes than its own')
        except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
            raise ControllerError(
                f'"{path / "config.json"}" is not a controller of this version: '
                f"{problem(error)}; {TRAIN_AGAIN}"
            ) from None
        if made.task.equivalence:
            who = f'the controller at "{path}" merges equal expressions, but equivalence'
            check_installed(who, ControllerError)
        return made

    def find_seen(self, questions: Iterable[Question]) -> list[str]:
        """The ids of those questions that it was fitted or calibrated on."""
        return [each.id for each in questions if self.seen.intersection(question_hashes(each))]


def _policy(config: Mapping[str, Any], gate: Gate | None) -> rules.Policy:
    if config["threshold"] is None:
        return rules.parse_policy(rules.strip_weighted(config["policy"]))
    if gate is None:
        raise ValueError("a threshold without a gate")
    policy = Gated(gate, config["threshold"])
    if str(policy) != config["policy"]:
        raise ValueError("policy and threshold disagree")
    return policy


def _mark_weighted(policy: rules.Policy) -> rules.Policy:
    """A policy that says of itself that its setting is for weighted votes."""
    inner = rules.inside(policy)
    if not isinstance(inner, rules.ASC | Gated):
        return policy
    return rules.within(policy, replace(inner, weighted=True))
