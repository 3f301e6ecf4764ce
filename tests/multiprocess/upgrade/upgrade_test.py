"""Today's programs open the state of every released version since 0.2.0: the store, checkpoints, the record of who leads,
and the folders of witness and workers.

usage: upgrade_test.py BIN_DIR [ARCHIVE...]

Runs, steps, members and checkpoints are there as they were; a run goes on from its checkpoint with the losses of the run
that was never stopped; a run that is done is exported; a standby takes over. kept_state.py makes an archive.
"""
import json
import pathlib
import sys
import tarfile
import tempfile
import time

from kept_state import STEPS, STOPPED_AFTER, Installation, clock_of, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
from nearness import expect_near  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
# Another kind of CPU rounds the steps after the resume in another way.
ROUNDING = 1e-3
AFTER_S = 60  # the clock goes on from so long after the archive was made


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


def expect_records(kept, golden):
    runs = {row["run_id"]: row["state"] for row in json.loads(kept.cli("ps", "--json").stdout)["runs"]}
    check(runs == {golden["done"]: "done", golden["stopped"]: "done"}, runs)
    for name in ("done", "stopped"):
        check(kept.losses(golden[name]) == golden[f"losses_{name}"], name, kept.losses(golden[name]))
    members = json.loads(kept.cli("members", "--json").stdout)
    roles = sorted(row["role"] for row in (members["members"] if isinstance(members, dict) else members))
    # Nobody has joined anew but the user, whose certificate is kept by the coordinator's address.
    check(roles.count("worker") == 2 and roles.count("witness") == 1, roles)
    for name in ("done", "stopped"):
        said = kept.cli("checkpoints", golden[name], "--verify", "--json").stdout
        sets = json.loads(said).get("checkpoints", [])
        check(sets and int(sets[0]["step"]) == (STEPS if name == "done" else STOPPED_AFTER), said)
        check("damage" not in said and "missing" not in said, said)
    print(f"ok: runs, {STEPS + STOPPED_AFTER} steps, members and checkpoints are as they were", flush=True)


def expect_goes_on(kept, golden):
    run = kept.resume_kept("stopped", STEPS)
    check(run == golden["stopped"], run, "is another run than", golden["stopped"])
    losses = kept.losses(run)
    check(losses[:STOPPED_AFTER] == golden["losses_stopped"], losses)
    expect_near("goes on from its checkpoint, against the run that was never stopped", losses,
                golden["losses_unbroken"], bound=ROUNDING)


def expect_takeover(kept, golden):
    kept.await_pair()
    leads = kept.leader()
    check(kept.leadership(leads)["term"] >= max(golden["terms"].values()), kept.leadership(leads), golden["terms"])
    kept.kill(leads)
    other = "two" if leads == "one" else "one"
    wait_for(f"{other} to lead", lambda: kept.leader() == other and kept.leadership(other)["term"] >
             kept.leadership(leads)["term"])
    wait_for("an answer", lambda: kept.cli("ps", check=False, address=kept.addresses[other]).returncode == 0)
    print(f"ok: {other} takes over from {leads}", flush=True)


def open_archive(programs, archive):
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="longhaul-upgrade-") as folder:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        golden = json.loads(pathlib.Path(folder, "golden.json").read_text())
        print(f"{archive.name}: made by {golden['version']}", flush=True)
        with clock_of(programs, folder, golden["made_unix_s"] + AFTER_S), Installation(programs, folder) as kept:
            expect_records(kept, golden)
            expect_goes_on(kept, golden)
            exported = pathlib.Path(folder, "exported")
            kept.cli("export", golden["done"], "--out", exported)
            check(list(exported.glob("*.safetensors")), list(exported.iterdir()))
            print("ok: the run that was done is exported", flush=True)
            expect_takeover(kept, golden)
    print(f"{archive.name}: opened in {time.monotonic() - began:.1f} s", flush=True)


def main():
    if len(sys.argv) < 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    archives = [pathlib.Path(name) for name in sys.argv[2:]] or sorted(HERE.glob("state/*.tar.xz"))
    check(any(path.name.startswith("0.2.0") for path in archives) or sys.argv[2:], "the archive of 0.2.0 is gone:", archives)
    for archive in archives:
        open_archive(sys.argv[1], archive)


if __name__ == "__main__":
    main()
