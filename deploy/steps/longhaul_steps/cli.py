"""The program: lines from standard input (cli/steps_command.h) into trackers."""
import argparse
import json
import sys
import warnings

from .answers import Answers
from .errors import Problem, one_line
from .mlflow_log import MlflowLog
from .rows import Clock, Run, metrics_of
from .wandb_log import WandbLog

DONE, FAILED = 0, 1


def parse(arguments):
    parser = argparse.ArgumentParser(prog="longhaul steps", allow_abbrev=False)
    parser.add_argument("--wandb", metavar="PROJECT")
    parser.add_argument("--mlflow", metavar="URI")
    return parser.parse_args(arguments)


class Logs:
    """Trackers that are open, and the run."""

    def __init__(self, trackers, run):
        self.run = run
        self._clock = Clock(run)
        self._open = []
        for tracker in trackers:
            tracker.check(run)
        for tracker in trackers:
            try:
                tracker.open(run)
            except Problem:
                self.close()
                raise
            self._open.append(tracker)

    def take(self, line):
        """One line of the input."""
        if not line.strip():
            self._each(lambda tracker: tracker.flush())
            return
        message = json.loads(line)
        if "run" in message:
            self.run = Run.of(message["run"])
            self._each(lambda tracker: tracker.update(self.run))
            return
        step, seconds = int(message["step"]), self._clock.after(message)
        metrics = metrics_of(message, self.run)
        self._each(lambda tracker: tracker.add(step, metrics, seconds))

    def where(self):
        return [tracker.where() for tracker in self._open]

    def close(self):
        """What each tracker has got. All are closed; the first problem is raised."""
        logged, problem = [], None
        for tracker in self._open:
            try:
                logged.append(tracker.close(self.run))
            except Problem as error:
                problem = problem or error
        if problem:
            raise problem
        return logged

    def _each(self, do):
        """A tracker with a problem is left; the others get what has come, and then all ends."""
        for tracker in self._open:
            try:
                do(tracker)
            except Exception:
                self._open.remove(tracker)
                self.close()
                raise


def run_of(line):
    try:
        return Run.of(json.loads(line)["run"])
    except (ValueError, KeyError, TypeError):
        raise Problem("expected lines of `longhaul steps`, the first with the run; this program is started by "
                      "`longhaul steps --wandb` and `--mlflow`") from None


def main(arguments):
    options = parse(arguments)
    sys.stdin.reconfigure(encoding="utf-8")
    warnings.simplefilter("ignore")  # for who wrote this program, not for users
    answers = Answers()
    trackers = [MlflowLog(options.mlflow)] if options.mlflow else []
    trackers += [WandbLog(options.wandb)] if options.wandb else []
    try:
        logs = Logs(trackers, run_of(sys.stdin.readline()))
        for text in logs.where():
            answers.say("at", text)
        answers.say("ready")
        for line in sys.stdin:
            logs.take(line)
        for text in logs.close():
            answers.say("logged", text)
        return DONE
    except Problem as error:
        answers.say("error", str(error))
    except Exception as error:
        answers.say("error", f"logging steps failed: {type(error).__name__}: {one_line(error)}; the same command again "
                    "continues the log")
    return FAILED
