def check(page, rows, folder):
    found = rows("prepare.csv")

    def of(row):
        return found.where(repetition=row["repetition"])

    def both(kind):
        return lambda row: [of(row).one(f"{who}_{kind}_cpu_seconds") for who in ("wheel", "prepare")]
    page.table("| repetition | the package alone | `prepare` | ratio | seconds of cores of their own", {
        "the package alone": lambda row: of(row).one("wheel_seconds"),
        "`prepare`": lambda row: of(row).one("prepare_seconds"),
        "ratio": lambda row: of(row).one("ratio"),
        "seconds of cores of their own, alone and `prepare`": both("own"),
        "seconds of cores of others meanwhile": both("others")})
    page.says("The median ratio is {}.", [found.median("ratio")])
    page.copied("| repetition | the package alone | `prepare` | ratio | seconds of cores of others",
                rows("printed/prepare_quiet.csv"))
    page.given("100 MB of generated jsonl", "8 MB of it", "tokenizers 0.23.3", "load of 1.4",
               "text of 20 MB")
