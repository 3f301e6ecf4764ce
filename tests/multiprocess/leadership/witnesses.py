"""Faults of the witness: it is killed, loses its folder, or has an older file put back."""
import shutil
import signal
import time

from copies import wait_for_changes
from trio import wait_for


def witness_killed(scene):
    scene.trio.kill("witness")
    scene.expect_no_takeover("the witness is killed", 8)
    scene.trio.start_witness()
    scene.trio.await_pair()


def witness_put_back(scene):
    """Its file is of the term before. It learns who leads from the leader, and elects nobody else."""
    copy = scene.trio.copy_of("witness")
    scene.await_takeover("killed", scene.trio.kill)
    scene.comes_back(scene.follows())
    newer = scene.trio.witness_record()
    scene.trio.kill("witness")
    scene.trio.put_back("witness", copy)
    assert scene.trio.witness_record()["term"] < newer["term"]
    scene.trio.start_witness()
    scene.expect_no_takeover("the witness's file was put back", 8)
    wait_for("the witness to know who leads", lambda: scene.trio.witness_record()["term"] >= newer["term"])
    scene.trio.await_pair()
    scene.await_takeover("killed, behind a witness whose file was put back", scene.trio.kill)
    scene.comes_back(scene.follows())


def witness_wiped(scene):
    """Another witness in its place counts for nothing, so nobody takes over, until an admin has revoked the old one."""
    trio, old = scene.trio, scene.leads
    trio.kill("witness")
    shutil.rmtree(trio.folder / "witness")
    trio.start_witness(anew=True)
    scene.expect_no_takeover("the witness is wiped", 5)
    trio.processes[old].send_signal(signal.SIGSTOP)
    end = time.monotonic() + 12
    while time.monotonic() < end:
        assert trio.leadership(scene.follows()).get("role") == "standby", "a witness elected that does not count"
        time.sleep(0.2)
    began = time.monotonic()
    trio.processes[old].send_signal(signal.SIGCONT)
    scene.goes_on("nobody was elected without the witness", began)
    trio.await_pair()
    first = trio.first_witness()
    trio.cli("members", "revoke", first)
    wait_for("the new witness to count", lambda: trio.witness_record().get("in_sync"))
    wait_for_changes(scene)  # a standby knows whom it may be elected by when it has applied that change
    trio.await_pair()
    scene.await_takeover("killed, with a new witness", trio.kill)
    scene.comes_back(scene.follows())
