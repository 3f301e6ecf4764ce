"""What trackers get of a row."""
import math
import unittest

import support
from support import BEGAN_MS, RUN_FILE, TOKENS, row, run_line

from longhaul_steps.errors import one_line, without_password  # noqa: E402
from longhaul_steps.rows import Clock, Run, flat, metrics_of, settings_of  # noqa: E402


def run(**others):
    return Run.of(run_line(**others)["run"])


class RowsTest(unittest.TestCase):
    def test_a_row_has_the_names_of_tensorboard_and_more(self):
        self.assertEqual(metrics_of(row(3), run()), {
            "loss/training": 4.0, "optimizer/gradient_norm": 0.25, "optimizer/learning_rate": 3e-3,
            "gradient_norm/stage_0": 0.5, "gradient_norm/stage_1": 2.0, "step/attempt": 1, "step/seconds": 0.5,
            "step/link_bytes": 3000, "step/payload_bytes": 2700, "step/replicas": 1,
            "step/tokens_per_second": 2 * TOKENS})

    def test_step_0_is_a_validation_and_nothing_else(self):
        self.assertEqual(metrics_of(row(0), run()), {"loss/validation": 6.5, "step/attempt": 1})

    def test_validations(self):
        metrics = metrics_of(row(3, has_validation=True, validation_loss=2.5, clean_validation_loss=2.25), run())
        self.assertEqual((metrics["loss/validation"], metrics["loss/validation_clean"]), (2.5, 2.25))
        # JSON has null for numbers that are not finite.
        metrics = metrics_of(row(3, has_validation=True, validation_loss=None), run())
        self.assertTrue(math.isnan(metrics["loss/validation"]))

    def test_preferences(self):
        metrics = metrics_of(row(3, preference_accuracy=0.75, preference_margin=0.5,
                                 validation_preference_accuracy=0.625, validation_preference_margin=None), run())
        self.assertEqual({name: value for name, value in metrics.items() if "preferences" in name},
                         {"preferences/accuracy": 0.75, "preferences/margin": 0.5,
                          "preferences/validation_accuracy": 0.625})

    def test_numbers_that_are_not_finite(self):
        metrics = metrics_of(row(3, loss=None, gradient_norm=None, squared_norms=[None, 4.0]), run())
        for name in ("loss/training", "optimizer/gradient_norm", "gradient_norm/stage_0"):
            self.assertTrue(math.isnan(metrics[name]), name)
        self.assertEqual(metrics["gradient_norm/stage_1"], 2.0)

    def test_a_replay_has_no_losses(self):
        metrics = metrics_of(row(3, loss=None), run(replay=True))
        self.assertEqual({name for name in metrics if not name.startswith("step/")}, set())

    def test_replicas_and_experts(self):
        metrics = metrics_of(row(3, replicas=2, squared_norms=[1.0, 4.0, 9.0, 16.0],
                                 expert_load={"highest": 1.5, "layer": 1, "mean": 1.25}), run())
        self.assertEqual({name: value for name, value in metrics.items() if "stage" in name},
                         {"gradient_norm/replica_0_stage_0": 1.0, "gradient_norm/replica_0_stage_1": 2.0,
                          "gradient_norm/replica_1_stage_0": 3.0, "gradient_norm/replica_1_stage_1": 4.0})
        self.assertEqual((metrics["experts/load_highest"], metrics["experts/load_mean"]), (1.5, 1.25))
        self.assertEqual(metrics["step/tokens_per_second"], 4 * TOKENS)

    def test_tokens_that_are_not_known_are_left_out(self):
        for metrics in (metrics_of(row(3), run(tokens_of_replica=0)), metrics_of(row(3, seconds=0.0), run())):
            self.assertNotIn("step/tokens_per_second", metrics)

    def test_the_clock_is_that_of_tensorboard(self):
        clock = Clock(run())
        self.assertEqual([clock.after(row(step)) for step in range(3)],
                         [BEGAN_MS / 1e3, BEGAN_MS / 1e3 + 0.5, BEGAN_MS / 1e3 + 1])

    def test_errors_have_one_line_and_no_passwords(self):
        self.assertEqual(one_line(ValueError("a\x1b[2J.\nb")), "a\ufffd[2J")
        self.assertEqual(one_line(ValueError()), "ValueError")
        self.assertEqual(without_password("at http://me:secret@host:5000/a@b"), "at http://...@host:5000/a@b")


class SettingsTest(unittest.TestCase):
    def setUp(self):
        try:
            __import__("yaml")
        except ImportError as error:
            self.skipTest(f"{error}; deploy/setup.sh --log brings it")

    def test_the_run_file(self):
        settings = settings_of(run(run_file=RUN_FILE + "words: [no, 12:30, 2024-01-01, 1e3, 010, ~]\n"))
        self.assertEqual(settings.pop("words"), ["no", "12:30", "2024-01-01", 1000.0, 10.0, None])
        self.assertEqual(flat(settings), {
            "name": "tiny", "train.steps": 8, "train.optimizer.lr": 1e-5, "train.optimizer.nesterov": False,
            "links.forward": "tah:4", "links.backward": "none", "data.sets": ["a", "b"]})
        self.assertEqual(settings_of(run(run_file="")), {})


if __name__ == "__main__":
    support.main()
