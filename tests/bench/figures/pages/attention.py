def check(page, rows, folder):
    page.copied("| context | attention", rows("printed/attention_kinds.csv"))
    page.copied("| layers | measured, MiB", rows("printed/attention_memory.csv"))
    page.given("CUDA 13.0", "LibTorch 2.11.0")
