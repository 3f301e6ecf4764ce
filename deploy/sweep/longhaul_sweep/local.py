"""A coordinator and workers on this machine, joined by its loopback interface: no root, and nothing shapes the links."""
import json
import os
import pathlib
import shutil
import subprocess
import time

from .cluster import Cluster, Failed, call, start

START_S = 60


class LocalCluster(Cluster):
    """As Cluster, for points without a rate. `devices`: each worker's. `folder` has everything that the cluster writes, and goes
    with it."""

    def __init__(self, program, folder, devices, flags=()):
        super().__init__(program, "", len(devices))
        self.programs, self.folder = pathlib.Path(program).resolve().parent, pathlib.Path(folder).resolve()
        self.worker_flags = [self._device(device, devices) + list(flags) for device in devices]
        self.daemons = {}
        # Members' certificates that the CLI keeps are this cluster's.
        self.environment = {**os.environ, "LONGHAUL_HOME": str(self.folder / "home")}

    @staticmethod
    def _device(device, devices):
        """The flags for it. Workers that share a GPU plan with their parts of its memory."""
        sharing = devices.count(device)
        share = ["--memory-share", f"{1 / sharing:.3f}"] if device != "cpu" and sharing > 1 else []
        return ["--device", device, *share]

    def up(self):
        self.down()
        self.folder.mkdir(parents=True)
        try:
            token, state = self.folder / "coordinator/token", ["--state-dir", self.folder / "coordinator"]
            call([self.programs / "longhaul-coordinator", "init", *state], plain=True)
            self._start("coordinator", "--listen", "127.0.0.1:0", *state)
            address = self._address()
            for number, flags in enumerate(self.worker_flags, 1):
                self._start(f"worker{number}", "--coordinator", address, "--token-file", token, "--state-dir",
                            self.folder / f"worker{number}", "--name", f"worker{number}", "--data-address", "127.0.0.1:0",
                            *flags)
            self.access = ["--coordinator", address, "--token-file", str(token)]
            self._await("its workers", lambda: self._connected() == self.workers)
        except BaseException:
            self.down()
            raise

    def down(self):
        self.access = []
        for daemon in self.daemons.values():
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
            daemon.stdout.close()
        self.daemons = {}
        shutil.rmtree(self.folder, ignore_errors=True)

    def set_links(self, link, worker="all"):
        """All points have the same links."""

    def state(self):
        return {"workers": []}  # nothing counts their bytes

    def pids(self):
        return [daemon.pid for daemon in self.daemons.values()]

    def _start(self, name, *flags):
        program = self.programs / f"longhaul-{name.rstrip('0123456789')}"
        with (self.folder / f"{name}.log").open("w", encoding="utf-8") as log:
            self.daemons[name] = start([program, *flags], stderr=log)

    def _address(self):
        """Where the coordinator listens, as it says itself."""
        line = self.daemons["coordinator"].stdout.readline()
        if not line.startswith("listening on "):
            raise Failed(f"the coordinator did not start: {self._log('coordinator')}")
        return line.split()[-1]

    def _connected(self):
        workers = json.loads(self.cli("workers", "--json", plain=True))["workers"]
        return sum(worker["connected"] for worker in workers)

    def _await(self, what, condition):
        end = time.monotonic() + START_S
        while not condition():
            for name, daemon in self.daemons.items():
                if daemon.poll() is not None:
                    raise Failed(f"{name} ended with code {daemon.returncode}: {self._log(name)}")
            if time.monotonic() > end:
                raise Failed(f"waited {START_S} s in vain for {what}")
            time.sleep(0.05)

    def _log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace").strip()[-500:]
