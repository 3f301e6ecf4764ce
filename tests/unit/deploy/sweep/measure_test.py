"""What a point's run says of the point."""
import math
import unittest

import sample  # noqa: F401 (finds longhaul_sweep)
from longhaul_sweep import texts
from longhaul_sweep.cluster import Failed
from longhaul_sweep.measure import SHARES, StageShares, bytes_between, measured, unmeasured

POINT = {**sample.waiting(10_000_000, "fp32", "link-aware"), "tokens_per_step": 400}
PREDICTION = {"simulated_seconds": 0.2, "bound_seconds": 0.1, "floor_seconds": 0.05, "bottleneck": "egress of stage 0"}


def cell(stage, replica=0):
    return {"id": {"replica": replica, "stage": stage}, "worker_name": f"worker{stage + 1}", "first_layer": stage, "layers": 1,
            "depth": 4}


ASSIGNMENT = {"cells": [cell(0), cell(1)]}


def run(**changes):
    return {"run_id": "tiny-p1-abc", "replay_source": "", "started_unix_ms": 1000, "ended_unix_ms": 9000,
            "plan": {"assignment": ASSIGNMENT, "explanation": "because",
                     "prediction": {"step_seconds": 0.015, "lower_bound_seconds": 0.014}}, **changes}


def steps(*seconds):
    return [{"step": number, "seconds": one, "loss": 5.0 / number, "has_validation": False, "validation_loss": 0.0,
             "clean_validation_loss": None, "link_bytes": 100 * number, "payload_bytes": 90 * number}
            for number, one in enumerate(seconds, 1)]


def result_of(records, warm_up=2, status=None):
    return measured(POINT, warm_up, status or run(), records, PREDICTION, StageShares(warm_up), [])


class MeasuredTest(unittest.TestCase):
    def test_medians_after_warm_up(self):
        records = steps(9, 8, 0.3, 0.1, 0.2, 7)
        records[3].update(has_validation=True, validation_loss=4.5)
        result = result_of(records)
        self.assertEqual((result["state"], result["run_id"], result["steps"]), ("done", "tiny-p1-abc", 6))
        self.assertAlmostEqual(result["step_seconds"], 0.25)
        self.assertAlmostEqual(result["step_seconds_low"], 0.175)
        self.assertAlmostEqual(result["step_seconds_high"], 1.975)
        self.assertAlmostEqual(result["tokens_per_second"], 1600)
        self.assertEqual((result["link_bytes_per_step"], result["payload_bytes_per_step"]), (450, 405))
        self.assertEqual([step["validation_loss"] for step in result["curve"]], [None, None, None, 4.5, None, None])
        self.assertEqual((result["plan_simulated_seconds"], result["plan_bound_seconds"], result["explanation"]),
                         (0.015, 0.014, "because"))
        self.assertEqual({key: result[key] for key in PREDICTION}, PREDICTION)

    def test_the_validation_before_the_first_step_is_no_step(self):
        """It has a place in the curve, and took no step."""
        before = {"step": 0, "seconds": 0, "loss": None, "has_validation": True, "validation_loss": 4.5,
                  "clean_validation_loss": 4.25, "link_bytes": 0, "payload_bytes": 0}
        result = result_of([before, *steps(0.3, 0.1, 0.2)], warm_up=0)
        self.assertEqual((result["steps"], result["step_seconds"], len(result["curve"])), (3, 0.2, 4))
        self.assertEqual(result["curve"][0],
                         {"step": 0, "seconds": 0, "loss": None, "validation_loss": 4.5, "clean_validation_loss": 4.25})

    def test_too_few_steps_are_an_error(self):
        with self.assertRaisesRegex(Failed, "none after its 2 of warm-up"):
            result_of(steps(1, 1))

    def test_a_replay_has_no_losses(self):
        result = result_of(steps(1, 1, 1), status=run(replay_source="one GPU"))
        self.assertEqual((result["replayed"], result["replay_source"], result["curve"][2]["loss"]), (True, "one GPU", None))

    def test_a_loss_that_is_not_finite_is_none(self):
        records = steps(1, 1, 1)
        records[1]["loss"] = math.nan
        self.assertIsNone(result_of(records)["curve"][1]["loss"])

    def test_unmeasured(self):
        result = unmeasured(POINT, "failed", "it died", "run-1")
        self.assertEqual((result["state"], result["reason"], result["run_id"]), ("failed", "it died", "run-1"))
        self.assertNotIn("tokens_per_step", result)


