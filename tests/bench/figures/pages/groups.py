SHAPES = {"8 layers of Llama-3-8B, 4,096 tokens": ("llama-3-8b", 8), "": ("gpt2-large", 8),
          "the same, each rank its tokens between sums": ("llama-3-8b", 8),
          "8 layers of GPT-2 Large, 1,024 tokens": ("gpt2-large", 8), "4 layers with experts, 4,096 tokens": ("moe", 4)}


def speed(page, rows):
    found = rows("groups_2xh100.csv")

    def stage(row):
        shape, layers = SHAPES[row["stage"]]
        return found.where(shape=shape, layers=layers, host_path=str(row["path"] != "NVLink"),
                           sequence=str(row["stage"].startswith("the same")))

    def two(variant):
        names = [f"2 GPUs, {variant}", f"2 GPUs, {variant}@nccl"]  # the second where links are switched off
        return lambda row: [stage(row).where(variant=names).one(column) for column in ("ms", "x_one_gpu")]
    page.table("| stage | path", {"one GPU": lambda row: stage(row).where(variant="one GPU").one("ms"),
                                  "two, `none`": two("none"), "two, `taco`": two("taco"),
                                  "two, `free`": two("free")})
    h200 = rows("groups_2xh200.csv")
    page.says("{} ms on one GPU, {} ms on two, and {} ms ({}) with `free`", [
        h200.where(variant="one GPU").one("ms"), h200.where(variant="2 GPUs, none").one("ms"),
        *(h200.where(variant="2 GPUs, free").one(column) for column in ("ms", "x_one_gpu"))])
    page.says("have the same {} with `--sequence`", [h200.where(variant="2 GPUs, none").one("x_one_gpu")])
    page.says("It is missed by little, with {}, and with {} where each rank", [
        two("none")({"stage": "8 layers of Llama-3-8B, 4,096 tokens", "path": "NVLink"})[1],
        two("none")({"stage": "the same, each rank its tokens between sums", "path": "NVLink"})[1]])
    through = rows("groups_2xh200_host_path.csv")

    def mapped(variant, against=True):
        def values(row):
            here = through.where(shape=SHAPES[row["stage"]][0])
            name = "one GPU" if variant == "one GPU" else f"2 GPUs, {variant}"
            if variant in ("one GPU", "none@nccl"):
                return here.where(variant=name).one("ms")
            return [here.where(variant=name).one(column) for column in ("ms", "x_first_group")]
        return values
    page.table("| stage | one GPU | `none`, NCCL", {
        "one GPU": mapped("one GPU"), "`none`, NCCL": mapped("none@nccl"), "`none`": mapped("none"),
        "`taco`, NCCL": mapped("taco@nccl"), "`taco`": mapped("taco"), "`zip`, NCCL": mapped("zip@nccl"),
        "`zip`": mapped("zip")})

    def experts(variant):
        def values(row):
            here = found.where(shape="moe", host_path=str(row["path"] != "NVLink"))
            names = ["one GPU"] if variant == "one GPU" else [f"2 GPUs, {variant}", f"2 GPUs, {variant}@nccl"]
            chosen = here.where(variant=names)
            return chosen.one("ms") if variant == "one GPU" else [chosen.one("ms"), chosen.one("x_one_gpu")]
        return values
    page.table("| path | one GPU | two, `none`", {
        "one GPU": experts("one GPU"), "two, `none`": experts("none"), "two, `zip`": experts("zip"),
        "two, `bounded`": experts("bounded")})

    def shares(p):
        def values(row):
            here = found.where(shape="llama-3-8b", layers=4, host_path=str(row["path"] != "NVLink"))
            if p is None:
                return here.where(variant="one GPU").one("ms")
            share = "" if p == "1" else f", p {p}"
            chosen = here.where(variant=[f"2 GPUs, none{share}", f"2 GPUs, none@nccl{share}"])
            return [chosen.one("ms"), chosen.one("x_one_gpu")]
        return values
    page.table("| path | one GPU | `p` 1", {"one GPU": shares(None), "`p` 1": shares("1"),
                                            **{p: shares(p) for p in ("0.75", "0.5", "0.25", "0")}})


def beside_links(page, rows):
    both = rows("groups_link.csv")
    page.says("With one GPU each a step takes {} s", [both.where(ranks=1).one("step_s")])
    page.says("on the same two GPUs, it takes {} s, and {} s with parts of the tokens", [
        both.where(ranks=2, each_has=each).one("step_s") for each in ("all tokens", "a part of them")])
    found = rows("groups_link_one_stage.csv")

    def of(row):
        rate, codecs = row["link, codecs"].replace("`", "").split(", ")
        rate = rate.replace(" Gbit/s", "gbit").replace(" Mbit/s", "mbit")
        parts = "a part of them" if "parts" in row["ranks"] else "all tokens"
        return found.where(rate=rate, codecs=codecs, ranks=row["ranks"][0], each_has=parts)
    page.table("| link, codecs | ranks", {
        "compute of a microbatch, CPU": lambda row: of(row).one("first_ms"),
        "GPUs": lambda row: of(row).one("last_ms"), "bound": lambda row: of(row).one("bound_s"),
        "step": lambda row: of(row).one("step_s"),
        "against one rank": lambda row: 100 * (of(row).one("over_one_rank") - 1)})


