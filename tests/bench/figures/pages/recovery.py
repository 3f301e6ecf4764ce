RUNS = ("h100-100mbit", "2cores-100mbit-small", "2cores-100mbit-small-gone",
        "2cores-100mbit-small-coordinator-any-time", "h100-100mbit-coordinator-any-time", "2cores-10mbit")


def check(page, rows, folder):
    kills, members = rows("recovery_kills.csv"), rows("recovery_membership.csv")
    order = iter(RUNS)
    now = {}

    def of(row):
        key = tuple(row.values())
        if key not in now:
            now[key] = kills.where(run=next(order))
        return now[key]
    page.table("| machine | flags | kills", {
        "kills": lambda row: [len(of(row))],
        "kill to first step, median / worst": lambda row: [of(row).median("seconds"),
                                                           of(row).most("seconds")],
        "steps repeated, median / worst": lambda row: [of(row).median("steps_repeated"),
                                                       of(row).most("steps_repeated")]})
    pair = {"kill to the first step of one replica, median / worst": "to_first_step_alone",
            "steps repeated, median / worst": "repeated",
            "start of the worker's new process to the first step of both, median / worst":
                "to_first_step_together",
            "of that nobody trained for, median / worst": "standstill"}
    page.table("| machine | kill to the first step of one replica", {
        title: lambda row, column=column: [members.median(column), members.most(column)]
        for title, column in pair.items()})
    page.copied("| machine, 10 Mbit/s | copies", rows("printed/copy_cost.csv"))
    far = kills.where(run="h100-100mbit-coordinator-any-time").where(test=lambda r: float(r["seconds"]) > 10)
    page.says("the four recoveries of {} to {} s", [far.least("seconds"), far.most("seconds")])
    page.given("do without it for 30 s", "After a kill 2 s pass", "exponents of each 256 KiB")
