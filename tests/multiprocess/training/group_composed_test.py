"""What composes with stages that ranks share, over real processes: Muon, slices, steps that overlap, a matrix that two
stages hold, and replays. 2 workers with 2 CPU ranks each.

usage: group_composed_test.py BIN_DIR [together|lora|muon|slices|overlap|tied|experts|replay ...]
"""
import sys

from cases import run_cases
from group_test import GROUP, MOE, STEPS, GroupCluster, killed_and_resumed, plan_of
from lora_test import write_run as write_lora
from nearness import expect_near
from published_test import make_model, read_safetensors
from training_test import GPT, LLAMA, NONE, expect_equal, rounding, wait_for

RANKS = ["--set", GROUP]
SEQUENCE = [*RANKS, "--set", "group.sequence=true"]
SLICES = ["--set", "pipeline.slices=4"]
TWO_VERSIONS = "2bw"
# fp32 momenta: bf16 ones are rounded at random, and a rank draws for its own part.
MUON = "{ kind: muon, lr: 3e-3 }"
SMALL = LLAMA.replace("layers: 4", "layers: 2")
# Largest relative difference of a loss.
BOUND = rounding(1e-5)


def parity(cluster, name, *flags, ranks=RANKS, model=LLAMA, **options):
    """The losses of two ranks a stage are those of one."""
    options = {"stages": 2, "steps": STEPS, "model": model, **options}
    one = cluster.train(f"{name}-one", *flags, **options)
    two = cluster.train(f"{name}-two", *ranks, *flags, **options)
    expect_near(f"{name}, 2 ranks against 1", two, one, bound=BOUND)


def exports_as_one_rank(cluster, run, path):
    """What two ranks trained is published, and one rank goes on from it."""
    cluster.cli("export", run, "--out", cluster.folder / f"{run}-exported")
    names = sorted(file.name for file in (cluster.folder / f"{run}-exported").iterdir())
    if "model.safetensors" not in names:
        raise AssertionError(f"the export has {names}")
    cluster.cli("submit", path, "--resume", "--watch")
    losses = cluster.losses(run)
    if len(losses) != 40 or max(losses[30:]) > 1.05 * max(losses[20:30]):
        raise AssertionError(f"after two ranks, one: {len(losses)} losses, the last {losses[20:]}")
    print(f"ok: one rank goes on from the checkpoint of two: {losses[29]:.3f}, then {losses[-1]:.3f}", flush=True)


def together(cluster):
    """Muon, slices and overlap at once, of ranks that have their parts of the tokens."""
    options = {"optimizer": MUON, "schedule": TWO_VERSIONS}
    parity(cluster, "together", *SLICES, ranks=SEQUENCE, **options)
    killed_and_resumed(cluster, "muon, slices and overlap of 2 ranks", *SEQUENCE, *SLICES, stages=2, model=SMALL,
                       **options)


def lora(cluster):
    """Adapters are divided as their matrices are, and are exported whole."""
    make_model(cluster.folder / "base", "F32", tied=True)

    def trained(name, *flags, steps=STEPS):
        run = cluster.cli("submit", write_lora(cluster, name, steps=steps), "--watch", *flags).stdout.split()[0]
        cluster.cli("export", run, "--out", cluster.folder / f"{name}-adapters")
        return cluster.losses(run), read_safetensors(cluster.folder / f"{name}-adapters" / "adapter_model.safetensors")

    one, wanted = trained("one")
    for name, flags in (("two", RANKS), ("two-in-slices", [*SEQUENCE, *SLICES])):
        losses, adapters = trained(name, *flags)
        expect_near(f"lora, {name}, 2 ranks against 1", losses, one, bound=BOUND)
        if adapters.keys() != wanted.keys() or any(adapters[key][:2] != wanted[key][:2] for key in wanted):
            raise AssertionError(f"{name} exports {sorted(adapters)}, one rank {sorted(wanted)}")
    with_muon = ["--set", "train.optimizer.kind=muon"]
    expect_near("lora and muon, 2 ranks against 1", trained("muon-two", *RANKS, *with_muon)[0],
                trained("muon-one", *with_muon)[0], bound=BOUND)
    unbroken, _ = trained("whole", *SEQUENCE, steps=30)
    path = write_lora(cluster, "broken", steps=30)
    run = cluster.broken_after(10, path, *SEQUENCE)
    cluster.start_worker(2)
    wait_for("worker2 again", lambda: len(cluster.connected()) == 2)
    cluster.cli("submit", path, "--resume", "--watch", *SEQUENCE)
    expect_equal("lora of 2 ranks, killed and resumed", cluster.losses(run), unbroken)


def muon(cluster):
    parity(cluster, "muon", optimizer=MUON)
    options = {"stages": 2, "model": SMALL, "optimizer": MUON}
    run, _ = killed_and_resumed(cluster, "muon of 2 ranks", *RANKS, **options)
    exports_as_one_rank(cluster, run, cluster.write_run("broken", steps=40, **options))


