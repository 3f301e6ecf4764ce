WHAT = {"scrape of the coordinator, median of 20": "scrape of the coordinator, median",
        "the same, the slowest": "scrape of the coordinator, 99 % of 20",
        "scrape of a worker, median of 1,280": "scrape of the worker, median",
        "the same, 99 %": "scrape of the worker, 99 % of 1280",
        "page of the coordinator": "page of the coordinator, largest",
        "page of a worker": "page of the worker, largest",
        "threads that serve metrics, nobody scrapes, busiest daemon of 65":
            "threads that serve metrics, nobody scrapes, busiest daemon",
        "the same, all are scraped each 15 s": "the same, all are scraped each 15 s"}


def check(page, rows, folder):
    found = rows("metrics.csv")
    page.table("| what | figure", {"figure": lambda row: found.where(what=WHAT[row["what"]]).one("value")})
    page.given("load 3.6 at the start")
