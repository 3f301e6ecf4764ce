from figures.sweeps import of_run, speed_table


def check(page, rows, folder):
    found = rows("gpt2_xl_8xh200.csv")
    page.generated("GPT2-XL", speed_table("codecs, forward / backward", of_run(found, "gpt2-xl")))
    nanogpt = found.where(rate_bits_per_second=2e8)
    page.says("the second took {} s. Its lower bound is {} s.",
              [nanogpt.one("step_seconds"), nanogpt.one("bound_seconds")])
    recorded = of_run(rows("gpt2_xl_4xh200.csv"), "gpt2-xl")
    page.says("the same cell has {} tokens/s", [recorded.where(
        forward="tah", backward="fixed:bits=4,rounding=stochastic", rate_bits_per_second=1e9).one(
            "tokens_per_second")])
    page.table("| TAH-Quant's paper", {})
    page.given("Ubuntu 24.04", "torch 2.11.0+cu130", "205 M parameters", "50 ms one way",
               "reference of that benchmark takes 100.5 s")