def slices(cluster):
    parity(cluster, "slices", *SLICES)
    # Another model, whose boundary has the ranks' own channels.
    own = ["--set", "group.p=0.5"]
    options = {"stages": 2, "steps": STEPS, "model": LLAMA}
    whole = cluster.train("own-whole", *RANKS, *own, **options)
    cut = cluster.train("own-cut", *RANKS, *own, *SLICES, **options)
    expect_near("half of the channels shared, slices against whole microbatches", cut, whole, bound=BOUND)
    path = cluster.write_run("chosen", **options)
    path.write_text(path.read_text().replace("context: 64", "context: 256"))
    plan = plan_of(cluster, path, *SEQUENCE, "--set", "pipeline.slices=auto", "--rate", "2mbit")
    tried = [int(row["slices"]) for row in plan["prediction"]["slices"]]
    if tried != [1, 2, 4] or int(plan["assignment"]["slices"]) == 1:
        raise AssertionError(f"tried {tried}, took {plan['assignment']['slices']}")
    print(f"ok: a plan of 2 ranks takes {plan['assignment']['slices']} of {tried} slices at 2 Mbit/s", flush=True)
    killed_and_resumed(cluster, "slices of 2 ranks", *SEQUENCE, *SLICES, stages=2, model=SMALL)


def overlap(cluster):
    parity(cluster, "overlap", schedule=TWO_VERSIONS)
    options = {"stages": 2, "model": SMALL, "schedule": TWO_VERSIONS}
    run, _ = killed_and_resumed(cluster, "overlap of 2 ranks", *RANKS, **options)
    exports_as_one_rank(cluster, run, cluster.write_run("broken", steps=40, **options))


def tied(cluster):
    """The first and the last stage hold the rows of one matrix, each rank its own."""
    model = GPT.replace(" }", ", tied: true }")
    parity(cluster, "tied", model=model)
    options = {"stages": 2, "model": model.replace("layers: 4", "layers: 2")}
    run, _ = killed_and_resumed(cluster, "a tied matrix of 2 ranks", *RANKS, **options)
    exports_as_one_rank(cluster, run, cluster.write_run("broken", steps=40, **options))


def experts(cluster):
    """Muon where experts are divided. What slices and overlap have to refuse of experts has to do with no rank."""
    divided = [*RANKS, "--set", "group.expert=2"]
    parity(cluster, "muon-experts", ranks=divided, model=MOE, optimizer=MUON)
    killed_and_resumed(cluster, "muon, experts in 2 parts", *divided, stages=2, model=MOE, optimizer=MUON)

    def refused(name, sentence, *flags, **options):
        path = cluster.write_run(name, stages=2, **options)
        result = cluster.cli("submit", path, *RANKS, *flags, check=False)
        if result.returncode != 1 or sentence not in result.stderr:
            raise AssertionError(f"{name}: exit {result.returncode}, {result.stderr!r}")
        print(f"ok: {name}: {result.stderr.strip()}", flush=True)

    refused("slices", "balances experts over all tokens of a microbatch", *SLICES, model=MOE)
    refused("overlap", "balances experts between two steps", model=MOE, schedule=TWO_VERSIONS)
    refused("own", "updates whole matrices", "--set", "group.p=0.5", model=LLAMA, optimizer=MUON)


REPLAY = """
replay:
  source: a machine that does not exist
  layers: { block_forward: 2ms, block_backward: 4ms, optimizer: 8ms }
  codecs: real
"""


def without_validation(path):
    return "\n".join(line for line in path.read_text().splitlines() if not line.startswith("validation"))


def replay(cluster):
    """A replay sleeps for the times of all ranks together, and sends what their boundary has."""
    def replayed(name, *flags):
        path = cluster.write_run(name, steps=STEPS, stages=2, links=NONE)
        path.write_text(without_validation(path) + REPLAY)
        run = cluster.cli("submit", path, "--watch", *flags).stdout.split()[0]
        return path, run, cluster.status(run)

    divided = cluster.write_run("divided", steps=STEPS, stages=2, links=NONE, model=MOE)
    divided.write_text(without_validation(divided) + REPLAY)
    cluster.cli("submit", divided, "--watch", *RANKS, "--set", "group.expert=2")
    _, _, one = replayed("one")
    path, run, two = replayed("two", *RANKS)
    _, _, own = replayed("own", *RANKS, "--set", "group.p=0.5")
    sent = [sum(int(link["payload_bytes"]) for link in status["links"]) for status in (one, two, own)]
    if sent[0] != sent[1] or not 1.4 * sent[1] < sent[2] < 1.6 * sent[1]:
        raise AssertionError(f"one rank, two, and two with channels of their own send {sent}")
    if [stage["tensor_ranks"] for stage in two["stages"]] != [2, 2] or not two["replay_source"]:
        raise AssertionError(f"{two}")
    text = cluster.cli("plan", path, *RANKS).stdout
    if "The times of the replay are those of all ranks together" not in text:
        raise AssertionError(text)
    print(f"ok: replays of one rank, two, and two with channels of their own send {sent} bytes", flush=True)
    auto = cluster.cli("submit", path, "--set", "group.tensor=auto", check=False)
    if auto.returncode != 1 or "a replay has the times of the group" not in auto.stderr:
        raise AssertionError(f"exit {auto.returncode}, {auto.stderr!r}")
    print(f"ok: {auto.stderr.strip()}", flush=True)


if __name__ == "__main__":
    sys.exit(run_cases({"together": together, "lora": lora, "muon": muon, "slices": slices, "overlap": overlap, "tied": tied,
                        "experts": experts, "replay": replay}, kind=GroupCluster, workers=2))
