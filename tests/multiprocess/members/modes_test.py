"""What daemons and the CLI leave on a machine is their account's alone, from the first byte on.

usage: modes_test.py BIN_DIR

A coordinator, its standby, workers, the CLI and a backup, all started with umask 022, while a run trains and writes checkpoints.
A watcher looks at every new file as it appears. As root, another account tries to read, too.
"""
import os
import pathlib
import socket
import stat
import subprocess
import sys
import tempfile
import threading

from members_test import check, training

NOBODY = 65534


class Watcher:
    """Looks at all files below some folders again and again, and keeps those that others may read."""

    def __init__(self, *folders):
        self.folders, self.open, self.seen = folders, {}, set()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def look(self):
        for folder in self.folders:
            for path in [folder, *folder.rglob("*")]:
                try:
                    mode = path.lstat().st_mode
                except OSError:
                    continue  # gone again
                if stat.S_ISSOCK(mode) or stat.S_ISLNK(mode):
                    continue
                self.seen.add(path)
                if mode & 0o077:
                    self.open.setdefault(path, oct(mode))

    def run(self):
        while not self.ended.is_set():
            self.look()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def readable_by_another_account(*folders):
    """What the account `nobody` can open, where this test may become it."""
    script = ("import os, sys\n"
              f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
              "for path in sys.argv[1:]:\n"
              "    try:\n"
              "        os.listdir(path) if os.path.isdir(path) else open(path, 'rb').close()\n"
              "        print(path)\n"
              "    except OSError:\n"
              "        pass\n")
    paths = [str(path) for folder in folders for path in [folder, *folder.rglob("*")]]
    return subprocess.run([sys.executable, "-c", script, *paths], check=True, capture_output=True, text=True).stdout


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="longhaul-modes-") as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        training.text_for_training(folder)
        state = [folder / name for name in ("coordinator", "standby", "worker1", "worker2", "home", "saved", "restored")]
        for path in state[:3]:
            path.mkdir(mode=0o755)  # as an earlier version has left them
        with Watcher(*state[1:]) as watcher, training.Cluster(programs, folder, workers=2) as cluster:
            # Folders that were there are made private when the daemon has begun to use them.
            training.wait_for("a private folder", lambda: state[0].stat().st_mode & 0o077 == 0)
            standby = ["--listen", f"127.0.0.1:{free_port()}", "--standby", cluster.address]
            cluster.start("standby", "longhaul-coordinator", *standby)
            training.wait_for("the standby", lambda: "has all that" in (folder / "standby.log").read_text())
            run = cluster.cli("submit", cluster.write_run("tiny", steps=100_000, stages=2)).stdout.split()[0]
            training.wait_for("a checkpoint", lambda: cluster.checkpoint_step(run) >= 10)
            training.wait_for("the standby's blobs", lambda: any((folder / "standby/blobs").iterdir()))
            cluster.end(run)
            cluster.cli("export", run, "--out", folder / "home/exported")
            coordinator = [programs / "longhaul-coordinator"]
            subprocess.run([*coordinator, "backup", folder / "saved", "--blobs", "--state-dir", folder / "coordinator"],
                           check=True, stdout=subprocess.DEVNULL)
            subprocess.run([*coordinator, "restore", folder / "saved", "--state-dir", folder / "restored"], check=True,
                           stdout=subprocess.DEVNULL)
            watcher.folders = state
            watcher.look()
            # Folders that this test made are open until their daemon begins.
            opened = {str(path.relative_to(folder)): mode for path, mode in watcher.open.items() if path not in state[:3]}
            check(not opened, "others may read", opened)
            names = {path.name for path in watcher.seen}
            for name in ("store.db", "authority.pem", "token", "identity.pem", "standby.pem", "leadership.json"):
                check(name in names or (folder / name).exists(), "nothing was seen of", name)
            check((folder / "token").stat().st_mode & 0o077 == 0, "the token's file is open")
            if os.geteuid() == 0:
                readable = readable_by_another_account(*state, folder / "token")
                check(not readable, "another account reads", readable)
                print("ok: the account nobody reads nothing", flush=True)
    print(f"ok: {len(watcher.seen)} files and folders were private whenever they were looked at", flush=True)


if __name__ == "__main__":
    os.umask(0o022)
    main()
