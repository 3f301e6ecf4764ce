import statistics

from figures.sweeps import of_bound, of_floor

# Student's t at 97.5 %, by degrees of freedom.
T = {1: 12.706, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 8: 2.3060}


class Losses:
    """Rows of token_losses.py: the last step of each pair and seed."""

    def __init__(self, rows):
        last = max(int(row["step"]) for row in rows)
        self.rows = rows.where(step=last)

    def mean(self, pair, column="loss"):
        return self.rows.where(pair=pair).mean(column)

    def differences(self, pair, column="loss"):
        """Percent of the loss of `none`, seed by seed."""
        exact = {row["seed"]: float(row["loss"]) for row in self.rows.where(pair="none")}
        return [100 * (float(row[column]) / exact[row["seed"]] - 1) for row in self.rows.where(pair=pair)]

    def interval(self, pair, column="loss"):
        """Mean, and the ends of its 95 % interval."""
        found = self.differences(pair, column)
        half = T[len(found) - 1] * statistics.stdev(found) / len(found) ** 0.5
        mean = statistics.fmean(found)
        return [mean, mean - half, mean + half]

    def upper_end(self, pair):
        return max(self.interval(pair, column)[2] for column in ("loss", "clean_loss"))


def pair_of(row):
    return row["pair"].split(",")[0].strip("`")


def loss_columns(losses):
    return {
        "MB a run": lambda row: losses.rows.where(pair=pair_of(row)).median("bytes") / 1e6,
        "loss through codecs": lambda row: losses.mean(pair_of(row)),
        "loss with clean boundaries": lambda row: losses.mean(pair_of(row), "clean_loss"),
        "difference through codecs": lambda row: losses.interval(pair_of(row)),
        "difference clean": lambda row: losses.interval(pair_of(row), "clean_loss"),
        "relative error of activations": lambda row: losses.rows.where(pair=pair_of(row)).mean("error"),
        "upper end of the worse": lambda row: losses.upper_end(pair_of(row)),
        "seeds": lambda row: len(losses.rows.where(pair=pair_of(row)))}


def chosen(columns, *titles):
    return {title: columns[title] for title in titles}


def one_pass(page, rows):
    columns = loss_columns(Losses(rows("predict/one_pass_cpu.csv")))
    page.table("| pair | forward + backward | MB a run | loss through", chosen(
        columns, "MB a run", "loss through codecs", "loss with clean boundaries", "difference through codecs",
        "difference clean", "relative error of activations"))
    columns = loss_columns(Losses(rows("predict/one_pass_dither.csv")))
    page.table("| pair | forward + backward | MB a run | difference", chosen(
        columns, "MB a run", "difference through codecs", "difference clean"))
    columns = loss_columns(Losses(rows("predict/one_pass_cpu_lr2e-3.csv")))
    page.table("| pair | difference through codecs, percent |", {
        "difference through codecs, percent": columns["difference through codecs"]})


def default_pair(page, rows):
    shapes = {"8 x 1": Losses(rows("predict/target_h200.csv")),
              "4 x 4": Losses(rows("predict/target_h200_depth4.csv"))}

    def of(title):
        return lambda row: loss_columns(shapes[row["stages x layers"]])[title](row)
    page.table("| stages x layers", {title: of(title) for title in (
        "seeds", "loss through codecs", "difference through codecs", "difference clean",
        "upper end of the worse")})
    deep, flat = shapes["4 x 4"], shapes["8 x 1"]
    page.says("with four layers a stage they lose {} % and {} % of the loss. With one layer a stage they lose "
              "{} % (nine seeds) and {} % (six)", [losses.interval(pair)[0] for losses in (deep, flat)
                                                   for pair in ("predict5-dither2", "predict4-dither2")])
    page.says("`gauss` without `predict` loses {} %, and `tah` with four bits of `fixed`, the default before, {} %",
              [flat.interval(pair)[0] for pair in ("gauss5-dither2", "tah4")])
    page.says("where it is {} % and {} %", [flat.upper_end(pair) for pair in ("predict5-dither2",
                                                                              "predict4-dither2")])
    service = rows("predict/service_h200.csv")

    def seeds(pair):
        return lambda row: service.where(by="service" if row[""] == "service" else lambda by: by != "service",
                                         pair=pair).all("loss")

    def percent(row):
        return [100 * (ours / exact - 1) for ours, exact in zip(seeds("predict5-dither2")(row),
                                                                seeds("none")(row))]
    page.table("| | `none`, seeds 1, 2, 3", {
        "`none`, seeds 1, 2, 3": seeds("none"), "`default`": seeds("predict5-dither2"),
        "difference, percent": percent, "mean": lambda row: statistics.fmean(percent(row))})


