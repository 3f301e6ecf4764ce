REGIONS = {"16": "four regions", "64": "ten regions"}
STEP, FASTER, FIND = "step seconds", "times faster than names", "seconds to find"
ONE_PIPELINE = {"names": "order of names", "the first by name": "order of names", "placement": "placement",
                "the same as the whole plan, with depths and explanation": "the whole plan",
                "the same as the whole plan, in another moment": "the whole plan",
                "by hand: all of north, west, east, south, with even layers": "by hand",
                "the best of five searches with ten times the budget": "best of 5",
                "1,000 descents from random chains": "1000 random restarts",
                "30,255 of them, for 20 times as long as placement took": "random restarts for"}


def check(page, rows, folder):
    found, steps = rows("placement.csv"), rows("placement_steps.csv")

    def begins(case, replicas, order):
        return found.where(case=case, replicas=replicas, order=lambda text: text.startswith(order))

    def one_pipeline(case):
        def of(row):
            chosen = begins(case, 1, ONE_PIPELINE[row["order"]])
            return chosen.rows[0]  # "placement" alone: the plan of one pipeline is the first

        def step(row):
            chosen, numbers = of(row), [float(of(row)[STEP])]
            return numbers + [float(chosen[FASTER])] if "times faster" in row["step"] else numbers
        return {"step": step, "seconds to find": lambda row: float(of(row)[FIND])}
    page.table("| order | step | seconds to find |", one_pipeline("four regions"))
    page.table("| order | step | seconds to find |", one_pipeline("ten regions"), 1)

    def replicas(order, *columns):
        def values(row):
            count = row["replicas x stages"].split(" x ")[0]
            chosen = begins(REGIONS[row["workers"]], count, order).where(order=lambda text: (
                "chosen" not in text and "exchange" not in text)).rows[0]
            numbers = [float(chosen[column]) for column in columns]
            return numbers + [20] if order.startswith("random") else numbers
        return values
    page.table("| workers | replicas x stages | order of names", {
        "order of names": replicas("order of names", STEP),
        "placement": replicas("placement", STEP, FASTER), "seconds to find": replicas("placement", FIND),
        "of the whole plan": replicas("the whole plan", FIND), "by hand": replicas("by hand", STEP),
        "random restarts": replicas("random restarts for", STEP),
        "searching ten times as long": replicas("best of 1", STEP)})

    def number(row):
        count, stages = row["replicas x stages"].split(",")[0].split(" x ")
        chosen = found.where(case=REGIONS[row["workers"]], replicas=count, stages=stages,
                             order=["chosen", "not chosen"])
        return chosen.one(STEP) if chosen.rows[0][STEP] else None
    page.table("| workers | replicas x stages | step |", {"step": number})
    page.says("The choice takes {} s for 16 workers and {} s for 64", [
        found.where(case=case, order="chosen").one(FIND) for case in REGIONS.values()])

    def exchange(order, ring):
        def values(row):
            count = row["replicas x stages"].split(" x ")[0]
            chosen = found.where(case=REGIONS[row["workers"]], replicas=count, order=order)
            return float(chosen.rows[0][""].split()[0]) if ring else chosen.one(STEP)
        return values
    names = "exchange in the order of names"
    page.table("| workers | replicas x stages | as placed: straight", {
        "as placed: straight": exchange("exchange", False), "along the best ring": exchange("exchange", True),
        "in the order of names: straight": exchange(names, False),
        "in the order of names: along the best ring": exchange(names, True)})
    for header, name in (("| run | predicted | measured, median", "placement_errors"),
                         ("| run | who is near", "placement_errors_replicas")):
        page.copied(header, rows(f"printed/{name}.csv"))
    page.copied("| order | crossings of regions | predicted | measured |",
                rows("printed/placement_steps_two_cores.csv"), 1)

    def measured(send_order):
        def of(row):
            return steps.where(send_order=send_order,
                               placement="names" if row["order"] == "names" else "auto")

        def step(row):
            names = steps.where(send_order=send_order, placement="names").one("step_s")
            return [of(row).one("step_s")] + ([names / of(row).one("step_s")] if "times" in row["measured"]
                                              else [])
        return {"crossings of regions": lambda row: of(row).one("crossings"),
                "predicted": lambda row: of(row).one("predicted_s"), "measured": step,
                "measured over predicted": lambda row: of(row).one("step_over_predicted")}
    page.table("| order | crossings of regions | predicted | measured | measured over", measured("auto"))
    as_ready = measured("as-ready")
    del as_ready["crossings of regions"]
    page.table("| order | predicted | measured | measured over", as_ready)
    page.says("The simulation at the top of this page has {} s for the order of names", [
        found.where(case="four regions", replicas=1, order="order of names").one(STEP)])
    page.given("200 Mbit/s and 10 ms", "40 Mbit/s and 25 ms", "20 Mbit/s and 20 ms", "median error of 5 %",
               "worst one of 10 %", "within 10 %", "target of 10 %")
