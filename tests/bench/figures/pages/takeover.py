FAULTS = {"killed": "killed", "killed, and its network link is down": "machine gone",
          "paused for 60 s as a virtual machine: no network, monotonic clocks stand still":
              "its machine is paused",
          "its disk takes no writes for 20 s": "its disk stalls",
          "its disk takes no writes, then `SIGSTOP` for 60 s": "its disk stalls, and it is stopped",
          "cut from standby, witness and workers": "cut from standby, witness and workers",
          "is heard, and hears nobody": "hears nobody",
          "killed, and an older copy of its folder is put back": "put back from an older copy",
          "the same, with a copy from when it led alone": "put back from a copy of when it was alone",
          "killed, and its disk lost the newest changes of the store, which it had called synced":
              "its disk lost changes of the store",
          "killed, after the standby's disk had lost changes": "killed, when the standby had all again",
          "killed, behind a witness whose file was put back":
              "killed, behind a witness whose file was put back",
          "killed, with a witness that replaced one whose folder was lost": "killed, with a new witness"}
GROUPS = {"killed, stopped": "all of killed stopped", "machine": "all of machine_gone",
          "disk": "all of disk_stalled", "copies": "all of old_copy", "network": "all of cut_from_standby",
          "away from the network": "all of cut_from_all", "witness": "all of witness_killed"}


def fault_of(found, row):
    name = row["fault of the leader"]
    if name.startswith("`SIGSTOP`"):  # for a moment, then for 60 s: the rows have one name
        return found.where(fault="stopped").rows["60 s" in name]
    return next(iter(found.where(fault=FAULTS[name])))


def check(page, rows, folder):
    kills, found = rows("takeover.csv"), rows("takeover_faults.csv")
    page.table("| kill | first answer", {
        "first answer": lambda row: kills.where(kill=row["kill"]).one("answers_s"),
        "first new step": lambda row: kills.where(kill=row["kill"]).one("new_step_s"),
        "steps without a record": lambda row: kills.where(kill=row["kill"]).one("steps_missing")})
    page.table("| fault of the leader", {
        title: lambda row, column=column: float(fault_of(found, row)[column])
        for title, column in (("leads", "leads_s"), ("answers", "answers_s"), ("new step", "new_step_s"),
                              ("in sync", "in_sync_s"))})

    def group(column):
        return lambda row: found.where(fault=lambda name: name.startswith(GROUPS[row["group"]])).one(column)
    page.table("| group | calls", {"calls that were answered": group("acknowledged"),
                                   "changes of who answers": group("turns"),
                                   "takeovers": group("takeovers"), "steps in a row": group("steps")})
    page.copied("| restored | attempt", rows("printed/backups.csv"))
    alone = found.where(fault="the standby lacks changes and the leader was dead")
    page.says("The leader goes on {} s after its start", [alone.one("answers_s")])
    page.given("at most 10 s from the kill", "waits for 5 s of silence", "paused for 60 s", "of 12 to 15",
               "Linux 6.18")
