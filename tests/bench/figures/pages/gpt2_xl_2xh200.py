from figures.sweeps import of_bound, of_run, speed_table


def check(page, rows, folder):
    found = rows("gpt2_xl_2xh200.csv")
    page.generated("Qwen2.5-3B", speed_table("Qwen2.5-3B, eight stages", of_run(found, "qwen2-5-3b")))
    xl = of_run(found, "gpt2-xl")
    page.says("one step after one): {} tokens/s, {} % of the bound",
              [xl.one("tokens_per_second"), of_bound(xl.rows[0])])
    page.printed("eager  ", folder / "printed/stage_eager_last_2xh200.txt")
    page.given("Ubuntu 24.04", "torch 2.11.0+cu130", "NCCL 2.28.9", "two round trips and 100 ms")
