"""The options of `aera serve`; each can be set in the environment too."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer


def _option(variable: str, text: str, **limits: Any) -> Any:
    """An option that the environment can set too."""
    return typer.Option(envvar=f"AERA_{variable}", help=text, **limits)


UpstreamOption = Annotated[
    list[str] | None, _option("UPSTREAM", "Model server, up to /v1; repeat it for each replica.")
]
ConfigOption = Annotated[
    Path | None,
    _option(
        "CONFIG",
        "TOML file with models, upstreams, keys and limits; what it says wins over options, "
        "which fill in what it leaves out.",
    ),
]
CheckOption = Annotated[
    bool, _option("CHECK", "Read and check everything, say what would be served, and end.")
]
KeysFileOption = Annotated[
    Path | None, _option("KEYS_FILE", "File with clients' keys, one a line.")
]
ModelOption = Annotated[
    str, _option("MODEL", "Model for requests that name none; with --config, one of its models.")
]
ControllerOption = Annotated[
    Path | None,
    _option("CONTROLLER", "Controller directory; without one, ASC(0.95) on plain votes decides."),
]
TaskOption = Annotated[str, _option("TASK", "Task used when no controller is given (aera tasks).")]
PolicyOption = Annotated[
    str | None,
    _option("POLICY", "Policy by its label, as asc-0.9 or asc-0.9+weighted (aera policies)."),
]
WeightsOption = Annotated[
    str | None,
    _option(
        "WEIGHTS",
        "Weights that need no training: traces, for a server that gives top_logprobs.",
    ),
]
ScheduleOption = Annotated[
    str | None, _option("SCHEDULE", 'Checkpoints at which to decide, as "4,8,16" or "1-128".')
]
EqualOption = Annotated[
    bool, _option("EQUIVALENCE", "Ask math-verify which expressions are the same answer.")
]
ScorerOption = Annotated[
    str | None,
    _option("SCORER", "Scorer as MODULE:NAME, for a controller that was saved with one."),
]
TrustOption = Annotated[
    bool,
    _option("TRUST", "Keep the controller where questions are unlike those it was taught on."),
]
HostOption = Annotated[str, _option("HOST", "Address to listen on.")]
PortOption = Annotated[int, _option("PORT", "Port to listen on; 0 takes a free one.", max=65535)]
VoteOption = Annotated[
    bool, _option("VOTE_BY_DEFAULT", "Also vote where a request names the plain model.")
]
InstructionOption = Annotated[
    bool, _option("INSTRUCTION", "Append the task's answer instruction to each question.")
]
MinimumOption = Annotated[
    int | None, _option("MIN_SAMPLES", "Minimum samples before a vote may stop.", min=1)
]
SamplesOption = Annotated[
    int, _option("MAX_SAMPLES", "Most samples of one request, all choices together.", min=1)
]
ChoicesOption = Annotated[int, _option("MAX_N", "Largest n of a voted request.", min=1)]
LengthOption = Annotated[
    int | None, _option("MAX_TOKENS", "Longest response of a vote, in tokens.", min=1)
]
TokensOption = Annotated[
    int | None,
    _option("MAX_TOKENS_TOTAL", "Most completion tokens of one voted request.", min=1),
]
DeadlineOption = Annotated[
    float | None,
    _option("DEADLINE", "Deadline in seconds of a voted request that names none.", min=0.001),
]
LongestOption = Annotated[
    float,
    _option("MAX_DEADLINE", "Longest deadline of a voted request, in seconds.", min=0.001),
]
TimeoutOption = Annotated[
    float,
    _option("TIMEOUT", "Seconds for a call to the model server and its retries.", min=0.001),
]
ReplyOption = Annotated[
    int, _option("MAX_REPLY_BYTES", "Largest reply of the model server, in bytes.", min=1)
]
RequestsOption = Annotated[int, _option("MAX_REQUESTS", "Most requests at once.", min=1)]
BytesOption = Annotated[int, _option("MAX_BYTES", "Largest request, in bytes.", min=1)]
KeysOption = Annotated[
    str,
    _option("KEYS_ENV", "Environment variable with the clients' keys, separated by commas."),
]
ShareOption = Annotated[
    float,
    _option(
        "KEY_SHARE",
        "Share of the requests at once that one of several keys may take.",
        min=0,
        max=1,
    ),
]
KeyRequestsOption = Annotated[
    int | None, _option("KEY_REQUESTS_PER_MINUTE", "Most requests of one key a minute.", min=1)
]
KeyTokensOption = Annotated[
    int | None, _option("KEY_TOKENS_PER_MINUTE", "Most tokens of one key a minute.", min=1)
]
KeyMoneyOption = Annotated[
    float | None,
    _option("KEY_MONEY_PER_DAY", "Most money of one key a day, by --prices.", min=1e-9),
]
PricesOption = Annotated[
    str,
    _option("PRICES", "Price of a million prompt and of a million completion tokens, as 0.5,1.5."),
]
AllowedOption = Annotated[
    list[str] | None,
    _option("ALLOWED_HOST", "Another name by which the gateway may be called; repeatable."),
]
KeptOption = Annotated[
    list[str] | None,
    _option("KEEP_HEADER", "Header of a client that its samples carry too; repeatable."),
]
SecondOption = Annotated[
    str | None,
    _option("ESCALATE_TO", "Second model for undecided questions, as URL#MODEL."),
]
SecondKeyOption = Annotated[
    str | None,
    _option("ESCALATE_KEY_ENV", "Environment variable with the key for that second model."),
]
SecondHeaderOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Extra header of calls to that second model, as Name: value; repeatable, or a line "
        "each in AERA_ESCALATE_HEADER."
    ),
]
AuditShareOption = Annotated[
    float,
    _option(
        "AUDIT_SHARE",
        "Share of voted requests that run on to the full budget after their answer has left.",
        min=0,
        max=1,
    ),
]
AuditLimitOption = Annotated[
    float | None,
    _option(
        "AUDIT_LIMIT",
        "Share of changed answers above which audits raise the alarm [default: what the controller "
        "was certified for by agreement, else 0.02].",
        min=0.0001,
        max=1,
    ),
]
AuditMostOption = Annotated[int, _option("AUDIT_MAX", "Most audits under way at once.", min=1)]
AuditTokensOption = Annotated[
    int | None,
    _option("AUDIT_TOKENS", "Most completion tokens of audits a day.", min=1),
]
OnAlarmOption = Annotated[
    str,
    _option(
        "ON_ALARM", "log, or full-budget: no vote stops early from the alarm to the next start."
    ),
]
RecordOption = Annotated[
    Path | None,
    _option("RECORD", "Folder for audited questions with their responses, a pool for aera train."),
]
RecordMostOption = Annotated[int, _option("RECORD_MAX", "Most bytes recorded there.", min=1)]
LevelOption = Annotated[
    str, _option("LOG_LEVEL", "debug, info (a JSON line per request), warning or error.")
]
DrainOption = Annotated[
    float, _option("DRAIN_SECONDS", "Seconds to finish requests in when told to stop.", min=0)
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Extra header of every call, as Name: value; repeatable, or a line each in "
        "AERA_HEADER."
    ),
]
CAOption = Annotated[
    str | None,
    _option("CA_FILE", "File with the certificates to trust, for a private server."),
]
OwnKeyOption = Annotated[
    list[str] | None,
    _option(
        "API_KEY_ENV",
        "Environment variable with the key for the model server [default: OPENAI_API_KEY]; once, "
        "or once for each --upstream in the same order.",
    ),
]
ForwardOption = Annotated[
    bool, _option("FORWARD_KEY", "Send each client's own key to the model server, not ours.")
]
CallsOption = Annotated[
    int, _option("CONCURRENCY", "Most calls in flight to the model server.", min=1)
]
TriesOption = Annotated[int, _option("TRIES", "Tries of one call to the model server.", min=1)]


@dataclass(frozen=True)
class ServeOptions:
    """What `aera serve` takes, in the order of its help."""

    upstream: UpstreamOption = None
    model: ModelOption = "default"
    controller: ControllerOption = None
    task: TaskOption = "expression"
    policy: PolicyOption = None
    weights: WeightsOption = None
    schedule: ScheduleOption = None
    equivalence: EqualOption = False
    scorer: ScorerOption = None
    trust: TrustOption = False
    host: HostOption = "127.0.0.1"
    port: PortOption = 8001
    vote_by_default: VoteOption = False
    instruction: InstructionOption = False
    min_samples: MinimumOption = None
    max_samples: SamplesOption = 512
    max_n: ChoicesOption = 16
    max_tokens: LengthOption = None
    max_tokens_total: TokensOption = None
    deadline: DeadlineOption = None
    max_deadline: LongestOption = 1_800.0
    timeout: TimeoutOption = 600.0
    max_reply_bytes: ReplyOption = 64 * 2**20
    max_requests: RequestsOption = 512
    max_bytes: BytesOption = 16 * 2**20
    keys_env: KeysOption = "AERA_KEYS"
    keys_file: KeysFileOption = None
    key_share: ShareOption = 0.5
    key_requests_per_minute: KeyRequestsOption = None
    key_tokens_per_minute: KeyTokensOption = None
    key_money_per_day: KeyMoneyOption = None
    prices: PricesOption = "0,0"
    allowed_host: AllowedOption = None
    keep_header: KeptOption = None
    escalate_to: SecondOption = None
    escalate_key_env: SecondKeyOption = None
    escalate_header: SecondHeaderOption = None
    audit_share: AuditShareOption = 0.0
    audit_limit: AuditLimitOption = None
    audit_max: AuditMostOption = 16
    audit_tokens: AuditTokensOption = None
    on_alarm: OnAlarmOption = "log"
    record: RecordOption = None
    record_max: RecordMostOption = 2**30
    log_level: LevelOption = "info"
    drain_seconds: DrainOption = 30.0
    header: HeaderOption = None
    ca_file: CAOption = None
    api_key_env: OwnKeyOption = None
    forward_key: ForwardOption = False
    concurrency: CallsOption = 256
    tries: TriesOption = 3
    config: ConfigOption = None
    check: CheckOption = False
