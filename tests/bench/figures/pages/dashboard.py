def check(page, rows, folder):
    found = rows("dashboard.csv")

    def of(column, scale=1):
        return lambda row: found.where(repetition=row["repetition"]).one(column) * scale
    page.table("| repetition | first text", {
        "first text": of("first_contentful_paint_ms"), "page drawn": of("drawn_ms"),
        "a step is on the page, median and most": lambda row: [of("behind_median_s")(row),
                                                               of("behind_most_s")(row)],
        "longest task at 20 steps/s": lambda row: [50] if of("longest_task_ms")(row) == 0 else None,
        "list of workers": of("workers_view_s"), "load": of("load")})
    page.says("drawn after {} ms, a step {} s behind", [found.median("drawn_ms"),
                                                        found.median("behind_median_s")])
    page.given("from 50 ms on")
