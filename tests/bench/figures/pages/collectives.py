MIB = 1 << 20
OPERATIONS = {"all-to-all": "all_to_all", "all-gather": "all_gather", "reduce-scatter": "reduce_scatter",
              "all-reduce": "all_reduce"}
VARIANTS = {"NCCL again": "native#2", "`zip`": "zip", "sizes first": "zip:exchange=sizes",
            "sizes first (design 1)": "zip:exchange=sizes", "`room=0`": "zip:room=0",
            "`room=0` (design 2)": "zip:room=0", "bounded": "zip:exchange=bounded",
            "`zip:exchange=bounded`": "zip:exchange=bounded", "in pieces of 16 Mi": "zip:piece=16Mi",
            "`taco`": "taco", "`mapped`": "mapped", "`zip` over NCCL": "zip",
            "`zip` over `mapped`": "zip:over=mapped", "`taco` over NCCL": "taco",
            "`taco` over `mapped`": "taco:over=mapped"}
UNITS = {"KiB": 1024, "MiB": MIB}


def size_of(row):
    text = row.get("MiB") or row.get("size") or "16 MiB"
    number, unit = (text.split() + ["MiB"])[:2]
    return int(float(number) * UNITS[unit])


def columns(found, titles, time="NCCL, ms", scale=1000):
    def chosen(row, variant):
        operation = row.get("operation") or row["16 MiB"]
        return found.where(operation=OPERATIONS[operation], bytes=size_of(row), variant=variant)

    def of(title):
        def faster(row):
            return None if row[title].startswith("as ") else chosen(row, VARIANTS[title]).one("faster")
        return faster
    return {time: lambda row: chosen(row, "native").one("us") / scale, **{title: of(title) for title in titles}}


def experts(found, tokens):
    """Rows of so many tokens: the smallest or the largest exchange of a file."""
    sizes = sorted({int(row["bytes"]) for row in found})
    return found.where(bytes=sizes[0] if tokens == "16,384" else sizes[-1])


def check(page, rows, folder):
    host, mapped = rows("collectives_2xh100_host.csv"), rows("collectives_2xh200_mapped.csv")
    page.table("| operation | MiB | NCCL, ms | NCCL again", columns(host, (
        "NCCL again", "`zip`", "sizes first", "`room=0`", "bounded", "in pieces of 16 Mi", "`taco`")))
    page.table("| operation | MiB | NCCL, ms | NCCL again", columns(
        rows("collectives_2xh100_sockets.csv"), ("NCCL again", "`zip`", "bounded", "`taco`")), 1)
    page.table("| operation | MiB | NCCL, ms | `mapped`", columns(mapped, (
        "`mapped`", "`zip` over NCCL", "`zip` over `mapped`", "`taco` over NCCL", "`taco` over `mapped`",
        "NCCL again")))

    def small(text):
        number, unit = text.split()
        return lambda row: mapped.where(operation=OPERATIONS[row["operation"]], variant="mapped",
                                        bytes=int(number) * UNITS[unit]).one("faster")
    page.table("| operation | 4 KiB", {text: small(text) for text in ("4 KiB", "64 KiB", "256 KiB", "1 MiB",
                                                                      "4 MiB")})
    page.table("| operation | size", columns(rows("collectives_2xh200_mapped_graph.csv"), (
        "`mapped`", "`zip` over `mapped`", "`taco` over `mapped`", "NCCL again"), "NCCL, us", 1))
    page.table("| 16 MiB | NCCL, us", columns(rows("collectives_2xh100_graph.csv"), (
        "`zip:exchange=bounded`", "`taco`"), "NCCL, us", 1))

    def zipf(title):
        def values(row):
            chosen = experts(rows("collectives_2xh100_zipf.csv"), row["tokens of a rank"])
            if title == "NCCL, ms":
                return chosen.where(variant="native").one("us") / 1000
            return chosen.where(variant=VARIANTS[title]).one("faster")
        return values
    page.table("| tokens of a rank", {title: zipf(title) for title in (
        "NCCL, ms", "`zip`", "`room=0` (design 2)", "sizes first (design 1)", "NCCL again")})
    routed = rows("collectives_2xh200_mapped_zipf.csv")
    page.says("65,536 tokens: NCCL {} ms, `zip` over it {} times as fast, `mapped` {}, `zip` over `mapped` {}",
              [routed.where(variant="native").one("us") / 1000,
               *(routed.where(variant=name).one("faster") for name in ("zip", "mapped", "zip:over=mapped"))])
    largest = host.where(bytes=512 * MIB)
    shares = [100 * chosen.one("sent_bytes") / chosen.one("tensor_bytes") for chosen in (
        largest.where(operation="all_to_all", variant="zip"),
        largest.where(operation="all_to_all", variant="zip:room=0"),
        largest.where(operation="all_gather", variant="taco"))]
    page.says("`zip` and `bounded` send {} % of the bytes", [shares[0]])
    page.says("and sizes first (design 1) send {} %. `taco` sends {} %.", shares[1:])
    nvlink = rows("collectives_2xh100_nvlink.csv").where(variant="switcher")
    ratios = sorted(nvlink.all("faster"))
    page.says("cells of four operations its median ratio to NCCL was {} at worst", [ratios[0]])
    page.says("{} and {} in two more cells, and {} or more in all others", ratios[1:4])
    page.says("NCCL against itself was {} at worst", [rows("collectives_2xh100_nvlink.csv").where(
        variant="native#2").least("faster")])
    page.says("From 4 MiB on no cell was below {}", [nvlink.where(
        bytes=lambda size: int(size) >= 4 * MIB).least("faster")])
    page.says("up to {} times as fast as NCCL", [mapped.where(variant="mapped").most("faster")])
    page.given("NCCL 2.28.9", "all-gather of 16 KiB", "busiest rank gets 1.15 times the mean",
               "from 64 MiB on", "Up to 64 KiB", "within 2 s", "Pieces of 16 Mi", "From 4 MiB on",
               "asks for 0.97 at least", "replayed 1,000 times")
