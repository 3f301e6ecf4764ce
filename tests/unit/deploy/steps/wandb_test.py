"""Steps in W&B's files, which its offline mode writes. Nothing reaches a server."""
import json
import math
import signal
import types
import unittest.mock

import support
from support import StepsTest, WandbFiles, row, run_line

from longhaul_steps.errors import Problem  # noqa: E402
from longhaul_steps.rows import Run, metrics_of  # noqa: E402
from longhaul_steps.wandb_log import WandbLog  # noqa: E402

RUN = Run.of(run_line()["run"])


def wanted(rows):
    return [{"_step": one["step"], **metrics_of(one, RUN)} for one in rows]


class OfflineTest(StepsTest):
    def test_rows_config_and_state(self):
        rows = [row(step) for step in range(300)]  # over several blocks of the file
        answers = self.pipe([run_line(), *rows, run_line("done")], "--wandb", "team/proj")
        self.assertEqual([word for word, _ in answers], ["at", "ready", "logged"])
        self.assertIn("W&B: offline, in ", answers[0][1])
        self.assertEqual(self.logged(answers), ["W&B: 300 steps logged, 0 were there already"])
        files = WandbFiles(self.folder)
        self.assertEqual(files.rows, wanted(rows))
        run = files.runs[0]
        self.assertEqual((run.entity, run.project, run.run_id, run.display_name),
                         ("team", "proj", "tiny-abc123", "tiny-abc123"))
        self.assertEqual(files.config["train"], {"steps": 8, "optimizer": {"lr": 1e-5, "nesterov": False}})
        self.assertEqual(files.config["links"], {"forward": "tah:4", "backward": "none"})
        self.assertEqual(files.summary["run/state"], "done")
        self.assertEqual(files.exits, [0])

    def test_a_run_that_has_failed(self):
        self.pipe([run_line(), row(1), run_line("failed", reason="the loss became nan")], "--wandb", "p")
        files = WandbFiles(self.folder)
        self.assertEqual((files.summary["run/reason"], files.exits), ("the loss became nan", [1]))

    def test_a_loss_that_is_not_a_number(self):
        self.pipe([run_line(), row(1), row(2, loss=None, gradient_norm=None), row(3)], "--wandb", "p")
        losses = [one["loss/training"] for one in WandbFiles(self.folder).rows]
        self.assertEqual(losses[::2], [row(1)["loss"], row(3)["loss"]])
        self.assertTrue(math.isnan(losses[1]))

    def test_the_second_call_adds_what_is_new(self):
        self.pipe([run_line(), *map(row, range(4))], "--wandb", "p")
        answers = self.pipe([run_line(), *map(row, range(7))], "--wandb", "p")
        self.assertEqual(self.logged(answers), ["W&B: 3 steps logged, 4 were there already"])
        files = WandbFiles(self.folder)
        self.assertEqual(files.rows, wanted(map(row, range(7))))
        self.assertEqual({run.run_id for run in files.runs}, {"tiny-abc123"})

    def test_another_project_has_other_steps(self):
        for project in ("p", "q"):
            self.assertEqual(self.logged(self.pipe([run_line(), row(1)], "--wandb", project)),
                             ["W&B: 1 step logged, 0 were there already"])

    def test_a_step_that_is_trained_again_keeps_its_first_row(self):
        rows = [row(1), row(2), row(3), row(2, epoch=2, seconds=9.0), row(3, epoch=2), row(4, epoch=2)]
        answers = self.pipe([run_line(), *rows], "--wandb", "p")
        self.assertEqual(self.logged(answers), ["W&B: 4 steps logged, 2 were there already"])
        self.assertEqual(WandbFiles(self.folder).rows, wanted([row(1), row(2), row(3), row(4, epoch=2)]))

    def test_a_run_file_that_comes_later(self):
        self.pipe([run_line("queued", run_file=""), None, run_line(), row(1)], "--wandb", "p")
        self.assertEqual(WandbFiles(self.folder).config["name"], "tiny")

    def test_an_end_without_a_word(self):
        """`longhaul` was killed: what came is logged."""
        process = self.start("--wandb", "p")
        process.stdin.write("".join(json.dumps(line) + "\n" for line in (run_line(), row(1))))
        process.stdin.flush()
        while not (line := process.stdout.readline()).startswith("ready"):
            self.assertTrue(line, process.stderr.read() if process.poll() is not None else "")
        process.stdout.close()  # nobody reads the answers
        process.stdin.close()
        self.assertEqual(process.wait(timeout=60), 0, process.stderr.read())
        process.stdin = None
        self.assertEqual(WandbFiles(self.folder).rows, wanted([row(1)]))


