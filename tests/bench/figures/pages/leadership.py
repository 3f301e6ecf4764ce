def check(page, rows, folder):
    page.copied("| mutation | seed", rows("printed/lead_mutations.csv"))
    page.given("beats to the witness after 1 s", "had waited for longer than 3 s")
