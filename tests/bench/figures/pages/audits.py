def check(page, rows, folder):
    found = rows("audits.csv")
    bound = found.all("bound_95")[0]

    def of(row):
        return found.where(attack=row["attack"].strip("`"))

    def steps(row):
        return of(row).all("named_by_audit_of_step")

    def named(row, right):
        return sum((one["named"] == one["liar"]) == right for one in of(row).rows)
    page.table("| attack | trials", {
        "trials": lambda row: len(steps(row)),
        "the liar was named": lambda row: named(row, True),
        "somebody else": lambda row: named(row, False),
        "after step 592": lambda row: sum(step > bound for step in steps(row)),
        "step of the audit, median": lambda row: of(row).median("named_by_audit_of_step"),
        "latest": lambda row: max(steps(row))})
    page.says("window that ends by step {}", [bound])
    every = found.all("named_by_audit_of_step")
    page.says("{} of {} trials took longer", [sum(step > bound for step in every), len(every)])
    page.given("probability of 95 %", "The 95 %", "every 10 steps", "begins at step 3", "1.5 times", "cut off after 230 s",
               "10,000 honest steps", "after step 592")
