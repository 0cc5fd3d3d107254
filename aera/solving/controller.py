"""Controller: task, schedule and calibrated policy as one directory that can be shipped.

config.json         schedule, task, inputs in order, encoder, policy, threshold, seen questions,
                    and whether it takes a scorer, which is code and is not kept
model.safetensors   the arrays of the gate and of the weigher, where there is one
calibration.json    what calibration decided, and on what grounds
README.md           a model card
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from aera.arrays import Floats
from aera.errors import AeraError, ControllerError, UsageError
from aera.evidence.encoder import Encoder
from aera.evidence.encoders import load_encoder
from aera.evidence.paper import SCALARS, Projection
from aera.evidence.votes import VOTE_FEATURE_NAMES
from aera.files import check_format, file_hash, replacing, write_json, write_whole, written_by
from aera.network import Network
from aera.policies.baselines import ASC
from aera.policies.gate import Gate, Gated, PaperGate, VoteGate
from aera.policies.labels import label_of, parse_policy, strip_weighted
from aera.policies.policy import Bounded, Fixed, Policy, ServedPolicy
from aera.reading.equivalence import check_installed, question_reader
from aera.reading.presets import get_task
from aera.reading.task import Task, task_from_json
from aera.response import Question
from aera.schedule import Schedule
from aera.solving.run import Run
from aera.voting.best_of_n import BestOfN, Scorer, gives_weights
from aera.voting.weigher import Weigher, Weighting

FORMAT = 1
WEIGHER = "weigher."
"""What the weigher's arrays are called after."""


def question_hashes(question: Question) -> list[str]:
    """What a controller remembers of a question it has seen: its words and its group, no id."""
    keys = (key.encode("utf-8", "surrogatepass") for key in question.keys)
    return [hashlib.sha256(key).hexdigest()[:16] for key in keys]


def default_controller(task: Task | None = None) -> "Controller":
    """What is used without a trained controller: plain votes and ASC(0.95).

    Nothing learned on one benchmark was safe on another (docs/results.md, cold start); this is.
    """
    return Controller(task or get_task("expression"), Schedule(), ASC(0.95))


