"""Inputs and tokenizers at addresses: they are downloaded beside the output, and messages name them by their addresses.

`longhaul data fetch` downloads, with the credentials of the user's environment. Addresses reach it by its standard
input, because those of web servers may be secrets."""
import fcntl
import json
import os
import pathlib
import posixpath
import shutil
import subprocess

from . import files
from .errors import Problem
from .folder import OutputFolder
from .tokenizer import FILES

SCHEMES = ("hf://", "s3://", "gs://", "https://", "http://")


def is_address(text):
    return text.startswith(SCHEMES)


def shown(address):
    """Without a query, which may be a secret."""
    return address.split("?", maxsplit=1)[0] if address.startswith(("https://", "http://")) else address


def fetch(request, *flags):
    """The answer of `longhaul data fetch`."""
    program = os.environ.get("LONGHAUL_PROGRAM")
    if not program:
        raise Problem("expected LONGHAUL_PROGRAM, the path of longhaul, in the environment; `longhaul data` sets it")
    done = subprocess.run([program, "data", "fetch", *flags], input=json.dumps(request), stdout=subprocess.PIPE,
                          encoding="utf-8", check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError as error:
        raise Problem(f"{program} data fetch ended with the code {done.returncode} and no answer") from error
    if isinstance(answer, dict):
        raise Problem(answer["error"])
    return answer


def is_taken(name):
    """Whether a file of a folder is an input, or belongs to one. A README of a repository is none."""
    base = posixpath.basename(name)
    if base.endswith(".idx"):
        return True
    try:
        return files.kind_of(base) != files.TEXTS or base.removesuffix(".gz").removesuffix(".zst").endswith(".txt")
    except Problem:
        return False


def is_of_tokenizer(name, folder):
    """Whether a file of this folder belongs to a tokenizer. Folders in it may have tokenizers of other models."""
    return posixpath.dirname(name) == folder and posixpath.basename(name) in FILES


def last_name(folder):
    """The name of a folder or of a hub's repository, without the commit."""
    return posixpath.basename(folder).split("@", maxsplit=1)[0]


class Inputs:
    """with Inputs(options) as inputs: options.files, options.validation and options.tokenizer are of this machine. The
    folder DIR.inputs, which has what was downloaded, is removed at the end. True: some inputs were downloaded."""

    def __init__(self, options):
        self._options = options
        target = OutputFolder(options.out, options.force)
        self._problem = target.problem
        self._path = target.target.with_name(target.target.name + ".inputs")
        self._lock = None
        self._names = {}  # of downloaded files, by their paths
        self._homes = {}  # their folders here, by those at the servers
        self._has_inputs = False

    def __bool__(self):
        return self._has_inputs

    def named(self, text):
        """The text with addresses in the place of paths."""
        for path in sorted(self._names, key=len, reverse=True):
            text = text.replace(path, self._names[path])
        return text

    def __enter__(self):
        wanted = [text for text in (*self._options.files, *self._options.validation) if is_address(text)]
        self._has_inputs = bool(wanted)
        if wanted or is_address(self._options.tokenizer or ""):
            if self._problem:
                raise Problem(self._problem)
            self._make_folder()
            try:
                self._fetch(list(dict.fromkeys(wanted)))
            except BaseException:
                self._remove()
                raise
        return self

    def __exit__(self, *_):
        self._remove()

    def _make_folder(self):
        try:
            self._path.mkdir(exist_ok=True)
            self._lock = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            self._lock = None
            raise Problem(f"--out: another process is writing {self._path}") from error
        except OSError as error:
            raise Problem(f"--out: cannot make {self._path}; {error.strerror}") from error
        for left in self._path.iterdir():  # of a killed process
            shutil.rmtree(left)

    def _remove(self):
        if self._lock is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None

    def _fetch(self, wanted):
        request, paths = [], {}
        if is_address(self._options.tokenizer or ""):
            self._options.tokenizer = self._place_tokenizer(self._options.tokenizer, request)
        for address, found in zip(wanted, fetch(wanted, "--list") if wanted else []):
            chosen = [file for file in found["files"] if not found["is_folder"] or is_taken(file["shown"])]
            if not chosen:
                raise Problem(f"{shown(address)}: expected files of text, records or tokens in the folder, it has none "
                              f"among {len(found['files'])}")
            # The index of a token file is found beside it, and no input itself.
            placed = [(file, self._place(file, request)) for file in chosen]
            indexes = {path for file, path in placed if path.endswith(".idx") and len(chosen) > 1}
            paths[address] = [path for _, path in placed if path not in indexes]
        free = shutil.disk_usage(self._path).free
        total = sum(file["bytes"] for file in request)
        if total > free:
            raise Problem(f"the files have {total / 1e9:.1f} GB, and the disk of {self._path.parent} has "
                          f"{free / 1e9:.1f} GB left; make room there, or name another --out")
        fetch(request)
        self._options.files = self._replaced(self._options.files, paths)
        self._options.validation = self._replaced(self._options.validation, paths)

    def _place(self, file, request):
        """The path of a file that is downloaded. Files of one folder stay in one, as token files with their .idx."""
        name = shown(file["shown"])
        folder, base = posixpath.split(name)
        home = self._homes.setdefault(folder, self._path / str(len(self._homes)))
        home.mkdir(parents=True, exist_ok=True)
        path = str(home / base)
        if path not in self._names:
            request.append({"address": file["address"], "bytes": file["bytes"], "path": path})
            self._names[path] = name
        return path

    def _place_tokenizer(self, address, request):
        """The path of the tokenizer's folder or file. A data set remembers the folder's name."""
        found, = fetch([address], "--list")
        files_there = found["files"]
        if found["is_folder"]:
            mains = [file["shown"] for file in files_there if posixpath.basename(file["shown"]) == FILES[0]]
            if not mains:
                raise Problem(f"--tokenizer: expected {FILES[0]} in {shown(address)}, there is none")
            folder = posixpath.dirname(min(mains, key=len))
            files_there = [file for file in files_there if is_of_tokenizer(file["shown"], folder)]
        folder = posixpath.dirname(shown(files_there[0]["shown"]))
        self._homes[folder] = self._path / "tokenizer" / last_name(folder)
        placed = [self._place(file, request) for file in files_there]
        self._names[str(self._homes[folder])] = folder
        return str(self._homes[folder]) if found["is_folder"] else placed[0]

    @staticmethod
    def _replaced(texts, paths):
        return [path for text in texts for path in paths.get(text, [text])]
