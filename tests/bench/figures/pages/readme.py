def check(page, rows, folder):
    page.table("| page | what", {})
