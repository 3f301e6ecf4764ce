"""Bytes that the links' own queues counted, against what the formats make of the run."""
import needs
import wire_bytes
from cluster import CODECS, MODEL, RUN_FILE, TRAIN, Cluster
from report import Table

TOLERANCE = 0.03


def add_arguments(parser):
    parser.add_argument("--rate", default="10mbit", help="of every link (default %(default)s)")
    parser.add_argument("--steps", type=int, default=4, help="of each run (default %(default)s)")
    parser.add_argument("--codecs", nargs="+", choices=CODECS, default=list(CODECS))


def counters(cluster):
    """{(worker, 'uplink'): (data bytes, acknowledgement bytes, dropped packets)}"""
    result = {}
    for worker in cluster.state()["workers"]:
        for direction in ("uplink", "downlink"):
            link = worker[direction]
            apart = link["data_bytes"] is not None
            result[worker["name"], direction] = (
                link["data_bytes"] if apart else link["bytes"],
                link["acknowledgement_bytes"] if apart else 0, link["dropped_packets"])
    return result


def check_needs(arguments):
    needs.check_programs(arguments.programs, needs.CLUSTER)
    needs.check_files(RUN_FILE)


def table_of(arguments):
    return Table(
        f"Bytes on the wire, {arguments.steps} steps of {RUN_FILE.name} at {arguments.rate}; "
        "expected: encoded tensors with the headers of tensors, links, TCP, IP and Ethernet",
        ["codec", "worker", "direction", "expected", "data", "ratio", "acks, heartbeats",
         "dropped"])


def measure(arguments, table):
    good = True
    with Cluster(arguments.programs, workers=4, rate=arguments.rate) as cluster:
        if cluster.state()["shaper"] != "htb":
            print("Note: this kernel cannot count acknowledgements apart; 'data' has them too.")
        for codec in arguments.codecs:
            before = counters(cluster)
            done = cluster.train(RUN_FILE, {**CODECS[codec], "train.steps": arguments.steps,
                                            "links.measure": "false"})
            after = counters(cluster)
            expected = wire_bytes.expected_bytes(done.plan, MODEL,
                                                 {**TRAIN, "steps": arguments.steps})
            for (worker, direction), counts in after.items():
                data, small, dropped = (now - then for now, then in
                                        zip(counts, before[worker, direction]))
                ratio = data / expected[worker][direction]
                good = good and abs(ratio - 1) <= TOLERANCE
                table.add(codec, worker, direction, f"{expected[worker][direction]:.0f}", data,
                          f"{ratio:.4f}", small, dropped)
    return good