def learning(page, rows):
    caat = rows("groups_caat.csv")

    def at(step):
        return lambda row: caat.where(shared=float(row["`p`"]), step=step).one("validation_loss")

    def sent(row):
        return caat.where(shared=float(row["`p`"]), step=1500).one("sent_bytes_a_step")
    whole = caat.where(shared=1, step=1500)
    page.table("| `p` | validation loss after 500", {
        "validation loss after 500": at(500), "1,000": at(1000), "1,500 steps": at(1500),
        "against `p` 1": lambda row: 100 * (at(1500)(row) / whole.one("validation_loss") - 1),
        "bytes a step": lambda row: [sent(row) / 1e6, sent(row) / whole.one("sent_bytes_a_step")]})

    def large(name):
        found = rows(name)

        def loss(p, step):
            return lambda row: found.where(seed=row["seed"], shared=p, step=step).one("validation_loss")
        return loss
    first, second = large("groups_caat_130m.csv"), large("groups_caat_130m_second_text.csv")
    page.table("| seed | validation loss with `p` 1", {
        "validation loss with `p` 1 after 250": first(1, 250), "500 steps": first(1, 500),
        "with `p` 0.5 after 250": first(0.5, 250), "with `p` 0.5 after 500 steps": first(0.5, 500),
        "against `p` 1": lambda row: 100 * (first(0.5, 500)(row) / first(1, 500)(row) - 1)})
    page.table("| seed | `p` 1 after 250", {
        "`p` 1 after 250": second(1, 250), "500 steps": second(1, 500), "`p` 0.5 after 250": second(0.5, 250),
        "`p` 0.5 after 500 steps": second(0.5, 500),
        "against `p` 1": lambda row: 100 * (second(0.5, 500)(row) / second(1, 500)(row) - 1)})
    bytes_of = [rows("groups_caat_130m.csv").where(shared=p, step=500, seed=1).one("sent_bytes_a_step") / 1e9
                for p in (1, 0.5)]
    page.says("A step sends {} GB with `p` 1 and {} GB with 0.5: {},", [*bytes_of, bytes_of[1] / bytes_of[0]])
    taco = rows("groups_taco.csv").where(step=2000)

    def final(collective, seed):
        return taco.where(collective=collective, seed=seed).one("validation_loss")
    difference = {seed: 100 * (final("taco", seed) / final("none", seed) - 1) for seed in (1, 2, 3)}
    page.table("| seed | `none` | `taco` in both", {
        "`none`": lambda row: final("none", row["seed"]),
        "`taco` in both directions": lambda row: final("taco", row["seed"]),
        "difference": lambda row: difference[int(row["seed"])]})
    page.says("The mean difference is {} %; with `taco` the loss is at most {} % higher", [
        sum(difference.values()) / 3, max(difference.values())])
    page.says("A step sends {} MB uncompressed in fp32, {} MB as codes", [
        taco.where(collective=name, seed=1).one("sent_bytes_a_step") / 1e6 for name in ("none", "taco")])


def formats(page, rows):
    found = rows("groups_taco_formats.csv")
    names = {"`taco` (E4M3)": "taco"}

    def of(row, seed):
        ranks, name = row["ranks, sums"].split(", ")
        return found.where(ranks=int(ranks), collective=names.get(name, name.strip("`")), seed=seed)

    def difference(row, seed):
        plain = found.where(ranks=int(row["ranks, sums"][0]), collective="none", seed=seed)
        return 100 * (of(row, seed).one("validation_loss") / plain.one("validation_loss") - 1)
    page.table("| ranks, sums | seed 1", {
        **{f"seed {seed}": lambda row, seed=seed: difference(row, seed) for seed in (1, 2, 3)},
        "mean": lambda row: sum(difference(row, seed) for seed in (1, 2, 3)) / 3,
        "GB a step": lambda row: of(row, 1).one("sent_bytes_a_step") / 1e9})
    plain = found.where(ranks=2, collective="none").all("validation_loss")
    page.says("three seeds of `none` alone lie {} % apart", [100 * (max(plain) / min(plain) - 1)])


def check(page, rows, folder):
    speed(page, rows)
    beside_links(page, rows)
    learning(page, rows)
    formats(page, rows)
    page.given("107.8 M parameters", "2.2 MB of text", "NCCL 2.28.9", "The target for Llama is 1.7",
               "The targets are 1.2 for `taco` and 1.15 for `zip`",
               "`p` 0.5", "The target is 3 %", "at `p` 0.5", "1.1 MB, the last 5 %", "130.8 M parameters",
               "gets 7 times the mean", "CAAT-Net", "1e-5 in fp32", "1e-2 in bf16", "SHA-256 of the 20 MB",
               "target of 85 %", "with 0.5:")
