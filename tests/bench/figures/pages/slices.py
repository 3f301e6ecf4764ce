from figures.sweeps import middle, of_floor

# Columns of tables of simulated steps.
SIMULATED = {"`none`, 100 Mbit/s": ("none", 100, 0), "default, 100 Mbit/s": ("default", 100, 0),
             "default, 300 Mbit/s": ("default", 300, 0), "default, 100 Mbit/s, 25 ms": ("default", 100, 25),
             "default, 300 Mbit/s, 25 ms": ("default", 300, 25)}


def simulated(found, more):
    """`more`: of a row of the table, columns that choose."""
    def of(codecs, rate, delay):
        return lambda row: found.where(model="gpt2-xl", codecs=codecs, mbit_per_second=rate, delay_ms=delay,
                                       **more(row)).one("floor_share_percent")
    return {title: of(*setting) for title, setting in SIMULATED.items()}


def check(page, rows, folder):
    # `tah`, as the page says: what a plan chooses by itself has changed since.
    replayed = rows("slices.csv").where(forward="tah")

    def of(rate, value):
        def values(row):
            variant = "whole" if row["slices"] == "1" else f"slices{row['slices']}"
            return value(middle(replayed.where(rate_bits_per_second=rate, variant=variant)))
        return values
    speed = lambda row: float(row["tokens_per_second"])
    page.table("| slices | 100 Mbit/s: step", {
        "100 Mbit/s: step": of(1e8, lambda row: float(row["step_seconds"])),
        "300 Mbit/s: step": of(3e8, lambda row: float(row["step_seconds"])),
        "100 Mbit/s: tokens/s": of(1e8, speed), "300 Mbit/s: tokens/s": of(3e8, speed),
        "100 Mbit/s: of the floor": of(1e8, of_floor), "300 Mbit/s: of the floor": of(3e8, of_floor),
        "100 Mbit/s: simulated": of(1e8, lambda row: float(row["simulated_seconds"])),
        "300 Mbit/s: simulated": of(3e8, lambda row: float(row["simulated_seconds"]))})
    page.table("| slices | `none`, 100 Mbit/s", simulated(rows("slices_simulated.csv"),
                                                       lambda row: {"slices": row["slices"]}))
    losses = rows("slices_losses.csv")
    variants = {"microbatches whole": "whole", "2 slices": "slices2", "4 slices": "slices4"}

    def loss(seed):
        def values(row):
            links, what = row["validation loss after 64 steps"].split(", ")
            return losses.where(forward="none" if links == "`none`" else "tah",
                                variant=variants[what] + seed).one("last_validation_loss")
        return values
    page.table("| validation loss after 64 steps", {"seed 1": loss(""), "seed 2": loss("seed2")})
    curves = rows("slices_curves.csv")

    def farthest(one, other):
        return max(abs(float(row[one]) / float(row[other]) - 1) for row in curves)
    page.says("slices are relatively within {} of those of whole microbatches (of the other seed: {})",
              [max(farthest("none-whole", f"none-slices{n}") for n in (2, 4)),
               farthest("none-wholeseed2", "none-slices4seed2")])
    page.printed("predicted step: 4.85 s", folder / "printed/planned_slices.txt")
    page.given("no delay", "14 links of 25 ms are 0.35 s", "to the bit (9 models", "within 1e-4", "1e-4 in fp32")
