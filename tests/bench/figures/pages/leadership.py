def check(page, rows, folder):
    seeds = rows("lead_seeds.csv")
    alone, pair = seeds.where(simulation="lead-sim"), seeds.where(simulation="coordinator-sim --only pair")
    page.says("{} seeds took {} s on 32 cores, and had no violation", [alone.one("count"), alone.one("seconds")])
    page.says("{} seeds took {} s on 32 cores, and none of them had one", [sum(pair.all("count")), sum(pair.all("seconds"))])
    assert sum(alone.all("violations")) == 0 and sum(pair.all("violations")) == 0
    page.copied("| mutation | seed", rows("printed/lead_mutations.csv"))
    page.given("beats to the witness after 1 s", "had waited for longer than 3 s")
