"""A run's steps in Weights & Biases. The package finds its server and its login by itself."""
import json
import os
import pathlib
import sys
import threading

from .errors import Problem, one_line
from .rows import settings_of

# Not of the run: the machine on which this program happens to run, and its folder.
QUIET = {"console": "off", "disable_code": True, "disable_git": True, "save_code": False, "silent": True,
         "x_disable_machine_info": True, "x_disable_meta": True, "x_disable_stats": True, "x_save_requirements": False}
INIT_SECONDS = 30
FINISH_SECONDS = 300


class WandbLog:
    """Rows whose step W&B has already are left out: its steps only grow, and a step cannot be changed."""

    def __init__(self, project, finish_seconds=FINISH_SECONDS):
        self._entity, _, self._project = project.rpartition("/")
        self._finish_seconds = finish_seconds
        self._run, self._file = None, None
        self._last, self._added, self._left_out = -1, 0, 0
        self._settings, self._written = None, -1

    def check(self, _):
        """W&B says what is wrong when it opens a run, and makes nothing then."""

    def open(self, run):
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        settings = {name: value for name, value in QUIET.items() if name in wandb.Settings.model_fields}
        if "WANDB_INIT_TIMEOUT" not in os.environ:
            settings["init_timeout"] = INIT_SECONDS
        try:
            self._run = wandb.init(project=self._project, entity=self._entity or None, id=run.id, name=run.id,
                                   resume="allow", settings=wandb.Settings(**settings))
        except wandb.errors.UsageError as error:
            raise Problem(f"W&B: {one_line(error)}; log in by `{sys.executable} -m wandb login` or set WANDB_API_KEY, "
                          "or set WANDB_MODE=offline to write files into ./wandb") from error
        except Exception as error:
            raise Problem(f"W&B: {one_line(error)}; set WANDB_MODE=offline to write files into ./wandb, and send these "
                          "later by `wandb sync`") from error
        if self._run.disabled:
            raise Problem("W&B: WANDB_MODE or WANDB_DISABLED turns it off; set WANDB_MODE to online or offline")
        self._find_last(run)
        self.update(run)

    def _find_last(self, run):
        """The server knows the last step of a run. Offline nobody asks it: a file beside the runs has the step."""
        if not self._run.offline:
            self._last = self._run.starting_step - 1
        folder = pathlib.Path(self._run.settings.sync_dir).parent
        self._file = folder / f"longhaul-{self._project}-{run.id}.json"
        if self._run.offline and self._file.exists():
            self._last = json.loads(self._file.read_text(encoding="utf-8"))["last_step"]

    def where(self):
        if self._run.offline:
            return f"W&B: offline, in {self._run.settings.sync_dir}; `wandb sync` sends it"
        return f"W&B: {self._run.url}"

    def update(self, run):
        settings = settings_of(run)
        if settings and settings != self._settings:
            self._run.config.update(settings, allow_val_change=True)
            self._settings = settings
        self._run.summary.update({"run/state": run.state, "run/reason": run.reason})

    def add(self, step, metrics, _):
        if step <= self._last:
            self._left_out += 1
            return
        self._run.log(metrics, step=step, commit=True)
        self._last = step
        self._added += 1

    def flush(self):
        """The package sends by itself."""
        if self._written == self._last:
            return
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps({"last_step": self._last}), encoding="utf-8")
        part.replace(self._file)
        self._written = self._last

    def close(self, run):
        """A run that goes on is finished too, as W&B calls it: nobody sends any more. The next call resumes it."""
        self.flush()
        sent = threading.Thread(target=self._run.finish, kwargs={"exit_code": int(run.state == "failed")}, daemon=True)
        sent.start()
        sent.join(self._finish_seconds)
        if sent.is_alive():
            raise Problem(f"W&B did not take all steps within {self._finish_seconds} s; they are in "
                          f"{self._run.settings.sync_dir}, send them later by `wandb sync` with this folder")
        return f"W&B: {counts(self._added, self._left_out)}"


def counts(added, left_out):
    return f"{added} {'step' if added == 1 else 'steps'} logged, {left_out} were there already"
