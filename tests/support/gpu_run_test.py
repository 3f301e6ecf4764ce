"""gpu_run.py deals its jobs over one, two and four GPUs, and what fails or is late fails the whole. No GPU is needed: the
programs are scripts, and torch counts what a variable says."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

RUNNER = pathlib.Path(__file__).resolve().parents[1] / "gpu_run.py"
sys.path.insert(0, str(RUNNER.parent))
import gpu_run  # noqa: E402

PROGRAMS = ["worker_gpu_test", "stage_gpu_test", gpu_run.GROUPS, gpu_run.COLLECTIVES]
# What a program saw is in the folder `seen`.
PROGRAM = """#!/bin/sh
echo "$CUDA_VISIBLE_DEVICES $GTEST_SHARD_INDEX $NCCL_P2P_DISABLE $LONGHAUL_REQUIRE_GPU $*" >>"$SEEN/$(basename "$0")"
echo "[  PASSED  ] 3 tests."
{more}
"""


class Bundle:
    def __init__(self, folder, **more):
        self.folder = pathlib.Path(folder)
        self.seen = self.folder / "seen"
        for name in ("bin", "lib", "seen", "python/torch", gpu_run.TRAINING, pathlib.PurePath(gpu_run.OPS_TEST).parent):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "gpu_tests.txt").write_text("\n".join(PROGRAMS) + "\n")
        for name in PROGRAMS:
            (self.folder / "bin" / name).write_text(PROGRAM.format(more=more.get(name, "")))
            (self.folder / "bin" / name).chmod(0o755)
        script = "import os, pathlib, sys\nname = pathlib.Path(sys.argv[0]).stem + '_' + sys.argv[-1].rpartition('/')[2]\n" \
                 "pathlib.Path(os.environ['SEEN'], name).write_text(os.environ['CUDA_VISIBLE_DEVICES'] + ' ' + " \
                 "os.environ.get('LONGHAUL_TEST_GPUS', '') + '\\n')\n"
        for path in [gpu_run.OPS_TEST, *(f"{gpu_run.TRAINING}/{run.split()[0]}" for runs in gpu_run.RUNS.values()
                                         for run in runs)]:
            (self.folder / path).write_text(script)
        (self.folder / "python/torch/__init__.py").write_text(
            "import os\nclass cuda:\n    device_count = staticmethod(lambda: int(os.environ['COUNT']))\n")

    def run(self, count, *flags):
        environment = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
        return subprocess.run([sys.executable, "-B", RUNNER, self.folder, *flags], capture_output=True, text=True,
                              check=False, env={**environment, "SEEN": str(self.seen), "COUNT": str(count),
                                                "PYTHONPATH": str(self.folder / "python")})

    def calls(self, name):
        return sorted((self.seen / name).read_text().splitlines())


class GpuRun(unittest.TestCase):
    def bundle(self, **more):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return Bundle(folder.name, **more)

    def test_one_gpu(self):
        bundle = self.bundle()
        done = bundle.run(1, "--out", bundle.folder / "out")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(bundle.calls("worker_gpu_test"), ["0   1 "])
        self.assertEqual(bundle.calls(gpu_run.COLLECTIVES), ["0   1 "])
        self.assertFalse((bundle.seen / gpu_run.GROUPS).exists())
        self.assertIn("group_gpu_test on 4 GPUs", done.stdout)
        self.assertIn("not run: there are 1", done.stdout)
        self.assertRegex((bundle.folder / "out/gpu_run.txt").read_text(), r"7 passed, 0 failed on 1 GPU")
        self.assertRegex(done.stdout, r"stage_gpu_test on 1 GPU +passed +3 tests")

    def test_four_gpus(self):
        bundle = self.bundle()
        done = bundle.run(4)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        groups = bundle.calls(gpu_run.GROUPS)
        self.assertEqual([len(call.split()[0].split(",")) for call in groups].count(4), gpu_run.SHARDS, groups)
        without_links = [call for call in groups if re.match(r"\S+ \d 1 1 ", call)]
        self.assertEqual(len(without_links), gpu_run.SHARDS, groups)
        shards = bundle.calls(gpu_run.COLLECTIVES)
        for gpus, wanted in ((2, "*_2"), (4, "*_3:*_4")):
            own = [call for call in shards if call.count(",") == gpus - 1 and wanted in call]
            self.assertEqual({call.split()[1] for call in own}, {"0", "1", "2", "3"}, shards)
            self.assertEqual(len({call.split()[0] for call in own}), 1, shards)
        self.assertRegex(bundle.calls("group_test_parity")[0], r"^\d,\d 2$")
        self.assertRegex(bundle.calls("slices_test_losses")[0], r"^\d 1$")
        self.assertNotIn("not run", done.stdout)

    def test_a_gpu_is_shared_but_by_those_that_fill_it(self):
        machine = gpu_run.Machine(["0", "1", "2"], 0, None)
        alone, two, one = (gpu_run.Job("", gpus, [], shares=shares) for gpus, shares in ((1, gpu_run.SHARES), (2, 1), (1, 1)))
        machine.free = {"0": 1, "1": gpu_run.SHARES, "2": 2}
        self.assertEqual(machine.place_of(alone), ["1"])
        self.assertEqual(machine.place_of(two), ["1", "2"])
        self.assertEqual(machine.place_of(one), ["1"])
        machine.free = {"0": 0, "1": gpu_run.SHARES - 1, "2": 0}
        self.assertIsNone(machine.place_of(alone))
        self.assertIsNone(machine.place_of(two))
        self.assertEqual(machine.place_of(one), ["1"])

    def test_gpus_that_are_shown_are_the_ones_used(self):
        bundle = self.bundle()
        self.assertEqual(bundle.run(4, "--gpus", "2", "--only", "worker_gpu", "group_gpu").returncode, 0)
        self.assertTrue(all(re.match("0,1 ", call) for call in bundle.calls(gpu_run.GROUPS)))

    def test_what_fails_is_named_and_shown(self):
        bundle = self.bundle(stage_gpu_test="echo broken here; exit 1")
        done = bundle.run(1, "--out", bundle.folder / "out")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, "6 passed, 1 failed .*: stage_gpu_test on 1 GPU\n")
        self.assertIn("broken here", (bundle.folder / "out/failed.log").read_text())

    def test_what_hangs_is_killed_in_time(self):
        bundle = self.bundle(stage_gpu_test="sleep 1000")
        done = bundle.run(1, "--minutes", "0.03", "--only", "stage_gpu", "worker_gpu")
        self.assertEqual(done.returncode, 1)
        self.assertIn("killed: the time was over", done.stdout)


if __name__ == "__main__":
    unittest.main()
