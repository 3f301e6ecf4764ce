LINKS = {"plain": "plain", "encrypted": "sealed"}


def links_table(found):
    def of(column, traffic):
        def values(row):
            chosen = found.where(transport=row["transport"].strip("`"), links=LINKS[row["links"]],
                                 traffic=traffic)
            median = chosen.median(column)
            return [median, chosen.least(column), chosen.most(column)] if "(" in row[TITLES[traffic]] \
                and column == "cpu_seconds_per_gb" else median
        return values
    return {"one way": of("there_percent", "one way"), "CPU a GB": of("cpu_seconds_per_gb", "one way"),
            "both ways": lambda row: [of(column, "both")(row) for column in ("there_percent",
                                                                             "back_percent")],
            "CPU a GB, both": of("cpu_seconds_per_gb", "both")}


TITLES = {"one way": "CPU a GB", "both": "CPU a GB, both"}


def check(page, rows, folder):
    for header, name in (("| codecs | step | lower bound", "steps_bench_4x256"),
                         ("| schedule | share of the bound", "schedules_simulated"), ("| | |", "idle"),
                         ("| pair | tokens/s", "quickstart_codecs"),
                         ("| threads | let through", "relay_throughput")):
        page.copied(header, rows(f"printed/{name}.csv"))
    header = "| transport | links | one way | CPU a GB | both ways | CPU a GB, both |"
    page.table(header, links_table(rows("transport.csv")))
    page.table(header, links_table(rows("transport_amd.csv")), 1)
    wire = rows("wire.csv")
    page.says("with all headers, over what was expected: {} to {}", [wire.least("ratio"), wire.most("ratio")])
    page.given("95.6 % of a line", "95.6 % is the most", "0 and 25 ms", "25 ms one way",
               "learning rate of 2e-3", "has 1e-3 since, because 2e-3")