@dataclass(frozen=True, eq=False)
class Controller:
    """A frozen task, schedule and policy: what gets deployed."""

    task: Task
    schedule: Schedule
    policy: Policy
    """As calibrated. `live_policy` adds the rule that nobody gets an answer without a vote."""
    gate: Gate | None = None
    weigher: Weighting | None = None
    """Gives votes their weights or scores; without one every vote counts the same."""
    encoder_name: str | None = None
    """Name or path the encoder is loaded by; None is the shipped one."""
    calibration: Mapping[str, Any] = field(default_factory=dict)
    fitted: frozenset[str] = frozenset()
    """Hashes of the questions the gate was fitted on, early stopping included."""
    calibrated: frozenset[str] = frozenset()
    """Hashes of the questions the threshold was chosen on."""
    card: str = ""
    """Its model card, the README.md of its directory."""

    @property
    def live_policy(self) -> Policy:
        """The policy for answering people: it never stops without a vote before the maximum."""
        if isinstance(self.policy, Bounded):
            return replace(self.policy, need_vote=True)
        return Bounded(self.policy, need_vote=True)

    @property
    def label(self) -> str:
        """The policy and the votes it looks at: asc-0.71, asc-0.71+weighted, aera-0.17."""
        return label_of(self.policy, weighted=gives_weights(self.weigher))

    @property
    def asks(self) -> dict[str, Any]:
        """Fields a request needs for its responses to be judged as in training."""
        weigher = self.weigher
        wants = isinstance(weigher, Weigher | BestOfN) and weigher.uses_logprobs
        return {"logprobs": True} if wants else {}

    @property
    def threaded(self) -> bool:
        """Whether deciding is kept off the event loop: it embeds, scores or compares."""
        works = isinstance(self.gate, PaperGate) or self.weigher is not self._learned
        return works or self.task.equivalence

    @property
    def seen(self) -> frozenset[str]:
        """Every question that had a part in it."""
        return self.fitted | self.calibrated

    def start(self, question: Question) -> Run:
        """Begin to decide one question."""
        schedule = self.schedule
        if isinstance(self.policy, Fixed):  # nothing to decide on the way: one block, one prompt
            schedule = Schedule((min(self.policy.responses, schedule.last),))
        reader, weigher = question_reader(self.task), self.weigher
        policy = ServedPolicy(self.live_policy, patient=True)
        label = label_of(policy, weighted=gives_weights(weigher))
        return Run(question, policy, task=reader, schedule=schedule, weigher=weigher, label=label)

    def __repr__(self) -> str:
        summary = self.calibration.get("summary") or "not calibrated"
        return f"<Controller {self.label} for {self.task.name}, {self.schedule}: {summary}>"

    def save(self, path: str | Path) -> None:
        """Write the directory; a file that is there is replaced whole, config.json last."""
        path = Path(path)
        self._check_lasting()
        path.mkdir(parents=True, exist_ok=True)
        model = path / "model.safetensors"
        tensors = self._tensors()
        if tensors:
            with replacing(model) as partial:
                save_file(tensors, partial)
        encoder = self.gate.encoder.identity if isinstance(self.gate, PaperGate) else None
        config = {
            "format": FORMAT,
            "written_by": written_by(),
            "task": self.task.as_json(),
            "schedule": list(self.schedule),
            "policy": self.label,
            "threshold": self.policy.threshold if isinstance(self.policy, Gated) else None,
            "features": list(self.gate.features) if self.gate else [],
            "traits": list(self._learned.features) if self._learned else [],
            "encoder": {"name": self.encoder_name, "identity": encoder},
            "scorer": self.weigher.as_json() if isinstance(self.weigher, BestOfN) else None,
            "model_sha256": file_hash(model) if tensors else None,
            "fitted": sorted(self.fitted),
            "calibrated": sorted(self.calibrated),
        }
        write_json(path / "calibration.json", dict(self.calibration))
        write_whole(path / "README.md", self.card or f"# AERA controller\n\n`{self.label}`\n")
        write_json(path / "config.json", config)

    def _tensors(self) -> dict[str, Any]:
        gate = self.gate.tensors() if self.gate else {}
        weigher = self._learned.network.tensors() if self._learned else {}
        named = {**gate, **{WEIGHER + name: array for name, array in weigher.items()}}
        return {name: np.ascontiguousarray(array, np.float64) for name, array in named.items()}

    @property
    def _learned(self) -> Weigher | None:
        """The weigher that can be kept on disk."""
        return self.weigher if isinstance(self.weigher, Weigher) else None

    def _check_lasting(self) -> None:
        """Refuse weights of unknown kind, and a policy that label and gate could not bring back."""
        if not isinstance(self.weigher, Weigher | BestOfN | None):
            raise ControllerError(
                f"a controller cannot keep a {type(self.weigher).__name__}; save it with "
                "weigher=None, and put yours back after loading"
            )
        try:
            lasts = (
                self.policy.gate is self.gate
                if isinstance(self.policy, Gated)
                else str(parse_policy(str(self.policy))) == str(self.policy)
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
        path = Path(path)
        config = read_config(path)
        calibration = _read_json(path / "calibration.json")
        try:
            check_format(config, FORMAT, where=f'"{path / "config.json"}"', error=ControllerError)
            tensors = _load_tensors(path / "model.safetensors", config["model_sha256"])
            gate = _gate(path, tensors, config) if tensors and config["features"] else None
            weigher = _best_of_n(path, config, scorer) or _weigher(path, tensors, config)
            made = cls(
                task=task_from_json(config["task"]),
                schedule=Schedule(tuple(map(index, config["schedule"]))),
                policy=_policy(config, gate),
                gate=gate,
                weigher=weigher,
                encoder_name=config["encoder"]["name"],
                calibration=calibration,
                fitted=frozenset(config["fitted"]),
                calibrated=frozenset(config["calibrated"]),
                card=_read_card(path),
            )
            _check_label(config["policy"], made)
        except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
            raise ControllerError(
                f'"{path / "config.json"}" is not a controller of this version: {_problem(error)}'
            ) from None
        _check_equivalence(path, made.task)
        return made

    def find_seen(self, questions: Iterable[Question]) -> list[str]:
        """The ids of those questions that it was fitted or calibrated on."""
        return [each.id for each in questions if self.seen.intersection(question_hashes(each))]


def _read_card(path: Path) -> str:
    """The model card, where there is one; it decides nothing."""
    try:
        return (path / "README.md").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _policy(config: Mapping[str, Any], gate: Gate | None) -> Policy:
    if config["threshold"] is None:
        return parse_policy(strip_weighted(config["policy"]))
    if gate is None:
        raise ValueError("a threshold without a gate")
    policy = Gated(gate, config["threshold"])
    if str(policy) != config["policy"]:
        raise ValueError("policy and threshold disagree")
    return policy


def _check_label(label: str, made: Controller) -> None:
    """Refuse a label of weighted votes without weights; older ones say nothing of the votes."""
    if label not in (made.label, str(made.policy)):
        raise ValueError(f'the policy "{label}" is on other votes than its own')


def _load_tensors(file: Path, expected: str | None) -> dict[str, Floats]:
    """The arrays, if the file is the one it was saved with; none where none were saved."""
    if expected is None:
        return {}
    if not file.is_file() or file_hash(file) != expected:
        trouble = "is not the file it was saved with" if file.is_file() else "is missing"
        raise ControllerError(f'"{file}" {trouble}; copy the whole controller again')
    try:
        return load_file(file)
    except SafetensorError as error:
        raise ControllerError(f'"{file}" cannot be read: {error}') from None


def _gate(path: Path, tensors: Mapping[str, Floats], config: Mapping[str, Any]) -> Gate:
    """The gate whose inputs the file names."""
    features = tuple(config["features"])
    own = {name: array for name, array in tensors.items() if not name.startswith(WEIGHER)}
    try:
        network = Network.from_tensors(own)
        if features[0] in VOTE_FEATURE_NAMES:
            network.outputs(np.zeros((1, len(VOTE_FEATURE_NAMES))))
            return VoteGate(network, features)
        projection = Projection(own["projection.mean"], own["projection.components"])
        blank = [np.zeros(len(SCALARS)), projection.apply(projection.mean)]
        network.outputs(np.concatenate(blank)[None])
    except (KeyError, ValueError) as error:
        raise ControllerError(
            f'"{path / "model.safetensors"}" does not hold a gate: {_problem(error)}'
        ) from None
    encoder = _load_encoder(config["encoder"], projection)
    return PaperGate(network, projection, encoder, features)


def _weigher(
    path: Path, tensors: Mapping[str, Floats], config: Mapping[str, Any]
) -> Weigher | None:
    """The weigher, if traits or arrays say that there is one; half of one is refused."""
    own = {name.removeprefix(WEIGHER): a for name, a in tensors.items() if name.startswith(WEIGHER)}
    if not own and not config.get("traits"):
        return None
    try:
        weigher = Weigher(Network.from_tensors(own), tuple(config["traits"]))
        weigher.weights(np.zeros((1, len(weigher.features))))
    except (KeyError, ValueError) as error:
        raise ControllerError(
            f'"{path / "model.safetensors"}" does not hold a weigher: {_problem(error)}'
        ) from None
    return weigher


def _best_of_n(path: Path, config: Mapping[str, Any], scorer: Scorer | None) -> BestOfN | None:
    """The scorer in its place, if there is one exactly where one is needed."""
    kept = config.get("scorer")
    if kept is None and scorer is None:
        return None
    if kept is None:
        raise ControllerError(f'the controller at "{path}" was made for votes and takes no scorer')
    if scorer is None:
        raise ControllerError(
            f'the controller at "{path}" was made for a scorer, {kept["name"]}, which is code and '
            "is not kept: give it as --scorer MODULE:NAME to aera solve or aera serve, or as "
            "Controller.load(path, scorer=...)"
        )
    return BestOfN(scorer, uses_logprobs=bool(kept["uses_logprobs"]))


def _check_equivalence(path: Path, task: Task) -> None:
    """Refuse a controller that compares expressions where nothing can compare them."""
    try:
        if task.equivalence:
            check_installed()
    except UsageError as error:
        raise ControllerError(
            f'the controller at "{path}" merges equal expressions, but {error}'
        ) from None


def _load_encoder(named: Mapping[str, Any], projection: Projection) -> Encoder:
    try:
        encoder = load_encoder(named["name"])
    except AeraError as error:
        raise ControllerError(f"the controller's encoder cannot be had: {error}") from None
    if encoder.identity != named["identity"] or encoder.dimensions != len(projection.mean):
        raise ControllerError(
            f"the controller was trained with the encoder {named['identity']}, but here is "
            f"{encoder.identity}; use the version it was trained with, or train it again"
        )
    return encoder


def _problem(error: Exception) -> str:
    return f"the field {error} is missing" if isinstance(error, KeyError) else str(error)


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