def gpt2_xl(page, rows):
    first, now = rows("predict/gpt2_xl_100mbit.csv"), rows("predict/gpt2_xl_1xh200.csv")
    links = {"`tah`, default pair": "default", "`predict/gauss:bits=4`": "predict4",
             "`predict/gauss:bits=3`": "predict3"}

    def of(value, rows_of):
        return lambda row: value(rows_of(row).rows[0])

    def columns(rows_of):
        return {"step": of(lambda row: float(row["step_seconds"]), rows_of),
                "bound": of(lambda row: float(row["bound_seconds"]), rows_of),
                "of the bound": of(of_bound, rows_of), "of the floor": of(of_floor, rows_of),
                "tokens/s": of(lambda row: float(row["tokens_per_second"]), rows_of)}
    old = lambda row: first.where(links=links[row["forward"]])
    page.table("| forward | step | bound", {
        **columns(old),
        "bytes a step, all links": of(lambda row: float(row["link_bytes_per_step"]) / 1e6, old)})

    def kind(row):
        setting = row["setting"].strip("`")
        return now.where(links=row["links"].strip("`"), schedule="2bw" if setting == "2bw" else "link-aware",
                         variant="slices2" if setting == "two slices" else "")
    page.table("| links | setting | step", columns(kind))
    shares = {links: now.where(links=links, schedule="link-aware", variant="").rows[0]
              for links in ("default", "fast")}
    page.says("reaches {} % of its bound with `default` and {} % with `fast`, which is {} % and {} % of the "
              "steady-state floor", [share(shares[links]) for share in (of_bound, of_floor)
                                     for links in shares])
    page.says("carries {} MB a step over all links", [float(now.rows[0]["link_bytes_per_step"]) / 1e6])


def quickstart(page, rows):
    found = rows("predict/quickstart_10mbit.csv")
    names = {"default": "default", "`predict` 4 bits": "predict4", "`predict` 3 bits": "predict3"}

    def of(row):
        return found.where(links=names[row["links"]])

    def steps(row):
        return of(row).where(step=["3", "4", "5", "6", "7"])
    page.table("| links | tokens/s, median of steps 3 to 7", {
        "tokens/s, median of steps 3 to 7": lambda row: TOKENS / steps(row).median("seconds"),
        "bytes a step, all links": lambda row: steps(row).median("link_bytes") / 1e6,
        "validation at step 64": lambda row: of(row).where(step=64).one("validation_loss")})


TOKENS = 4096


def others(page, rows):
    page.copied("| ids | channels | stage", rows("printed/tables_memory.csv"))
    passes = rows("predict/passes_cpu.csv").where(step=1500)
    exact = passes.where(pair="none").one("loss_mean_of_100_steps")

    def of(row):
        return passes.where(pair=row["pair"].split(":")[0].split(",")[0].strip("`"))

    def loss(row):
        value = of(row).one("loss_mean_of_100_steps")
        return value if pair_of(row) == "none" else [value, 100 * (value / exact - 1)]
    page.table("| pair | MB of training", {
        "MB of training": lambda row: of(row).one("megabytes_of_training"),
        "loss, mean of the last 100 steps": loss,
        "validation after 1,500 steps": lambda row: of(row).one("validation_loss")})
    tables = rows("predict/tables_h200.csv").where(steps_of_cosine=610, model="gpt", step=456)
    kinds = {("mean and tokens", "0.02"): "mean and tokens, rate 0.02",
             ("mean and tokens", "0.05"): "mean and tokens, rate 0.05",
             ("the same, rows in bf16", "0.05"): "mean and tokens, rate 0.05, bf16",
             ("mean and tokens, and the mean with 0.05, too, as in the codec", "0.05"):
                 "mean and tokens, both rates 0.05",
             ("mean and tokens", "0.1"): "mean and tokens, rate 0.1",
             ("mean, tokens and 65,536 rows of pairs", "0.05"): "mean, tokens and pairs",
             ("mean, tokens and a row for each previous token", "0.05"): "mean, tokens and before",
             ("mean, tokens and a row for each place", "0.05"): "mean, tokens and places"}
    first = "tables; the mean's own rate is 0.02"
    page.table(f"| {first}", {"energy that is left": lambda row: [
        tables.where(kind=kinds[(row[first], row["rate"])], boundary=boundary).one("left")
        for boundary in (1, 5)]})


