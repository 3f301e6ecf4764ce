import statistics

from figures.page import table_lines
from figures.rows import read
from figures.sweeps import rate_text

KINDS = {"plain": "plain", "encrypted": "sealed"}
SHORT = ("quiet 1", "quiet 2", "a1", "a2", "a3", "g1")  # g1: grpc
LONG = ("b1", "c1", "d1", "e1", "f1", "h1")
CPU, THERE = "cpu_seconds_per_gb", "goodput_percent"
FREE = {"before": "xeon before", "now": "xeon always waiting", "now, the other host": "xeon 2 now",
        "libipsec-mb, a third host": "xeon 3 now"}


def rate(text):
    return text.replace(" Mbit/s", "mbit").replace(" Gbit/s", "gbit")


def line(row):
    """Columns that choose the rows of a line of a table with delays and losses."""
    return {"delay_ms": float(row["one-way delay"].split()[0]), "loss_percent": float(row["loss"].split()[0]),
            "rate": rate(row["rate"]), "traffic": "both"}


def best(rows):
    return max(rows, key=lambda row: float(row["there_percent"]) + float(row["back_percent"] or 0))


def directions(rows):
    return [float(row[column]) for row in rows for column in ("there_percent", "back_percent") if row[column]]


def short_lines(page, found):
    def of(row, traffic):
        return found.where(set=SHORT, transport=row["transport"].strip("`"), links=KINDS[row["links"]],
                           rate=rate(row["rate"]), delay_ms=0, loss_percent=0, traffic=traffic)

    def goodput(traffic):
        def values(row):
            chosen = of(row, traffic)
            columns = ("there_percent",) if traffic == "one way" else ("there_percent", "back_percent")
            if row["rate"] == "10 Gbit/s":
                return [float(best(chosen)[column]) for column in columns]
            return [chosen.median(column) for column in columns]
        return values
    page.table("| transport | links | rate | one way", {
        "one way": goodput("one way"), "CPU a GB": lambda row: of(row, "one way").median(CPU),
        "both ways": goodput("both"), "CPU a GB, both": lambda row: of(row, "both").median(CPU)})

    def sets(row, names):
        return found.where(set=names, transport=row["transport"].strip("`"), links=KINDS[row["links"]],
                           rate="10gbit", traffic="both").rows

    def names(row, when):
        if when == "before":
            return ("before 1", "before 2")
        return ("after 1", "after 2") if row["transport"] == "`tcp`" else ("a1", "quiet 2")
    page.table("| transport | links | 10 Gbit/s both ways, before", {
        title: lambda row, when=when, pick=pick: [value for each in sets(row, names(row, when))
                                                  for value in pick(each)]
        for title, when, pick in (
            ("10 Gbit/s both ways, before", "before", lambda each: directions([each])),
            ("now", "now", lambda each: directions([each])),
            ("CPU a GB before", "before", lambda each: [float(each[CPU])]),
            ("CPU a GB now", "now", lambda each: [float(each[CPU])]))})


def long_lines(page, found):
    def one_set(column, sets=LONG):
        transport, kind = column.split(", ")
        return lambda row: directions(found.where(set=sets, transport=transport.strip("`"), links=KINDS[kind],
                                                  **line(row)))
    columns = ("`ucx`, plain", "`tcp`, plain", "`ucx`, encrypted", "`tcp`, encrypted")
    page.table("| one-way delay | loss | rate | `ucx`, plain | `tcp`, plain | `ucx`, encrypted",
               {column: one_set(column) for column in columns})

    def bbr(kind):
        return lambda row: found.where(set=["bbr where packets are lost", "bbr 1"], links=kind, **line(row))

    def cubic(row):
        first = row["one-way delay"] == "25 ms" and row["loss"] == "0.1 %" and row["rate"] == "100 Mbit/s"
        return directions(found.where(set="cubic 1" if first else LONG, transport="tcp", links="plain",
                                      **line(row)))
    page.table("| one-way delay | loss | rate | plain, cubic alone", {
        "plain, cubic alone": cubic, "plain": lambda row: directions(bbr("plain")(row))[-2:],
        "encrypted": lambda row: directions(bbr("sealed")(row))[-2:],
        "CPU a GB, plain": lambda row: float(bbr("plain")(row).rows[-1][CPU])})

    def on_free(prefixes):
        def column(title):
            transport, kind = title.split(", ")

            def values(row):
                chosen = found.where(set=lambda name: name.startswith(prefixes),
                                     transport=transport.strip("`"), links=KINDS[kind], **line(row))
                got = directions(chosen)
                return [min(got), max(got)] if " to " in row[title] else statistics.median(got)
            return values
        return column
    first = on_free("xeon long")
    page.table("| one-way delay | loss | rate | `ucx`, plain | `tcp`, plain | `ucx`, encrypted",
               {column: first(column) for column in columns}, 1)
    then = on_free(("xeon far", "xeon near", "xeon ucx far"))
    page.table("| one-way delay | loss | rate | `ucx`, plain | `tcp`, plain | `tcp`, encrypted",
               {column: then(column) for column in ("`ucx`, plain", "`tcp`, plain", "`tcp`, encrypted")})


def free_cores(page, found):
    def three(prefix):
        return lambda row: sorted(found.where(
            set=lambda name: name.startswith(prefix), transport="tcp", links=KINDS[row["links"]],
            rate=[rate(row["rate"]), rate(row["rate"]).replace("g", "G")], traffic=row["traffic"]).all(CPU))
    page.table("| links | rate | traffic", {title: three(prefix) for title, prefix in FREE.items()})
    page.table("| column | rows", {})


def three_sets(rows):
    """Medians, with the least and the most, of each kind of link."""
    keys = ("transport", "sealed", "rate_bits_per_second", "both_ways")
    table = []
    for setting in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        found = rows.where(**dict(zip(keys, setting)))
        table.append([f"`{setting[0]}`", "encrypted" if setting[1] == "True" else "plain",
                      rate_text(float(setting[2])),
                      "both" if setting[3] == "True" else "one way",
                      f"{found.median(THERE):.1f} % ({found.least(THERE):.1f} to {found.most(THERE):.1f})",
                      f"{found.median(CPU):.2f} s ({found.least(CPU):.2f} to {found.most(CPU):.2f})"])
    return table_lines(["transport", "links", "rate", "traffic", "goodput there", "CPU a GB"], table)


def check(page, rows, folder):
    now = folder / "links_now.csv"
    page.generated("three sets", three_sets(read(now)) if now.exists() else None)
    found = rows("links.csv")
    short_lines(page, found)
    long_lines(page, found)
    free_cores(page, found)
    page.given("95.6 % is the most", "The wanted 0.9 s encrypted", "The wanted 0.45 s plain", "longer than 0.5 ms",
               "packets of 1,500 bytes", "every 256 KB", "where 256 KB take", "16 MiB, are the limit",
               "The wanted 95 % are not reached", "at 100 ms without loss", "100 ms with loss stays",
               "1.22 segments", "before 100 ms with loss", "each packet of 1,500 bytes",
               "512 KB ahead of TCP instead of 64 KB",
               "at 1 Gbit/s and 100 ms", "At 1 Gbit/s and 100 ms")
