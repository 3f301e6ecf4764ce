from figures.sweeps import of_bound, of_run, speed_table


def check(page, rows, folder):
    found, others = rows("gpt2_xl_4xh200.csv"), rows("gpt2_xl_4xh200_other_plans.csv")
    page.generated("GPT2-XL", speed_table("GPT2-XL, eight stages", of_run(found, "gpt2-xl")))
    page.generated("Qwen2.5-3B", speed_table("Qwen2.5-3B, eight stages", of_run(found, "qwen2-5-3b")))
    first, four = others.rows
    page.says("({} tokens/s, {} %) was planned", [float(first["tokens_per_second"]), of_bound(first)])
    page.says("four stages, a GPU each, it has {} tokens/s ({} %)",
              [float(four["tokens_per_second"]), of_bound(four)])
    page.says("shares are above {} %", [100])
    page.printed("eager  ", folder / "printed/stage_eager_4xh200.txt")
    page.printed("codecs   stage", folder / "printed/overhead_4xh200.txt")
    page.table("| TAH-Quant's paper", {})
    page.given("Ubuntu 24.04", "torch 2.11.0+cu130")
