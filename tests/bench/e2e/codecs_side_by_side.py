"""Loss and tokens a second of the quickstart's run on slow links, one codec pair after the other."""
import statistics

from cluster import ROOT, Cluster
from report import Table

RUN_FILE = ROOT / "deploy/runs/quickstart.yaml"
TOKENS_A_STEP = 16 * 256  # of that file
SAMPLES_A_STEP = 16
UNBIASED = "fixed:bits=4,rounding=stochastic"
PAIRS = {
    "none": ("none", "none"),
    "bf16": ("bf16", "bf16"),
    "tah": ("tah", UNBIASED),
    "gauss": ("gauss", UNBIASED),
    "aqsgd": ("aqsgd:bits=4", "fixed:bits=8"),
}


def add_arguments(parser):
    parser.add_argument("--rate", default="10mbit", help="of every link (default %(default)s)")
    parser.add_argument("--steps", type=int, default=192,
                        help="of each run (default %(default)s: two passes over the text)")
    parser.add_argument("--slow-steps", type=int, default=6,
                        help="of each pass at that rate, for the speed; the others have links that "
                        "are not shaped (default %(default)s)")
    parser.add_argument("--codecs", nargs="+", choices=PAIRS, default=list(PAIRS))


def slow_steps(cluster, run, after, arguments):
    """Seconds of the steps that were at the slow rate from their begin to their end."""
    cluster.wait_for(run, f"step {after}", lambda status: status.get("step", 0) >= after)
    cluster.set_rate(arguments.rate)
    first = cluster.status(run).get("step", 0) + 2
    last = first + arguments.slow_steps - 1
    cluster.wait_for(run, f"step {last}", lambda status: status.get("step", 0) >= last)
    cluster.set_rate("unlimited")
    return [step["seconds"] for step in cluster.lines("steps", run)
            if first <= step["step"] <= last]


def samples(plan):
    data = plan["data"]
    context = TOKENS_A_STEP // SAMPLES_A_STEP
    return (int(data["tokens"]) - int(data["validation_tokens"])) // context


def run(arguments):
    table = Table(
        f"{RUN_FILE.name} for {arguments.steps} steps over 4 stages: tokens a second on links of "
        f"{arguments.rate}, median of {arguments.slow_steps} steps, in the first pass over the "
        "samples and in the second; kB a microbatch over one boundary, down and up, as planned (a "
        "codec with state sends the first pass in other sizes); losses at the end",
        ["codec", "forward", "backward", "tokens/s", "second pass", "down kB", "up kB",
         "training loss", "validation loss"])
    with Cluster(arguments.programs, workers=4) as cluster:
        for name in arguments.codecs:
            forward, backward = PAIRS[name]
            run = cluster.submit(RUN_FILE, {"links.forward": forward, "links.backward": backward,
                                            "train.steps": arguments.steps,
                                            "train.schedule.warmup": min(8, arguments.steps - 1)})
            first = slow_steps(cluster, run, 2, arguments)
            plan = cluster.status(run)["plan"]
            passed = -(-samples(plan) // SAMPLES_A_STEP)
            again = passed + arguments.slow_steps + 4 <= arguments.steps
            later = slow_steps(cluster, run, passed, arguments) if again else None
            status = cluster.wait_for(run, "its end", lambda status: status["state"] == "done")
            link = plan["links"][0]
            losses = [step["loss"] for step in cluster.lines("steps", run)[-8:]]
            table.add(name, forward, backward,
                      *(f"{TOKENS_A_STEP / statistics.median(seconds):.0f}" if seconds else None
                        for seconds in (first, later)),
                      *(f"{int(link[key]) / 1e3:.1f}" for key in ("forward_bytes",
                                                                  "backward_bytes")),
                      f"{statistics.mean(losses):.3f}", f"{status['validation_loss']:.3f}")
    return table, True
