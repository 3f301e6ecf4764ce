"""Kinds of fault that a run must survive, each with its victim and its length drawn by chance.

A kind is a function of a NamespaceCluster, the run, and a random.Random. It returns a sentence when the fault is over.
"""
import time

from namespace_cluster import CONTROL_NETWORK, DATA_NETWORK, ENDED
from training_test import wait_for

WORKERS = 4
SHORT_S = 3  # a neighbour becomes suspect
LONG_S = 30  # longer than peer_timeout: a neighbour is lost
RATE = "20mbit"
# Worse than a line ever is for long, and how it was before.
BAD_LINES = [(("--rate", "2mbit"), ("--rate", RATE)), (("--loss", "3%"), ("--loss", "0%")),
             (("--delay", "150ms"), ("--delay", "0ms"))]


def any_worker(chance):
    return f"worker{chance.randint(1, WORKERS)}"


def worker_killed(cluster, _, chance):
    worker = any_worker(chance)
    cluster.kill(worker)
    cluster.start(worker)
    return f"{worker} killed"


def worker_ended(cluster, _, chance):
    worker = any_worker(chance)
    cluster.end(worker)
    cluster.start(worker)
    return f"{worker} asked to end"


def coordinator_killed(cluster, _, chance):
    away_s = chance.uniform(0, 4)
    cluster.kill("coordinator")
    time.sleep(away_s)
    cluster.start("coordinator")
    return f"coordinator killed, back after {away_s:.1f} s"


def coordinator_ended(cluster, _, chance):
    away_s = chance.uniform(0, 4)
    cluster.end("coordinator")
    time.sleep(away_s)
    cluster.start("coordinator")
    return f"coordinator asked to end, back after {away_s:.1f} s"


def both_killed(cluster, _, chance):
    worker = any_worker(chance)
    cluster.kill(worker)
    cluster.kill("coordinator")
    cluster.start("coordinator")
    cluster.start(worker)
    return f"{worker} and the coordinator killed"


def worker_frozen(cluster, _, chance):
    worker = any_worker(chance)
    cluster.freeze(worker, SHORT_S)
    return f"{worker} frozen for {SHORT_S} s"


def worker_frozen_long(cluster, _, chance):
    worker = any_worker(chance)
    cluster.freeze(worker, LONG_S)
    return f"{worker} frozen for {LONG_S} s"


def coordinator_frozen(cluster, _, chance):
    seconds = chance.uniform(1, 8)
    cluster.freeze("coordinator", seconds)
    return f"coordinator frozen for {seconds:.1f} s"


def link_cut(cluster, _, chance):
    worker = any_worker(chance)
    cluster.cut(worker, SHORT_S)
    return f"link of {worker} cut for {SHORT_S} s"


def link_gone(cluster, run, chance):
    worker = any_worker(chance)
    cluster.change_link(worker, "--down")
    wait_for("the failure", lambda: cluster.status(run)["state"] in ENDED)
    cluster.change_link(worker, "--up")
    return f"link of {worker} cut until the run had ended"


def link_bad(cluster, run, chance):
    worker = any_worker(chance)
    worse, usual = chance.choice(BAD_LINES)
    cluster.change_link(worker, *worse)
    cluster.wait_for_step(run, int(cluster.status(run).get("step", 0)) + 3)
    cluster.change_link(worker, *usual)
    return f"link of {worker} with {' '.join(worse)} for three steps"


def link_reset(cluster, _, chance):
    worker = chance.randint(1, WORKERS)
    cluster.reset(worker, DATA_NETWORK)
    return f"links of worker{worker} reset"


def control_reset(cluster, _, chance):
    worker = chance.randint(1, WORKERS)
    cluster.reset(worker, CONTROL_NETWORK)
    return f"connection of worker{worker} to the coordinator reset"


def control_cut(cluster, _, chance):
    worker, seconds = chance.randint(1, WORKERS), chance.uniform(1, 8)
    cluster.cut_control(worker, seconds)
    return f"worker{worker} cut off from the coordinator for {seconds:.1f} s"


KINDS = [worker_killed, worker_ended, coordinator_killed, coordinator_ended, both_killed, worker_frozen,
         worker_frozen_long, coordinator_frozen, link_cut, link_gone, link_bad, link_reset, control_reset, control_cut]


def deal(chance, count):
    """`count` kinds in a random order; none comes again before each of the others has."""
    dealt = []
    while len(dealt) < count:
        dealt += chance.sample(KINDS, len(KINDS))
    return dealt[:count]