class StageSharesTest(unittest.TestCase):
    @staticmethod
    def look(shares, step, compute, stage=1, replica=0):
        shares.add({"stages": [{"stage": stage, "replica": replica, "step": step, **dict.fromkeys(SHARES, 0),
                                "compute_share": compute, "codec_wait_share": compute / 10}]})

    def test_averages_steps_after_warm_up_once(self):
        shares = StageShares(2)
        for step, compute in ((1, 0.9), (2, 0.9), (3, 0.2), (3, 0.2), (5, 0.4)):
            self.look(shares, step, compute)
        means = shares.means(ASSIGNMENT)
        self.assertEqual((len(means), means[0]["compute_share"], means[0]["worker"], means[1]["depth"]), (2, 0, "worker1", 4))
        self.assertAlmostEqual(means[1]["compute_share"], 0.3)
        self.assertAlmostEqual(means[1]["codec_wait_share"], 0.03)

    def test_replicas_are_cells_of_their_own(self):
        shares = StageShares(0)
        for replica in (0, 1):
            self.look(shares, 1, 0.25 * (replica + 1), stage=0, replica=replica)
        means = shares.means({"cells": [cell(0), cell(0, replica=1)]})
        self.assertEqual([(mean["replica"], mean["stage"], mean["compute_share"]) for mean in means], [(0, 0, 0.25), (1, 0, 0.5)])


class BytesBetweenTest(unittest.TestCase):
    def test_subtracts_and_knows_what_does_not_count(self):
        def state(up, acknowledgements, down, dropped=0):
            return {"workers": [
                {"name": "worker1", "uplink": {"bytes": up, "acknowledgement_bytes": acknowledgements, "dropped_packets": dropped},
                 "downlink": {"bytes": down, "acknowledgement_bytes": None, "dropped_packets": 0}},
                {"name": "worker2", "uplink": None, "downlink": None}]}

        # The second counter began anew.
        first, second = bytes_between(state(100, 10, 100), state(350, 30, 50, dropped=2))
        self.assertEqual(first, {"worker": "worker1", "up": 250, "down": None, "up_acknowledgements": 20,
                                 "down_acknowledgements": None, "dropped_packets": 2})
        self.assertEqual((second["up"], second["dropped_packets"]), (None, 0))


class TextsTest(unittest.TestCase):
    def test_numbers(self):
        for text, wanted in ((texts.size(0), "0 B"), (texts.size(999.6), "1 KB"), (texts.size(12_345_678), "12.3 MB"),
                             (texts.rate(20e6), "20 Mbit/s"), (texts.rate(0), "not shaped"), (texts.time_span(0), ""),
                             (texts.time_span(0.00002), "20 us"), (texts.time_span(0.025), "25 ms"), (texts.time_span(1.354), "1.35 s"),
                             (texts.time_span(59.96), "1m00s"), (texts.time_span(3700), "1h02m"), (texts.time_span(90_000), "1d01h"),
                             (texts.time_span(math.inf), ""), (texts.whole(12345.4), "12,345"), (texts.percent(0.1234), "12.3 %")):
            self.assertEqual(text, wanted)

    def test_what_moves_a_cursor_is_not_printed(self):
        self.assertEqual(texts.printable("a\x1b[1m\tb\nc\u202e\u2028"), "a?[1m b\nc??")
        self.assertEqual(texts.one_line("a\nb"), "a b")


if __name__ == "__main__":
    unittest.main()
