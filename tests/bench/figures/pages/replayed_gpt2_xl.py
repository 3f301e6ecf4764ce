def check(page, rows, folder):
    page.printed("CODECS ", folder / "printed/planned_gpt2_xl.txt")
