def check(page, rows, folder):
    page.copied("| part | what", rows("printed/full_run.csv"))
