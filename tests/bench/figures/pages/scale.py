WHAT = {"a tick (18 events)": "tick", "`longhaul ps`": "ps", "`longhaul workers`": "workers",
        "`longhaul status RUN`": "status", "a hello, while workers come for the first time": "hello",
        "a hello, after the coordinator was started anew": "rejoin",
        "all 1,000 of them, with the answers that they cause": "rejoin",
        "a tick": "tick", "`longhaul ps --json`, which lists all": "ps all",
        "start: the store is read by one thread": "load",
        "start: the store is read by two threads, CPU of one": "load",
        "start: the state machine is made": "restart"}


def check(page, rows, folder):
    found, fleet = rows("scale.csv"), rows("scale_fleet.csv")

    def row_of(version, what, ended):
        return found.where(version=version, what=what, ended=ended)

    def state_machine(version):
        def values(row):
            chosen = row_of(version, WHAT[row[""]], 1000)
            if row[""].startswith("all 1,000"):
                return chosen.one("all_s")
            return [chosen.one("p50_ms"), chosen.one("p99_ms")]
        return values
    page.table("| | before: median, 99 % | after", {
        "before: median, 99 %": state_machine("before"), "after: median, 99 %": state_machine("after")})

    def lists(ended):
        def values(row):
            what = row[""]
            if what.startswith("memory"):
                return None
            version = "lists-threads" if "two threads" in what else "lists"
            chosen = row_of(version, WHAT[what], ended)
            if what.startswith("start"):
                return chosen.one("p50_ms") / 1000
            return [chosen.one("p50_ms"), chosen.one("p99_ms")]
        return values
    page.table("| | before, 1,000 ended", {"1,000 ended": lists(1000), "9,900 ended": lists(9900)})
    page.says("Without ended runs a tick takes {} ms (before: {}), and `ps` {} ms ({})", [
        row_of(version, what, 0).one("p50_ms") for what in ("tick", "ps") for version in ("after", "before")])
    tick = {version: row_of(version, "tick", 1000) for version in ("before", "after")}
    page.says("All ticks together take {} % of a core, and took {} %", [
        100 * tick[version].one("all_s") / (tick[version].one("times") * TICK_S)
        for version in ("after", "before")])
    page.says("go into a real store: {} s of CPU for 10 s", [row_of("lists", "store", 9900).one("all_s")])
    page.table("| kill | the port is back", {
        title: lambda row, column=column: fleet.where(kill=row["kill"]).one(column)
        for title, column in (("the port is back", "port_s"), ("all workers are back", "all_welcome_s"),
                              ("CPU of the coordinator", "coordinator_cpu_s"),
                              ("CPU of the workers' side", "workers_cpu_s"))})
    page.table("| what | before | now |", {})
    page.given("CPU for 10 s", "a step and a heartbeat each second", "in ticks of 10 ms", "The target is 10 s",
               "Linux 6.18")


TICK_S = 0.01
