"""longhaul-dashboard-fleet as an object."""
import pathlib
import subprocess


class Fleet:
    def __init__(self, programs, *arguments):
        self.process = subprocess.Popen([pathlib.Path(programs) / "longhaul-dashboard-fleet", *map(str, arguments)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline().split()
        assert line[:2] == ["dashboard", "at"], line
        self.address, self.run, self.step = line[2], line[3], int(line[4])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=20)

    def say(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()
