"""Steps in MLflow's file store. Nothing reaches a server."""
import json
import math
import os
import pathlib
import time

import support
from support import BEGAN_MS, StepsTest, row, run_line

from longhaul_steps.rows import Run, metrics_of  # noqa: E402

RUN = Run.of(run_line()["run"])


def wanted(rows):
    """{name: [(step, value)]}"""
    values = {}
    for one in rows:
        for name, value in metrics_of(one, RUN).items():
            values.setdefault(name, []).append((one["step"], value))
    return values


class MlflowTest(StepsTest):
    def setUp(self):
        super().setUp()
        self.uri = f"file://{self.folder}/store"
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"

    def log(self, *lines, **keywords):
        return self.pipe(lines, "--mlflow", self.uri, **keywords)

    def found(self, experiment="longhaul"):
        """The client and the only run."""
        import mlflow

        client = mlflow.MlflowClient(tracking_uri=self.uri)
        number = client.get_experiment_by_name(experiment).experiment_id
        run, = client.search_runs([number])
        return client, run

    def histories(self):
        client, run = self.found()
        return {name: [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)]
                for name in run.data.metrics}

    def test_rows_params_and_state(self):
        rows = [row(step) for step in range(300)]  # several requests
        answers = self.log(run_line(), *rows, run_line("done", ended_unix_ms=BEGAN_MS + 9000))
        self.assertEqual([word for word, _ in answers], ["at", "ready", "logged"])
        self.assertEqual(self.logged(answers), ["MLflow: 300 steps logged, 0 were there already"])
        self.assertEqual(self.histories(), wanted(rows))
        client, run = self.found()
        self.assertEqual(run.data.params, {
            "name": "tiny", "train.steps": "8", "train.optimizer.lr": "1e-05", "train.optimizer.nesterov": "false",
            "links.forward": "tah:4", "links.backward": "none", "data.sets": '["a", "b"]'})
        self.assertEqual((run.data.tags["longhaul.run_id"], run.data.tags["longhaul.state"]), ("tiny-abc123", "done"))
        self.assertEqual((run.info.run_name, run.info.status, run.info.start_time, run.info.end_time),
                         ("tiny-abc123", "FINISHED", BEGAN_MS, BEGAN_MS + 9000))
        times = [metric.timestamp for metric in client.get_metric_history(run.info.run_id, "loss/training")]
        self.assertEqual(times[:3], [BEGAN_MS + 500, BEGAN_MS + 1000, BEGAN_MS + 1500])

    def test_a_loss_that_is_not_a_number(self):
        self.log(run_line(), row(1), row(2, loss=None, gradient_norm=None), row(3))
        losses = [value for _, value in self.histories()["loss/training"]]
        self.assertEqual(losses[::2], [row(1)["loss"], row(3)["loss"]])
        self.assertTrue(math.isnan(losses[1]))

    def test_the_second_call_adds_what_is_new(self):
        self.log(run_line(), *map(row, range(4)), run_line("stopped", ended_unix_ms=BEGAN_MS))
        self.assertEqual(self.found()[1].info.status, "KILLED")
        answers = self.log(run_line(), *map(row, range(7)))
        self.assertEqual(self.logged(answers), ["MLflow: 3 steps logged, 4 were there already"])
        self.assertEqual(self.histories(), wanted(map(row, range(7))))
        self.assertEqual(self.found()[1].info.status, "RUNNING")

    def test_steps_that_were_left_out_are_added_in_between(self):
        self.log(run_line(), row(1), row(4))
        self.log(run_line(), *map(row, range(1, 5)))
        got = {name: sorted(values) for name, values in self.histories().items()}
        self.assertEqual(got, wanted(map(row, range(1, 5))))

    def test_a_step_that_is_trained_again_keeps_its_first_row(self):
        rows = [row(1), row(2), row(3), row(2, epoch=2, seconds=9.0), row(3, epoch=2), row(4, epoch=2)]
        answers = self.log(run_line(), *rows)
        self.assertEqual(self.logged(answers), ["MLflow: 4 steps logged, 2 were there already"])
        self.assertEqual(self.histories(), wanted([row(1), row(2), row(3), row(4, epoch=2)]))

    def test_a_run_that_goes_on_with_other_values(self):
        self.log(run_line("queued", run_file=""), run_line(), row(1), None)
        other = support.RUN_FILE.replace("steps: 8", "steps: 16")
        self.log(run_line("failed", run_file=other, reason="no workers"), row(1), None)
        run = self.found()[1]
        self.assertEqual((run.data.params["train.steps"], run.data.tags["changed.train.steps"]), ("8", "16"))
        self.assertEqual((run.info.status, run.data.tags["longhaul.reason"]), ("FAILED", "no workers"))

    def test_rows_are_sent_when_there_are_no_more_for_now(self):
        process = self.start("--mlflow", self.uri)
        for line in (run_line(), row(1), None):
            process.stdin.write(json.dumps(line) + "\n" if line else "\n")
        process.stdin.flush()
        store = pathlib.Path(self.folder / "store")
        for _ in range(600):
            if list(store.glob("*/*/metrics/loss/training")):
                break
            time.sleep(0.1)
        self.assertEqual(self.histories()["loss/training"], [(1, row(1)["loss"])])
        process.kill()  # the next call goes on
        self.assertEqual(self.logged(self.log(run_line(), row(1), row(2))),
                         ["MLflow: 1 step logged, 1 were there already"])

    def test_an_experiment_of_the_environment(self):
        self.log(run_line(), row(1), MLFLOW_EXPERIMENT_NAME="mine")
        self.assertEqual(self.found("mine")[1].data.tags["longhaul.run_id"], "tiny-abc123")

    def test_no_server(self):
        said = self.pipe([run_line()], "--mlflow", "http://me:secret@127.0.0.1:9", code=1)
        self.assertIn("MLflow at http://...@127.0.0.1:9: ", said)
        self.assertIn("check the address, the login and the network", said)
        self.assertNotIn("secret", said)

    def test_a_folder_that_cannot_be_written(self):
        (self.folder / "store").write_text("")
        self.assertIn(f"MLflow at {self.uri}: ", self.log(run_line(), code=1))


class BothTest(StepsTest):
    def test_both_get_the_same_steps(self):
        try:
            __import__("wandb")
        except ImportError as error:
            self.skipTest(f"{error}; deploy/setup.sh --log brings it")
        answers = self.pipe([run_line(), *map(row, range(3))], "--wandb", "p", "--mlflow",
                            f"file://{self.folder}/store")
        self.assertEqual(self.logged(answers), ["MLflow: 3 steps logged, 0 were there already",
                                                "W&B: 3 steps logged, 0 were there already"])

    def test_where_one_is_refused_the_other_gets_no_run(self):
        said = self.pipe([run_line()], "--wandb", "p", "--mlflow", "http://127.0.0.1:9", code=1)
        self.assertIn("MLflow at ", said)
        self.assertEqual(list(self.folder.glob("wandb/*run-*")), [])


if __name__ == "__main__":
    support.main("mlflow")
