"""Loss and tokens a second of the quickstart's run on slow links, one codec pair after the other."""
import statistics

import needs
from cluster import CODEC_PAIRS, ROOT, Cluster
from promises import Promises
from report import Table

RUN_FILE = ROOT / "deploy/runs/quickstart.yaml"
CONTEXT, SAMPLES_A_STEP = 256, 16  # of that file
# Against none on links of 10 Mbit/s, where its transfers take most of a step.
LEAST_SPEEDUP, MOST_LOSS = 2.0, 1.03
TOKENS_A_STEP = CONTEXT * SAMPLES_A_STEP
PAIRS = {name: CODEC_PAIRS[name] for name in ("none", "default", "tah4", "gauss", "aqsgd")}


def add_arguments(parser):
    parser.add_argument("--rate", default="10mbit", help="of every link (default %(default)s)")
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-2",
                        help="short, for the speed: several passes over it (default %(default)s)")
    parser.add_argument("--slow-steps", type=int, default=16,
                        help="over that text, at that rate (default %(default)s)")
    parser.add_argument("--steps", type=int, default=192,
                        help="of the run for the losses, whose links are not shaped (default "
                        "%(default)s: two passes over the text of the run file)")
    parser.add_argument("--codecs", nargs="+", choices=PAIRS, default=list(PAIRS))


def tokens_a_second(steps):
    seconds = [step["seconds"] for step in steps]
    return f"{TOKENS_A_STEP / statistics.median(seconds):.0f}" if seconds else None


def check_needs(arguments):
    needs.check_programs(arguments.programs, needs.CLUSTER)
    needs.check_files(RUN_FILE, arguments.text)


def table_of(arguments):
    return Table(
        f"{RUN_FILE.name}, 4 stages: tokens a second on links of {arguments.rate} in the first pass "
        "over the samples and later; kB a microbatch over one boundary, down and up, as planned (with "
        "both passes' sizes, where they differ); losses "
        f"after {arguments.steps} steps, training of the last 8",
        ["codec", "forward", "backward", "tokens/s", "later", "down kB", "up kB", "training loss",
         "validation loss"])


def measure(arguments, table):
    promises, plain = Promises(arguments.slack), None  # tokens/s and loss of none
    with Cluster(arguments.programs, workers=4) as cluster:
        for name in arguments.codecs:
            def train(steps, **changes):
                return cluster.train(RUN_FILE, {
                    **PAIRS[name], "train.steps": steps,
                    "train.schedule.warmup": min(8, steps - 1), **changes})
            cluster.set_rate(arguments.rate)
            fast = train(arguments.slow_steps, **{"data.text": f"['{arguments.text}']"})
            data = fast.plan["assignment"]["data"]
            samples = (int(data["tokens"]) - int(data["validation_tokens"])) // CONTEXT
            # The first step waits for links to open; one step is of both passes.
            first = [s for s in fast.steps if 1 < s["step"] <= samples // SAMPLES_A_STEP]
            later = [s for s in fast.steps if s["step"] > samples // SAMPLES_A_STEP + 1]
            cluster.set_rate("unlimited")
            done = train(arguments.steps)
            promises.trained(f"{name}, slow", fast.steps, arguments.slow_steps)
            promises.trained(name, done.steps, arguments.steps)
            loss = done.status["validation_loss"]
            promises.holds(f"{name}: the first loss is {done.steps[0]['loss']}, that of the validation {loss}",
                           loss < done.steps[0]["loss"])
            speed = TOKENS_A_STEP / statistics.median(s["seconds"] for s in fast.steps[1:])
            if plain is None and name == "none":
                plain = (speed, loss)
            elif plain is not None:
                promises.within(f"{name}: tokens/s over those of none", speed / plain[0], least=LEAST_SPEEDUP)
                promises.within(f"{name}: validation loss over that of none", loss / plain[1], most=MOST_LOSS)
            edge = fast.plan["assignment"]["edges"][0]
            flows = (edge["forward"], edge["backward"])
            table.add(name, *(flow["codec"] for flow in flows), tokens_a_second(first),
                      tokens_a_second(later),
                      *(f"{int(flow['bytes']) / 1e3:.1f}" for flow in flows),
                      f"{statistics.mean(step['loss'] for step in done.steps[-8:]):.3f}",
                      f"{done.status['validation_loss']:.3f}")
    return promises.held
