"""Runs and steps as `longhaul steps --json` prints them, and what trackers get of them. Pure."""
import dataclasses
import math
import re

# A JSON number is null where the value is not finite; a value that may be left out is null then, too.
NOT_FINITE = math.nan


@dataclasses.dataclass(frozen=True)
class Run:
    id: str
    name: str = ""
    state: str = ""
    reason: str = ""
    ended: bool = False
    replay: bool = False  # no losses
    began_unix_ms: int = 0
    ended_unix_ms: int = 0
    run_file: str = ""  # canonical YAML; empty: the run has no plan yet
    tokens_of_replica: int = 0  # in a step; 0: not known

    @staticmethod
    def of(members):
        known = {field.name for field in dataclasses.fields(Run)}
        return Run(**{key: value for key, value in members.items() if key in known})


def metrics_of(row, run):
    """{name: number} of a step. Names that TensorBoard's files have, too, are the same there."""
    metrics = losses_of(row, run)
    metrics["step/attempt"] = row["epoch"]
    if row["step"] == 0:  # a validation and nothing else
        return metrics
    metrics["step/seconds"] = number(row["seconds"])
    metrics["step/link_bytes"] = row["link_bytes"]
    metrics["step/payload_bytes"] = row["payload_bytes"]
    replicas = row.get("replicas") or 1
    metrics["step/replicas"] = replicas
    if run.tokens_of_replica and row["seconds"]:
        metrics["step/tokens_per_second"] = replicas * run.tokens_of_replica / row["seconds"]
    if load := row.get("expert_load"):
        metrics["experts/load_highest"] = number(load["highest"])
        metrics["experts/load_mean"] = number(load["mean"])
    return metrics


def losses_of(row, run):
    metrics = {}
    if row["step"] > 0 and not run.replay:
        metrics["loss/training"] = number(row["loss"])
        metrics["optimizer/gradient_norm"] = number(row["gradient_norm"])
        metrics["optimizer/learning_rate"] = number(row["learning_rate"])
        metrics.update(stage_norms(row))
    if row["has_validation"]:
        metrics["loss/validation"] = number(row["validation_loss"])
        if row.get("clean_validation_loss") is not None:
            metrics["loss/validation_clean"] = row["clean_validation_loss"]
    for of in ("", "validation_"):  # as `longhaul steps --tensorboard` calls them
        for name in ("accuracy", "margin"):
            if row.get(f"{of}preference_{name}") is not None:
                metrics[f"preferences/{of}{name}"] = row[f"{of}preference_{name}"]
    return metrics


def stage_norms(row):
    """Each stage's part of the gradient norm. Cells are in the order of replicas, then of stages."""
    squares = row.get("squared_norms") or []
    replicas = row.get("replicas") or 1
    stages, left_over = divmod(len(squares), replicas)
    if left_over:  # of a version that counts otherwise
        return {}
    norms = {}
    for place, square in enumerate(squares):
        replica, stage = divmod(place, stages)
        name = f"replica_{replica}_stage_{stage}" if replicas > 1 else f"stage_{stage}"
        norms[f"gradient_norm/{name}"] = NOT_FINITE if square is None else math.sqrt(max(square, 0))
    return norms


def number(value):
    return NOT_FINITE if value is None else value


class Clock:
    """The time of each step in Unix seconds, as TensorBoard's files have it: the beginning of the run, and the times
    that its steps took."""

    def __init__(self, run):
        self._seconds = run.began_unix_ms / 1e3

    def after(self, row):
        self._seconds += row["seconds"] or 0
        return self._seconds


def settings_of(run):
    """The run file as nested dictionaries and lists; {} where there is none yet."""
    if not run.run_file:
        return {}
    import yaml  # both trackers need it

    class Loader(yaml.SafeLoader):
        """YAML 1.2's plain values: 1e-05 is a number, `no` and `12:30` are texts."""

    Loader.yaml_implicit_resolvers = {}
    for tag, pattern, first in (("null", r"(?:~|null)", "~n"), ("bool", r"(?:true|false)", "tf"),
                                ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
                                ("float", r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?",
                                 "-+.0123456789")):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^{pattern}$"), list(first))
    return yaml.load(run.run_file, Loader) or {}


def flat(settings, before=""):
    """{"train.steps": 100} of {"train": {"steps": 100}}. Lists stay."""
    values = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            values.update(flat(value, f"{before}{key}."))
        else:
            values[f"{before}{key}"] = value
    return values
