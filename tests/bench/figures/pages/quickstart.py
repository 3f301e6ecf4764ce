def check(page, rows, folder):
    found = rows("quickstart_losses.csv")

    def of(variant):
        return lambda row: found.where(links=row["pair"].strip("`"), variant=variant).one(
            "last_validation_loss")
    page.table("| pair | seed 1", {"seed 1": of("seed1"), "seed 2": of("seed2")})
