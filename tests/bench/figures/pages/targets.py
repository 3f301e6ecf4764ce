import re

from figures.pages.collectives import MIB
from figures.pages.links import CPU, directions
from figures.pages.predict import Losses
from figures.pages.replicas import step


def measured(rows):
    """{what: the numbers of its cell}, for the table of missed targets."""
    now = rows("predict/speed_h200_now.csv")
    one_pass = now.where(codec="predict/gauss:bits=5 (mean in one pass)")
    dither = now.where(codec="dither:bits=2")
    losses = Losses(rows("predict/target_h200.csv"))
    xl = rows("predict/gpt2_xl_1xh200.csv").where(schedule="link-aware", variant="")
    host = rows("collectives_2xh100_host.csv").where(bytes=64 * MIB, variant="zip")
    groups = rows("groups_2xh100.csv").where(host_path="False")
    llama = groups.where(shape="llama-3-8b", layers=8, variant="2 GPUs, none")
    through = rows("groups_2xh200_host_path.csv").where(shape="moe")
    gpus = rows("replicas/exchange_steps_gpus.csv").where(of="after", case="on GPUs, 10gbit")
    busy = rows("replicas/exchange_steps.csv").where(of="after", case="3 stages, lines slow")
    free = rows("replicas/exchange_steps_32_cores.csv").where(form="local-sgd, delayed")
    links = rows("links.csv").where(transport="tcp")
    plain = links.where(set=lambda name: name.startswith("xeon 3 now"), links="plain", rate=["1gbit", "1Gbit"])
    far = links.where(set=lambda name: name.startswith(("xeon far", "xeon near")), rate="1gbit", links="plain")
    tah = next(row for row in rows("printed/codec_speed_h200.csv") if row["encode"].startswith("95 us"))

    def short(found):
        return 100 * (1 - found.median("predicted_seconds") / step(found))

    def ends(**columns):
        found = directions(far.where(**columns))
        return [min(found), max(found)]
    return {
        "`tah`, encoding": [float(re.search(r"(\d+) %", tah["encode"]).group(1))],
        "`predict/gauss": [one_pass.where(ids="random").one("both_in_graph_us")],
        "the same, all ids": [one_pass.where(ids="equal").one("both_in_graph_us")],
        "`dither:bits=2`": [dither.one("encode_us"), dither.one("decode_us")],
        "loss of `default`": [losses.upper_end("predict5-dither2")],
        "loss of `fast`": [losses.upper_end("predict4-dither2")],
        "GPT2-XL at 100 Mbit/s with `default`": [xl.where(links="default").one("tokens_per_second")],
        "GPT2-XL at 100 Mbit/s with `fast`": [xl.where(links="fast").one("tokens_per_second")],
        "switcher over NVLink": [rows("collectives_2xh100_nvlink.csv").where(variant="switcher").least("faster")],
        "`zip` over NCCL": [host.where(operation=name).one("faster") for name in ("all_to_all", "all_gather")],
        "Llama-3-8B's layers": [llama.where(sequence=each).one("x_one_gpu") for each in ("False", "True")],
        "GPT-2 Large's layers": [groups.where(shape="gpt2-large", variant="2 GPUs, none").one("x_one_gpu")],
        "experts: `zip`": [through.where(variant="2 GPUs, none").one("ms")
                           / through.where(variant="2 GPUs, zip").one("ms")],
        "`tagc` against `bf16`": [step(gpus.where(form="bf16")) / step(gpus.where(form="tagc"))],
        "prediction of steps: two replicas": [short(busy)],
        "prediction of steps: `local-sgd`": [short(free)],
        "prediction of steps: order of names": [rows("placement_steps.csv").where(
            send_order="as-ready", placement="names").one("step_over_predicted")],
        "`tcp`, plain": [plain.least(CPU), plain.most(CPU)],
        "`tcp` with 0.1 % loss at 25 ms": ends(loss_percent=0.1, delay_ms=25),
        "`tcp` with 0.1 % loss at 100 ms": ends(loss_percent=0.1, delay_ms=100),
        "`tcp` without loss at 100 ms": ends(loss_percent=0, delay_ms=100)[:1],
        "`longhaul ps`": [rows("scale.csv").where(version="after", what="ps", ended=1000).one("p99_ms")]}


def check(page, rows, folder):
    found = measured(rows)

    def values(row):
        return next(numbers for what, numbers in found.items() if row["what"].startswith(what))
    page.table("| what | target | measured", {"measured": values})
    page.table("| what | target | how", {})