class RefusedTest(StepsTest):
    def test_no_login(self):
        said = self.pipe([run_line()], "--wandb", "p", code=1, WANDB_MODE="online", WANDB_BASE_URL="http://127.0.0.1:9")
        self.assertIn("No API key configured", said)
        self.assertIn("-m wandb login", said)
        self.assertIn("WANDB_MODE=offline", said)
        self.assertEqual(list(self.folder.glob("wandb/*run-*")), [])

    def test_no_network(self):
        key = "0123456789" * 4
        said = self.pipe([run_line()], "--wandb", "p", code=1, WANDB_MODE="online", WANDB_BASE_URL="http://127.0.0.1:9",
                         WANDB_API_KEY=key, WANDB_INIT_TIMEOUT="3")
        self.assertIn("WANDB_MODE=offline", said)
        self.assertNotIn(key, said)

    def test_turned_off(self):
        self.assertIn("set WANDB_MODE to online or offline",
                      self.pipe([run_line()], "--wandb", "p", code=1, WANDB_MODE="disabled"))

    def test_not_of_longhaul(self):
        for lines in ([], [row(1)]):
            self.assertIn("expected lines of `longhaul steps`", self.pipe(lines, "--wandb", "p", code=1))


class FakeRun:
    """A run of W&B that a server knows up to step 4."""

    disabled, offline, starting_step, url = False, False, 5, "https://wandb.example/p/runs/tiny-abc123"

    def __init__(self, folder):
        self.settings = types.SimpleNamespace(sync_dir=str(folder / "run"))
        self.config, self.summary = unittest.mock.Mock(), {}
        self.rows, self.finished = [], unittest.mock.Mock()

    def log(self, metrics, step, commit):
        self.rows.append({"_step": step, **metrics})

    def finish(self, exit_code):
        self.finished(exit_code)


class OnlineTest(StepsTest):
    def log(self, fake, **options):
        log = WandbLog("team/p", **options)
        with unittest.mock.patch("wandb.init", return_value=fake) as init:
            log.open(RUN)
        self.assertEqual({name: init.call_args.kwargs[name] for name in ("entity", "project", "id", "resume")},
                         {"entity": "team", "project": "p", "id": "tiny-abc123", "resume": "allow"})
        return log

    def test_the_server_says_which_steps_it_has(self):
        fake = FakeRun(self.folder)
        log = self.log(fake)
        self.assertEqual(log.where(), f"W&B: {fake.url}")
        for step in range(7):
            log.add(step, metrics_of(row(step), RUN), 0)
        self.assertEqual(log.close(RUN), "W&B: 2 steps logged, 5 were there already")
        self.assertEqual(fake.rows, wanted([row(5), row(6)]))
        fake.finished.assert_called_once_with(0)

    def test_a_server_that_is_away_at_the_end(self):
        fake = FakeRun(self.folder)
        fake.finish = lambda exit_code: signal.pause()
        log = self.log(fake, finish_seconds=0.1)
        with self.assertRaisesRegex(Problem, "did not take all steps within 0.1 s.*wandb sync"):
            log.close(RUN)


if __name__ == "__main__":
    support.main("wandb")
