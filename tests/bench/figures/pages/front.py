"""README.md."""
from figures.pages.collectives import MIB
from figures.pages.curves_gpt2_small import PAIRS, later_half
from figures.pages.predict import Losses
from figures.sweeps import of_bound, of_floor, of_run


def check(page, rows, folder):
    real = of_run(rows("gpt2_xl_4xh200.csv"), "gpt2-xl")

    def speed(pair, rate):
        return real.where(forward=pair[0], backward=pair[1], rate_bits_per_second=rate).one("tokens_per_second")
    tah, none = ("tah", "fixed:bits=4,rounding=stochastic"), ("none", "none")
    page.says("`tah` + `fixed:bits=4` {} at 100 Mbit/s and {} at 500; `none` {} at 500",
              [speed(tah, 1e8), speed(tah, 5e8), speed(none, 5e8)])
    present = rows("predict/gpt2_xl_1xh200.csv").where(schedule="link-aware", variant="")
    default, fast = (present.where(links=links).rows[0] for links in ("default", "fast"))
    page.says("`default` {} tokens/s, {} % of the lower bound of a step by itself and {} % of the steady-state "
              "floor; `fast` {}, {} % and {} %", [value for row in (default, fast) for value in (
                  float(row["tokens_per_second"]), of_bound(row), of_floor(row))])
    shares = [of_bound(row) for row in real]
    page.says("against the lower bound: {} to {} %; why some are above {} %", [min(shares), max(shares), 100])
    replayed = rows("overlap_replay.csv").where(forward="tah")
    floors = {schedule: [of_floor(row) for row in replayed.where(schedule=schedule)]
              for schedule in ("link-aware", "2bw")}
    page.says("against the floor: {} to {} %, and {} to {} % where steps overlap",
              [end for shares in floors.values() for end in (min(shares), max(shares))])
    flat, deep = Losses(rows("predict/target_h200.csv")), Losses(rows("predict/target_h200_depth4.csv"))
    page.says("`default` is {} % above `none` with eight stages of a layer (nine seeds, interval {} to {} %) and "
              "{} % with four stages of four; `tah` + `fixed:bits=4` {} %", [
                  *flat.interval("predict5-dither2"), deep.interval("predict5-dither2")[0],
                  flat.interval("tah4")[0]])
    curves = rows("curves_gpt2_small.csv")
    page.says("all pairs but one within {} nats", [max(abs(later_half(curves, pair, "none"))
                                                       for pair in PAIRS.values() if pair != "fixed4-nearest")])
    wire = rows("wire.csv")
    page.says("against the formats' sizes: {} to {}", [wire.least("ratio"), wire.most("ratio")])
    large = rows("collectives_2xh200_mapped.csv").where(bytes=lambda size: int(size) >= 64 * MIB)
    exact = large.where(operation="all_to_all", variant="zip:over=mapped")
    rounded = large.where(operation="all_reduce", variant="taco:over=mapped")
    page.says("all-to-all {} to {} times as fast as NCCL's without loss, all-reduce {} to {} times in FP8", [
        exact.least("faster"), exact.most("faster"), rounded.least("faster"), rounded.most("faster")])
    page.printed("CODECS ", folder / "printed/planned_gpt2_xl.txt")
    losses = rows("quickstart_losses.csv").where(variant="seed1")
    page.says("validation loss of {}, and the pair `default` {}", [
        losses.where(links=links).one("last_validation_loss") for links in ("none", "default")])
    page.given("3 GB of free disk", "from 64 MiB on", "Ubuntu 24.04")
