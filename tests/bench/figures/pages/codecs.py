import re

from figures.page import table_lines
from figures.rows import read

SPEEDS = {"codecs on a GPU": "codecs/speed_gpu.csv", "codecs on a core": "codecs/speed_cpu.csv"}


def check(page, rows, folder):
    for header, name in (("| codec | bits/element", "codec_errors"), ("| variant | normal", "codec_ablation"),
                         ("| codec | encoded", "codec_speed_cpu"),
                         ("| (40, 1024, 1600) of bf16 | encode", "codec_speed_h200"),
                         ("| other tensors", "codec_speed_h200_others"),
                         ("| codec | bf16 | fp32", "codec_stochastic_h100"),
                         ("| 64 Mi elements of bf16", "codec_zip_taco_h100")):
        page.copied(header, rows(f"printed/{name}.csv"))
    for name, file in SPEEDS.items():
        page.generated(name, speeds(read(folder / file)) if (folder / file).exists() else None)
    output = (folder / "codecs/dither_h200.txt").read_text(encoding="utf-8")

    def of(row, pattern):
        bits = re.escape(row[TITLE].strip("`"))
        return float(re.search(rf"{bits},block=128, 40 x 1024 x 1600 of bf16, {pattern}", output).group(1))
    page.table(f"| {TITLE} | bits an element", {
        "bits an element": lambda row: of(row, r"([\d.]+) bits"),
        "encode": lambda row: of(row, r".*\nencode +([\d.]+) us"),
        "decode": lambda row: of(row, r".*\nencode.*\ndecode +([\d.]+) us")})


def speeds(rows):
    """Medians of the repeats, with the share of a copy's rate."""
    keys = ("codec", "dtype", "data", "ids", "samples")
    table = []
    for setting in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        found = rows.where(**dict(zip(keys, setting)))
        unit = found.rows[0]["unit"]
        graph = f"{found.median('both_in_graph'):.1f} {unit}" if found.rows[0]["both_in_graph"] else ""
        table.append([f"`{setting[0]}`", *setting[1:], f"{found.median('bits_per_element'):.2f}",
                      *(f"{found.median(way):.1f} {unit} ({found.least(way):.1f} to {found.most(way):.1f}), "
                        f"{100 * found.median(way + '_of_copy'):.0f} %" for way in ("encode", "decode")), graph])
    return table_lines([*keys, "bits an element", "encode, of a copy", "decode, of a copy", "both in a graph"], table)


TITLE = "(40, 1024, 1600) of bf16"
