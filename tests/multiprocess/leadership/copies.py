"""Faults of the records of a seat: older copies of its folder are put back, a copy runs beside the original, and the disk
loses what it called stored.

A disk whose syncs lie loses what was written since some moment when the machine dies. Here the process is stopped for a
copy of that moment, and after SIGKILL the copy takes the place of what was written.
"""
import shutil
import signal
import time

from trio import GOES_ON, STALLED, other, wait_for

STEPS_LOST = 5  # that the run trains behind a copy, at least


def wait_for_changes(scene):
    at = scene.step()
    wait_for("changes that the copy lacks", lambda: scene.step() > at + STEPS_LOST)


def puts_back(scene, copy, only=None):
    """Returns a harm: the folder of a seat is put back from `copy`, and the seat starts on it."""
    def harm(seat):
        scene.trio.kill(seat)
        scene.trio.put_back(seat, copy, only)
        scene.trio.start_seat(seat)
    return harm


def old_copy(scene):
    """The leader's folder is put back from an older snapshot: the pair does not let it lead."""
    old = scene.leads
    copy = scene.trio.copy_of(old)
    wait_for_changes(scene)
    scene.await_takeover("put back from an older copy", puts_back(scene, copy))
    scene.comes_back(old)


def old_copy_of_one_alone(scene):
    """As old_copy, with a copy from when it led alone: its own record would let it lead without asking anybody."""
    old = scene.leads
    scene.trio.machines.cut_both(old, other(old))
    wait_for(f"{old} to be alone", lambda: len(scene.trio.leadership(old).get("in_sync", [])) == 1)
    copy = scene.trio.copy_of(old)
    scene.trio.machines.heal()
    scene.trio.await_pair()
    wait_for_changes(scene)
    scene.await_takeover("put back from a copy of when it was alone", puts_back(scene, copy))
    scene.comes_back(old)


def lying_disk(scene):
    """The leader's disk loses the newest part of the store alone. Its other files, such as who leads, are newer."""
    old = scene.leads
    copy = scene.trio.copy_of(old)
    wait_for_changes(scene)
    scene.await_takeover("its disk lost changes of the store", puts_back(scene, copy, only="store.db*"))
    scene.comes_back(old)


def lying_disk_of_standby(scene):
    """The standby lacks what it has acknowledged. It gets that again, and then it can lead."""
    standby = scene.follows()
    copy = scene.trio.copy_of(standby)
    wait_for_changes(scene)
    puts_back(scene, copy)(standby)
    scene.expect_no_takeover("the standby's disk lost changes", 3)
    scene.comes_back(standby)
    scene.await_takeover("killed, when the standby had all again", scene.trio.kill)
    scene.comes_back(scene.follows())


def lying_disk_of_standby_alone(scene):
    """The standby lacks what it has acknowledged, and the leader is dead: nobody leads until the leader is back. The
    witness refuses the standby by the number of changes, of which the leader tells it each second."""
    old, standby = scene.leads, scene.follows()
    copy = scene.trio.copy_of(standby)
    time.sleep(3)
    wait_for_changes(scene)
    scene.trio.kill(standby)
    scene.trio.kill(old)
    scene.trio.put_back(standby, copy)
    scene.trio.start_seat(standby)
    end = time.monotonic() + 15
    while time.monotonic() < end:
        assert scene.trio.leadership(standby).get("role") == "standby", "a seat leads that lacks changes"
        time.sleep(0.2)
    began = time.monotonic()
    scene.trio.start_seat(old)
    scene.goes_on("the standby lacks changes and the leader was dead", began)
    scene.comes_back(standby)


def clone_beside(scene):
    """A copy of the leader's folder is started on another machine, beside the original: it serves nobody."""
    old = scene.leads
    copy = scene.trio.copy_of(old)
    term = scene.trio.leadership(old)["term"]
    address = scene.trio.start_clone(old, copy)
    asked, end = 0, time.monotonic() + 20
    while time.monotonic() < end:
        refused = scene.trio.cli("stop", "no-such-run", check=False, address=address, timeout=60)
        assert refused.returncode != 0 and "no run" not in refused.stderr, f"the clone serves: {refused.stderr}"
        asked += 1
    scene.expect_no_takeover(f"a clone beside it, which refused {asked} calls", 1)
    assert scene.trio.leadership(old)["term"] == term, "the clone began a term"
    scene.trio.kill("clone")
    scene.trio.processes.pop("clone")
    shutil.rmtree(scene.trio.folder / "clone")
    scene.trio.await_pair()


def stalled_and_stopped(scene, away_s):
    """The leader's disk does not answer, and then the process stands still; it goes on before the disk does."""
    def harm(seat):
        scene.trio.disk(seat, STALLED)
        time.sleep(1)
        scene.trio.processes[seat].send_signal(signal.SIGSTOP)
    scene.await_takeover("its disk stalls, and it is stopped", harm)
    time.sleep(away_s)
    old = scene.follows()
    scene.trio.processes[old].send_signal(signal.SIGCONT)
    time.sleep(5)
    scene.trio.disk(old, GOES_ON)
    scene.comes_back(old)
