"""Runs the command blocks of one page of docs, in order, in one shell.

usage: guide_test.py SOURCE_DIR BIN_DIR PAGE.md    # below docs/, such as guide/first_run.md

The shell starts in an empty folder with links to the checkout's deploy/ and tests/ and with the
programs on PATH. What a page starts in the background ends with the page.

How a page marks its blocks, after the language in the line of the opening fence:
  ```sh                    every command must succeed
  ```console               lines that begin with "$ " are commands, the others what they print
  ```yaml file=run.yaml    is written to that file
  ```sh skip=root          is left out, and said so by name
  ```sh needs=data         is left out, and said so by name, where the packages of `longhaul data` are missing
  ```sh as=cluster         can be begun with by other pages (below)
Blocks of other languages, and ```text, are pictures and are not run.

skip= takes root (network namespaces), gpu, network (packages, images, registries), machines (more
than this one) or minutes. A page without a block that runs gives exit code 77.

Of a console block, the output must have the lines shown, in this order, each to its last character;
"..." stands for any text in a line, and alone in a line for any lines. An exit code that is not 0 is
promised by a last line "[exit code 2]".

A page that starts with <!-- begin with first_run.md cluster --> first runs the blocks of that page
that are marked as=cluster. 127.0.0.1:7070, 127.0.0.1:7071 and 127.0.0.1:8080
become addresses with ports that are free.
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
REASONS = {"root": "network namespaces, for which it needs root", "gpu": "a GPU",
           "network": "packages or images from the network", "machines": "more than one machine",
           "minutes": "several minutes", "data": "packages that deploy/setup.sh --data brings"}
ADDRESSES = ("127.0.0.1:7070", "127.0.0.1:7071", "127.0.0.1:8080")
COMMAND_SECONDS = 50
FENCE = re.compile(r"^```(\w*)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
BEGIN_WITH = re.compile(r"^<!-- begin with (\S+) (\S+) -->$", re.MULTILINE)
DONE = "guide-test-command-ended"


class Wrong(Exception):
    pass


class Block:
    def __init__(self, page, line, language, attributes, text):
        self.where = f"{page}:{line}"
        self.language, self.text = language, text
        self.attributes = dict(part.split("=", 1) if "=" in part else (part, "")
                               for part in attributes.split())
        unknown = set(self.attributes) - {"file", "skip", "needs", "as"}
        if unknown:
            raise Wrong(f"{self.where}: unknown attribute {', '.join(sorted(unknown))}; "
                        "expected file=, skip=, needs= or as=")
        if "skip" in self.attributes and self.attributes["skip"] not in REASONS:
            raise Wrong(f"{self.where}: skip={self.attributes['skip']}; expected one of "
                        f"{', '.join(REASONS)}")
        if self.attributes.get("needs", "data") != "data":
            raise Wrong(f"{self.where}: needs={self.attributes['needs']}; expected needs=data")
        if language == "console" and not text.startswith("$ "):
            raise Wrong(f"{self.where}: a console block begins with a line \"$ command\"")

    def runs(self):
        return self.language in ("sh", "console") or "file" in self.attributes

    def title(self):
        first = self.text.strip().split("\n")[0]
        return f"{self.where}: {first if len(first) <= 70 else first[:67] + '...'}"


def blocks_of(path):
    text = path.read_text(encoding="utf-8")
    return [Block(path.name, text.count("\n", 0, match.start()) + 1, *match.groups())
            for match in FENCE.finditer(text)]


def blocks_to_run(path):
    """The blocks of the page, after those of other pages that it begins with."""
    blocks = []
    for page, name in BEGIN_WITH.findall(path.read_text(encoding="utf-8")):
        borrowed = [b for b in blocks_of(path.parent / page) if b.attributes.get("as") == name]
        if not borrowed:
            raise Wrong(f"{path.name}: {page} has no block with as={name}")
        blocks += borrowed
    own = [block for block in blocks_of(path) if block.runs()]
    if not own:
        raise Wrong(f"{path.name} has no command block")
    return blocks, own


def commands_of(block):
    """[(command, expected lines)] of a console block."""
    commands = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            commands.append([line[2:], []])
        elif not commands[-1][1] and commands[-1][0].endswith("\\"):
            commands[-1][0] += "\n" + line
        else:
            commands[-1][1].append(line)
    return commands


def line_pattern(line):
    return re.compile(".*".join(re.escape(part) for part in line.rstrip().split("...")))


def compare(expected, printed):
    """None, or the first expected line that is missing."""
    position, gap = 0, False
    for line in expected:
        if line.strip() == "...":
            gap = True
            continue
        pattern = line_pattern(line)
        while True:
            if position == len(printed):
                return line
            position += 1
            if pattern.fullmatch(printed[position - 1].rstrip()):
                break
            if not gap:
                return line
        gap = False
    if position < len(printed) and not gap:
        return f"the end; it went on with: {printed[position]}"
    return None


class Shell:
    def __init__(self, folder, programs, ports):
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("LONGHAUL_")}
        environment["PATH"] = f"{programs}:{environment['PATH']}"
        environment["HOME"] = str(folder)
        # As if the wheel were installed.
        environment["PYTHONPATH"] = str(pathlib.Path(__file__).resolve().parents[2] / "python")
        self.addresses = dict(zip(ADDRESSES, (f"127.0.0.1:{port}" for port in ports)))
        self.folder = folder
        # A process group of its own, so that daemons go with it.
        self.process = subprocess.Popen(["bash"], cwd=folder, env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, start_new_session=True)

    def to_ours(self, text):
        for written, ours in self.addresses.items():
            text = text.replace(written, ours)
        return text

    def as_written(self, text):
        for written, ours in self.addresses.items():
            text = text.replace(ours, written)
        return text

    def run(self, command):
        """(exit code, printed lines) of a command, which may be of several lines."""
        script = self.folder / ".command"
        script.write_text(self.to_ours(command) + "\n")
        self.process.stdin.write(f". ./.command </dev/null; printf '\\n{DONE} %s\\n' $?\n".encode())
        self.process.stdin.flush()
        deadline = time.monotonic() + COMMAND_SECONDS
        lines, rest = [], b""
        while True:
            if time.monotonic() > deadline:
                raise Wrong(f"`{command}` took longer than {COMMAND_SECONDS} s; until then it "
                            "printed:\n" + "\n".join(lines))
            os.set_blocking(self.process.stdout.fileno(), False)
            part = self.process.stdout.read()
            if part == b"":
                raise Wrong(f"`{command}` ended the shell; before, it printed:\n" + "\n".join(lines))
            if part is None:
                time.sleep(0.01)
                continue
            *whole, rest = (rest + part).split(b"\n")
            for line in (raw.decode(errors="replace") for raw in whole):
                if line.startswith(DONE + " "):
                    # `printf` has ended a last line that had no end.
                    if lines and lines[-1] == "":
                        lines.pop()
                    return int(line.split()[1]), [self.as_written(one) for one in lines]
                lines.append(line)

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            self.process.poll()
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):  # all have ended by now
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def run_block(block, shell):
    if "file" in block.attributes:
        path = shell.folder / block.attributes["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(shell.to_ours(block.text))
        return
    if block.language == "sh":
        # A page's reader would stop at the first command that fails, too.
        code, printed = shell.run("trap 'trap - ERR; return 1' ERR\n" + block.text + "\ntrap - ERR")
        if code != 0:
            raise Wrong(f"{block.where}: a command failed; printed:\n" + "\n".join(printed))
        return
    for command, expected in commands_of(block):
        wanted_code = 0
        if expected and (match := re.fullmatch(r"\[exit code (\d+)\]", expected[-1])):
            wanted_code = int(match.group(1))
            expected = expected[:-1]
        code, printed = shell.run(command)
        text = "\n".join(printed)
        if code != wanted_code:
            raise Wrong(f"{block.where}: `{command}`: expected exit code {wanted_code}, got {code}; "
                        f"printed:\n{text}")
        if (missing := compare(expected, printed)) is not None:
            raise Wrong(f"{block.where}: `{command}`: expected the line\n  {missing}\nin:\n{text}")


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def show_logs(folder):
    for path in sorted(folder.glob("*.log")):
        print(f"--- the end of {path.name}")
        print("\n".join(path.read_text(errors="replace").splitlines()[-15:]))


def has_data_packages(programs):
    done = subprocess.run([programs / "longhaul", "data", "show", "/"], capture_output=True, text=True, check=False)
    return "a Python that has" not in done.stderr


def run_page(source, programs, path):
    borrowed, own = blocks_to_run(path)
    needing = [block for block in own if "needs" in block.attributes]
    if needing and not has_data_packages(programs):
        for block in needing:
            block.attributes["skip"] = "data"
    skipped = [block for block in own if "skip" in block.attributes]
    for block in skipped:
        print(f"skipped, for it needs {REASONS[block.attributes['skip']]}: {block.title()}")
    # A file alone shows nothing about a command.
    if not any("skip" not in block.attributes and "file" not in block.attributes for block in own):
        print(f"{path.name}: nothing can be run here")
        return SKIPPED
    folder = pathlib.Path(tempfile.mkdtemp(prefix="longhaul-guide-"))
    for name in ("deploy", "tests"):
        (folder / name).symlink_to(source / name)
    shell = Shell(folder, programs, free_ports(len(ADDRESSES)))
    try:
        for block in borrowed + own:
            if "skip" not in block.attributes:
                begin = time.monotonic()
                run_block(block, shell)
                print(f"{time.monotonic() - begin:5.1f} s  {block.title()}", flush=True)
    except Wrong:
        show_logs(folder)
        raise
    finally:
        shell.close()
        shutil.rmtree(folder)
    print(f"{path.name}: {len(own) - len(skipped)} blocks hold, {len(skipped)} skipped")
    return 0


def main():
    if len(sys.argv) != 4:
        print(__doc__)
        return 2
    source, programs = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    try:
        return run_page(source, programs, source / "docs" / sys.argv[3])
    except Wrong as error:
        print(error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
