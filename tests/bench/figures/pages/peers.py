import statistics

from figures.page import table_lines
from figures.rows import read

FILES = {"four GPUs": "peers_4_gpus.csv", "eight GPUs": "peers_8_gpus.csv", "CPUs": "peers_cpu.csv"}


def quarters(values):
    """Ends of the middle half."""
    return statistics.quantiles(values, n=4, method="inclusive")[::2] if len(values) > 1 else values * 2


def lines(rows):
    """A row for each system and setting, beside the fastest of torch's at its rate."""
    settings = list(dict.fromkeys((row["rate"], row["who"], row["setting"]) for row in rows))
    of = {setting: rows.where(rate=setting[0], who=setting[1], setting=setting[2]) for setting in settings}
    table = []
    for rate, who, setting in settings:
        seconds = of[(rate, who, setting)]
        best = min((found.median("seconds") for (at, by, _), found in of.items() if (at, by) == (rate, "torch")),
                   default=None)
        low, high = quarters(seconds.all("seconds"))
        median = seconds.median("seconds")
        table.append([rate, who, setting, f"{median:.3f} ({low:.3f} to {high:.3f})",
                      f"{seconds.median('tokens_a_step') / median:,.0f}", seconds.rows[0]["busiest_uplink_mb"],
                      f"{best / median:.2f}" if best else "", f"{len(seconds)}"])
    return table_lines(["rate", "who", "setting", "seconds a step, median and middle half", "tokens/s",
                        "MB a step on the busiest uplink", "speed to the best of torch", "steps"], table)


def check(page, rows, folder):
    page.table("| who | what its stages send", {})
    for name, file in FILES.items():
        page.generated(name, lines(read(folder / file)) if (folder / file).exists() else None)
