import statistics

from figures.pages.predict import T

FORMS = {"one pipeline": "one pipeline", "`none`": "none", "`sdp4bit`": "sdp4bit",
         "`tagc:keep=0.05,least=4096`": "tagc", "`local-sgd:steps=20`": "local-sgd",
         "`local-sgd:steps=20,delay=0.5`": "local-sgd, delayed"}
CASES = {"3 stages, lines the bottleneck of passes": "3 stages, lines slow",
         "3 stages, compute the bottleneck, boundaries in bf16": "3 stages, compute slow",
         "1 stage, compute the bottleneck, 8 microbatches": "1 stage, compute slow",
         "1 stage, 1 microbatch": "1 stage, 1 microbatch"}
KINDS = {"`sdp4bit`": "sdp4bit", "`bf16`": "bf16", "`tagc`": "tagc", "`local-sgd:steps=8`": "local-sgd",
         "`local-sgd:steps=8,delay=0.75`": "local-sgd, delayed"}


def step(rows):
    """The median of steps; of local-sgd, whose exchange is in one of eight steps, the mean."""
    return rows.mean("seconds") if rows.rows[0]["form"].startswith("local-sgd") else rows.median("seconds")


def losses(page, rows):
    found, composition = rows("replicas/losses.csv"), rows("replicas/composition.csv")
    form = "`pipeline.gradients`"

    def of(row):
        return found.where(form=FORMS[row[form]])
    whole = found.where(form="one pipeline").mean("validation_loss")
    page.table(f"| {form} | `pipeline.parameters` | validation loss", {
        "validation loss": lambda row: of(row).mean("validation_loss"),
        "against one pipeline": lambda row: 100 * (of(row).mean("validation_loss") / whole - 1),
        "first 20 losses differ by, at most": lambda row: of(row).most("first_20_relative")})

    def at(number):
        return lambda row: composition.where(variant=row[TITLE], step=number).mean("validation_loss")

    def first_twenty(row):
        return max(abs(float(one["loss"]) / float(other["loss"]) - 1)
                   for one in composition.where(variant=row[TITLE]) if int(one["step"]) <= 20
                   for other in by_step[(one["seed"], one["step"])])
    by_step = {}
    for each in composition.where(variant="one pipeline"):
        by_step.setdefault((each["seed"], each["step"]), []).append(each)
    page.table(f"| {TITLE}", {
        **{title: at(int(title.split()[0])) for title in ("50", "100", "150", "200", "250", "300 steps")},
        "against one pipeline": lambda row: 100 * (
            at(300)(row) / composition.where(variant="one pipeline", step=300).mean("validation_loss") - 1),
        "first 20 losses differ by, at most": first_twenty})


TITLE = "validation loss after"


def owner(page, rows):
    """What the owner of a shard keeps: bytes and losses of the same runs."""
    found = rows("replicas/owner_share.csv").where(step=1000)

    def of(row):
        return found.where(form=f"{row['`pipeline.gradients`'].strip('`')}/bf16")

    def difference(row):
        exact = {each["seed"]: float(each["validation_loss"]) for each in found.where(form="bf16/bf16")}
        percent = [100 * (float(each["validation_loss"]) / exact[each["seed"]] - 1) for each in of(row)]
        half = T[len(percent) - 1] * statistics.stdev(percent) / len(percent) ** 0.5
        mean = statistics.fmean(percent)
        return [mean, mean - half, mean + half]
    page.table("| `pipeline.gradients` | gradients, bytes a step", {
        "gradients, bytes a step": lambda row: of(row).mean("gradient_bytes_a_step"),
        "parameters, bytes a step": lambda row: of(row).mean("parameter_bytes_a_step"),
        "validation loss": lambda row: of(row).mean("validation_loss"),
        "difference": difference})


def exchanges(page, rows):
    replay = rows("replicas/exchange_replay.csv")

    def of(row):
        return replay.where(gradients=row["`pipeline.gradients`"].strip("`"))
    page.table("| `pipeline.gradients` | `pipeline.parameters` | both replicas send", {
        "both replicas send in a step": lambda row: of(row).median("payload_bytes") / 1e6,
        "step, median of 3": lambda row: of(row).median("seconds"),
        "against bf16": lambda row: (replay.where(gradients="bf16").median("seconds")
                                     / of(row).median("seconds")),
        "predicted": lambda row: of(row).median("predicted_seconds")})
    hidden = rows("replicas/exchange_steps.csv")

    def beside(version, predicted=False):
        def values(row):
            chosen = hidden.where(of=version, case=CASES[row[""]])
            return chosen.median("predicted_seconds") if predicted else step(chosen)
        return values
    page.table("| | step before | after", {
        "step before": beside("before"), "after": beside("after"),
        "predicted before": beside("before", True), "predicted after": beside("after", True)})
    free = rows("replicas/exchange_steps_32_cores.csv")

    def on_free(row):
        return free.where(case=CASES[row[""]], form=KINDS[row["form"]])

    def short(chosen):
        return 100 * (1 - chosen.median("predicted_seconds") / step(chosen))
    page.table("| | form | step | predicted | predicted too low by |", {
        "step": lambda row: step(on_free(row)), "predicted": lambda row: on_free(row).median("predicted_seconds"),
        "predicted too low by": lambda row: short(on_free(row))})
    merges = rows("replicas/exchange_merges.csv")
    page.table("| | step | predicted | predicted too low by |", {
        "step": lambda row: step(merges.where(form=KINDS[row[""]])),
        "predicted": lambda row: merges.where(form=KINDS[row[""]]).median("predicted_seconds"),
        "predicted too low by": lambda row: short(merges.where(form=KINDS[row[""]]))})
    gpus = rows("replicas/exchange_steps_gpus.csv")

    def between(version, row):
        return gpus.where(of=version, case=f"on GPUs, {row['rate'].replace(' Gbit/s', 'gbit')}",
                          form=KINDS[row["form"]])
    page.table("| rate | form | step before", {
        "step before": lambda row: step(between("before", row)), "after": lambda row: step(between("after", row)),
        "times faster": lambda row: step(between("before", row)) / step(between("after", row)),
        "predicted": lambda row: between("after", row).median("predicted_seconds")})


def check(page, rows, folder):
    losses(page, rows)
    owner(page, rows)
    exchanges(page, rows)
    page.copied("| | 1 thread", rows("printed/replicas_coding.csv"))
    page.given("1.1 MB, the last tenth", "AdamW 2e-3", "The target is 2.5", "50 ms forward and 100 ms backward",
               "within 1e-5 of those", "163 M parameters", "124 M parameters", "target of 10 %",
               "as one takes 2 ms", "more than 10 %", "The target is 10 %", "98.75 % of the elements", "its 95 % interval")