def target(page, rows):
    first, second = Losses(rows("predict/target_h100.csv")), Losses(rows("predict/target_h100_second_text.csv"))
    titles = ("MB a run", "loss through codecs", "loss with clean boundaries", "difference through codecs",
              "difference clean", "upper end of the worse")
    page.table("| pair | MB a run | loss through", chosen(loss_columns(first), *titles))
    page.table("| pair | MB a run | loss through", chosen(loss_columns(second), *titles), 1)

    def of_seed(pair):
        def values(row):
            found = first.rows.where(seed=row["seed"], pair=pair)
            exact = first.rows.where(seed=row["seed"], pair="none").one("loss")
            return exact if pair == "none" else 100 * (found.one("loss") / exact - 1)
        return values
    page.table("| seed | `none` | `tah4`", {f"`{pair}`": of_seed(pair) for pair in (
        "none", "tah4", "paper", "predict4", "predict3", "predict4-fixed4")})


def speed(page, rows):
    def table(name, **more):
        found = rows(name).where(**more) if more else rows(name)

        def of(column):
            def values(row):
                ids = {"random": "random", "all equal": "equal"}.get(row["ids"])
                columns = {"codec": row["codec"].split("`")[1], "dtype": row["dtype"]}
                here = found.where(**columns)
                if ids and row["codec"][1:6] != "gauss":
                    here = here.where(ids=ids)
                return here.median(column)
            return values
        return {"encode": of("encode_us"), "decode": of("decode_us"), "both in a graph": of("both_in_graph_us")}
    header = "| codec | dtype | ids | encode | decode | both in a graph |"
    before = table("predict/speed_h100.csv", kernels="before")
    page.table(header, {**table("predict/speed_h100.csv", kernels=lambda name: name != "before"),
                        "both, kernels before": before["both in a graph"]})
    page.table(header, table("predict/speed_h200.csv"), 1)
    page.table(header, table("predict/speed_h200_now.csv"), 2)
    page.copied(header, rows("printed/speed_mean_h200.csv"), 3)
    again = rows("predict/speed_h200_now.csv")

    def once(column):
        def values(row):
            codec = row["codec"].strip("`")
            ids = {"random": "random", "all equal": "equal"}.get(row["ids"], "")
            name = codec + " (mean in one pass)" if codec.startswith("predict") else codec
            here = again.where(codec=name)
            return (here.where(ids=ids) if codec.startswith("predict") else here).one(column)
        return values
    page.table(header, {"encode": once("encode_us"), "decode": once("decode_us"),
                        "both in a graph": once("both_in_graph_us")}, 4)


def check(page, rows, folder):
    page.says("Encoding and decoding take {} us on an H200", [rows("predict/speed_h200_now.csv").where(
        codec="predict/gauss:bits=5 (mean in one pass)", ids="random").one("both_in_graph_us")])
    page.given("at most 0.5 % (`default`) and 1.5 % (`fast`)", "where 60 us was the target", "1.9 M parameters",
               "The target, 95 % of the bound", "1.4 M tokens and 70,000", "0.61 M tokens", "AdamW 1e-3",
               "its 95 % interval", "1.1 M tokens of other", "20.0 M tokens", "limit of 0.5 %", "1.1 M of 384",
               "The target, 60 us", "PyTorch 2.11.0+cu130")
    for part in (quickstart, gpt2_xl, one_pass, others, default_pair, target, speed):
        part(page, rows)
