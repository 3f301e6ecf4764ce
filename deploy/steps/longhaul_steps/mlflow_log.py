"""A run's steps in MLflow. The package finds its login by itself."""
import contextlib
import json
import os
import time

from .errors import Problem, one_line, without_password
from .rows import flat, settings_of
from .wandb_log import counts

EXPERIMENT = "longhaul"  # unless MLFLOW_EXPERIMENT_NAME names another one
TAG = "longhaul.run_id"
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
IN_EVERY_ROW = "step/attempt"
STATUS = {"done": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
# Limits of a request, and of a text that all versions take.
MOST_METRICS, MOST_PARAMS, LONGEST_TEXT = 1000, 100, 500


class MlflowLog:
    """Rows whose step MLflow has already are left out, so that a step has one value."""

    def __init__(self, uri):
        self._uri = uri
        self._client, self._experiment, self._id = None, None, None
        self._steps, self._waiting = set(), []
        self._params, self._tags, self._status = {}, {}, ""
        self._added, self._left_out = 0, 0

    def check(self, run):
        """Finds the run, or that there is none; makes nothing."""
        if self._uri.startswith("file:") or "://" not in self._uri:
            # Newer versions of MLflow want this said. Here the user has named a folder.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        with self._problems("check the address, the login and the network"), one_retry():
            import mlflow

            self._client = mlflow.MlflowClient(tracking_uri=self._uri)
            experiment = self._client.get_experiment_by_name(experiment_name())
            if experiment is None:
                return
            if experiment.lifecycle_stage == "deleted":
                raise Problem(f"MLflow: the experiment {experiment_name()} is deleted; restore it, or name another one "
                              "by MLFLOW_EXPERIMENT_NAME")
            self._experiment = experiment.experiment_id
            found = self._client.search_runs([self._experiment], f"tags.`{TAG}` = '{run.id}'",
                                             order_by=["attributes.start_time ASC"], max_results=1)
            if found:
                self._id, self._status = found[0].info.run_id, found[0].info.status
                self._params, self._tags = dict(found[0].data.params), dict(found[0].data.tags)
                history = self._client.get_metric_history(self._id, IN_EVERY_ROW)
                self._steps = {metric.step for metric in history}

    def open(self, run):
        with self._problems("check that the login may write"):
            if self._id is None:
                if self._experiment is None:
                    self._experiment = self._client.create_experiment(experiment_name())
                made = self._client.create_run(self._experiment, start_time=run.began_unix_ms or None,
                                               tags={TAG: run.id}, run_name=run.id)
                self._id, self._status = made.info.run_id, made.info.status
        self.update(run)

    def where(self):
        return f"MLflow: run {self._id} at {without_password(self._uri)}"

    def update(self, run):
        with self._problems():
            self._set_params(settings_of(run))
            tags = {"longhaul.state": run.state, "longhaul.reason": run.reason[:LONGEST_TEXT]}
            for key, value in tags.items():
                if value != self._tags.get(key, ""):
                    self._client.set_tag(self._id, key, value)
                    self._tags[key] = value
            if not run.ended and self._status != "RUNNING":
                self._client.update_run(self._id, status="RUNNING")
                self._status = "RUNNING"

    def _set_params(self, settings):
        """A param cannot be changed. Where the run file was, a tag has the new value."""
        from mlflow.entities import Param

        texts = {key: text_of(value) for key, value in flat(settings).items() if value is not None}
        new = [Param(key, text) for key, text in texts.items() if key not in self._params]
        for begin in range(0, len(new), MOST_PARAMS):
            self._client.log_batch(self._id, params=new[begin:begin + MOST_PARAMS])
        for key, text in texts.items():
            tag = f"changed.{key}"
            if text != self._params.setdefault(key, text) and text != self._tags.get(tag):
                self._client.set_tag(self._id, tag, text)
                self._tags[tag] = text

    def add(self, step, metrics, unix_seconds):
        if step in self._steps:
            self._left_out += 1
            return
        from mlflow.entities import Metric

        self._steps.add(step)
        if len(self._waiting) + len(metrics) > MOST_METRICS:
            self.flush()
        self._waiting += [Metric(name, float(value), int(1e3 * unix_seconds), step) for name, value in metrics.items()]
        self._added += 1

    def flush(self):
        if not self._waiting:
            return
        with self._problems("the run is not touched, and the same command again continues the log"):
            self._client.log_batch(self._id, metrics=self._waiting)
        self._waiting = []

    def close(self, run):
        """A run that goes on stays RUNNING."""
        self.flush()
        if run.ended:
            with self._problems():
                self._client.set_terminated(self._id, STATUS.get(run.state, "FINISHED"),
                                            run.ended_unix_ms or int(1e3 * time.time()))
        return f"MLflow: {counts(self._added, self._left_out)}"

    @contextlib.contextmanager
    def _problems(self, advice="the same command again continues the log"):
        try:
            yield
        except Problem:
            raise
        except Exception as error:
            raise Problem(f"MLflow at {without_password(self._uri)}: {one_line(error)}; {advice}") from error


@contextlib.contextmanager
def one_retry():
    """MLflow tries for minutes, which is right later on, and wrong for an address with a typing error."""
    if RETRIES in os.environ:
        yield
        return
    os.environ[RETRIES] = "1"
    try:
        yield
    finally:
        del os.environ[RETRIES]


def experiment_name():
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT


def text_of(value):
    if isinstance(value, (bool, list)):
        value = json.dumps(value)
    return str(value)[:LONGEST_TEXT]
