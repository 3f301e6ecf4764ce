from figures.pages.slices import simulated
from figures.sweeps import bits_per_second, middle, of_floor

SCHEDULES = {"steps that wait for each other": ("link-aware", 1), "the same in 16 slices": ("link-aware", 16),
             "steps that overlap": ("2bw", 1), "the same in 4 slices": ("2bw", 4)}
COLUMNS = ("100 Mbit/s", "300 Mbit/s", "100 Mbit/s, 25 ms", "300 Mbit/s, 25 ms")


def check(page, rows, folder):
    page.table("| | `none`, 100 Mbit/s", simulated(
        rows("overlap_simulated.csv"),
        lambda row: dict(zip(("schedule", "slices"), SCHEDULES[row[""]]))))
    replayed = rows("overlap_replay.csv").where(forward="tah")
    now = {}

    def cell(column):
        rate = bits_per_second(column.split(",")[0])

        def of(schedule):
            return middle(replayed.where(rate_bits_per_second=rate, schedule=schedule,
                                         delay_seconds=0.025 if "25 ms" in column else 0))

        def values(row):
            what = row[""]
            if what.startswith("steps that"):
                now[column] = "2bw" if "overlap" in what else "link-aware"
            if what == "times faster":
                return float(of("link-aware")["step_seconds"]) / float(of("2bw")["step_seconds"])
            if what == "floor":
                return float(of("2bw")["floor_seconds"])
            chosen = of(now[column])
            return {"predicted": float(chosen["simulated_seconds"]), "share of the floor": of_floor(chosen)
                    }.get(what, float(chosen["step_seconds"]))
        return values
    page.table("| | 100 Mbit/s |", {column: cell(column) for column in COLUMNS})
    curves = rows("overlap_curves.csv")

    def series(name):
        links, seed = name.split(", ")[:2]
        return (f"{links.strip('`')}-{'2bw' if 'overlapping' in name else 'link-aware'}"
                f"-{seed.replace(' ', '')}")

    def at(step, column=None):
        return lambda row: curves.where(what="validation", step=step).one(column or series(row[TITLE]))

    def against(row):
        waits = series(row[TITLE]).replace("2bw", "link-aware")
        return 100 * (at(200)(row) / at(200, waits)(row) - 1)
    page.table(f"| {TITLE}", {"50": at(50), "100": at(100), "150": at(150), "200 steps": at(200),
                              "at 200 against steps that wait": against})
    behind = [100 * (at(200, f"{links}-2bw-{seed}")(None) / at(200, f"{links}-link-aware-{seed}")(None) - 1)
              for links in ("none", "default") for seed in ("seed1", "seed2")]
    page.says("overlapping is {} to {} % behind at equal steps", [min(behind), max(behind)])


TITLE = "validation loss after"
