"""The deck of random faults has every harm that a test can do to a cluster, and deals every kind."""
import collections
import pathlib
import random
import subprocess
import sys
import unittest
from unittest import mock

import fault_kinds
from namespace_cluster import HARMS

HERE = pathlib.Path(__file__).resolve().parent


class Recorder:
    """A cluster that notes what is done to it. Its run has ended."""

    def __init__(self):
        self.done = collections.Counter()

    def status(self, _):
        return {"state": "failed", "step": "3"}

    def __getattr__(self, name):
        def method(*_):
            self.done[name] += 1
        return method


class FaultKinds(unittest.TestCase):
    def test_every_harm_is_in_the_deck(self):
        used = set()
        for kind in fault_kinds.KINDS:
            cluster = Recorder()
            with mock.patch("time.sleep"):
                what = kind(cluster, "run", random.Random(1))
            harms = HARMS & set(cluster.done)
            self.assertTrue(harms, f"{kind.__name__} harms nothing")
            self.assertTrue(what)
            used |= harms
        self.assertEqual(used, HARMS, "a fault of NamespaceCluster that no kind uses")

    def test_every_kind_is_in_the_deck(self):
        kinds = {function for function in vars(fault_kinds).values()
                 if getattr(function, "__module__", "") == fault_kinds.__name__ and callable(function)}
        self.assertEqual(kinds - {fault_kinds.any_worker, fault_kinds.deal}, set(fault_kinds.KINDS))

    def test_all_are_dealt_before_one_comes_again(self):
        count = len(fault_kinds.KINDS)
        for seed in range(20):
            dealt = fault_kinds.deal(random.Random(seed), 2 * count)
            self.assertEqual(set(dealt[:count]), set(fault_kinds.KINDS))
            self.assertEqual(set(dealt[count:]), set(fault_kinds.KINDS))
        first = {fault_kinds.deal(random.Random(seed), 1)[0] for seed in range(500)}
        self.assertEqual(first, set(fault_kinds.KINDS))

    def test_a_seed_is_new_unless_it_is_asked_for(self):
        def seed(*flags, **environment):
            program = ("import argparse; from namespace_cluster import add_seed; p = argparse.ArgumentParser(); "
                       "add_seed(p); print(p.parse_args().seed)")
            return int(subprocess.run([sys.executable, "-B", "-c", program, *flags], check=True, capture_output=True,
                                      cwd=HERE, env=environment).stdout)
        self.assertEqual(len({seed(), seed(), seed()}), 3)
        self.assertEqual(seed(LONGHAUL_TEST_SEED="5"), 5)
        self.assertEqual(seed("--seed", "6", LONGHAUL_TEST_SEED="5"), 6)


if __name__ == "__main__":
    unittest.main()
