import statistics

PAIRS = {"`none`": "none", "`paper`": "paper", "`tah`, 4 bits": "default", "`gauss`": "gauss",
         "`gauss`, 3 bits": "gauss-fixed3", "`aqsgd`": "aqsgd", "4 bits, nearest": "fixed4-nearest"}


def later_half(found, one, other):
    """Mean of the differences of the last 20 of 40 validations."""
    return statistics.fmean(float(row[one]) - float(row[other]) for row in found.rows[20:])


def check(page, rows, folder):
    found, seeds = rows("curves_gpt2_small.csv"), rows("curves_gpt2_small_seeds.csv")
    last = found.rows[-1]
    page.table("| pair | forward / backward", {
        "validation after 2,000 steps": lambda row: float(last[PAIRS[row["pair"]]]),
        "later half": lambda row: (later_half(found, PAIRS[row["pair"]], "none")
                                   if row["pair"] != "`none`" else None)})
    differences = {pair: later_half(found, pair, "none") for pair in PAIRS.values()}
    page.says("all but the last are within {} of `none`",
              [max(abs(value) for pair, value in differences.items() if pair != "fixed4-nearest")])
    by_seed = [later_half(seeds, f"default-{seed}", f"paper-{seed}") for seed in range(1, 5)]

    def of(pair):
        def values(row):
            ends = [float(seeds.rows[-1][f"{pair}-{seed}"]) for seed in range(1, 5)]
            return statistics.fmean(ends) if row["seed"] == "mean" else ends[int(row["seed"]) - 1]
        return values
    page.table("| seed | `paper`", {
        "`paper`": of("paper"), "`tah`, 4 bits": of("default"),
        "later half: `tah`, 4 bits, less `paper`": lambda row: (
            statistics.fmean(by_seed) if row["seed"] == "mean" else by_seed[int(row["seed"]) - 1])})
    page.says("The mean difference is {} with a standard error of {}",
              [statistics.fmean(by_seed), statistics.stdev(by_seed) / 2])
    page.given("85 M parameters", "2.2 MB of text", "torch 2.11.0+cu130", "3.9 passes over the text",
               "cosine from 6e-4")
