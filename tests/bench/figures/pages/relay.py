LINE_MBIT = 20


def check(page, rows, folder):
    found = rows("relay.csv")

    def of(row):
        return found.where(repeat=row["repeat"], way=row["way"])
    page.table("| repeat | way", {
        "a step": lambda row: of(row).median("seconds"),
        "goodput each way": lambda row: [of(row).median("goodput_mbit")],
        "of the line": lambda row: 100 * of(row).median("goodput_mbit") / LINE_MBIT})
    page.given("At 95.6%", "Linux 6.18")
