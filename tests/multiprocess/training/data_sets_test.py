"""Runs that read data sets, over real processes on the loopback interface.

usage: data_sets_test.py BIN_DIR [CASE...]
"""
import functools
import hashlib
import http.server
import json
import math
import pathlib
import random
import re
import shutil
import struct
import sys
import threading

from cases import run_cases
from remote_model_test import RemoteCluster
from training_test import GPT, NONE, RUN, expect_equal, wait_for

CHUNK, CONTEXT, END = 4096, 64, 0
TEXT = "data: { text: [text.txt], tokenizer: bytes, seed: 3 }"


def write_set(folder, tokens, masks=None, shard_tokens=5000, validation=(), packed=0):
    """As `longhaul data prepare` does, by hand."""
    def chunks(raw):
        return "".join(hashlib.sha256(raw[i:i + CHUNK]).hexdigest() for i in range(0, len(raw), CHUNK))

    def write(name, ids, bits):
        raw = struct.pack(f"<{len(ids)}H", *ids)
        (folder / f"{name}.bin").write_bytes(raw)
        entry = {"file": f"{name}.bin", "offset": 0, "tokens": len(ids), "chunks": chunks(raw)}
        if bits is not None:
            packed_bits = bytes(sum(bits[i + j] << j for j in range(8) if i + j < len(bits))
                                for i in range(0, len(bits), 8))
            (folder / f"{name}.mask").write_bytes(packed_bits)
            entry["mask"] = {"file": f"{name}.mask", "chunks": chunks(packed_bits)}
        return entry

    folder.mkdir()
    shards = [write(f"training-{i:05}", tokens[at:at + shard_tokens],
                    None if masks is None else masks[at:at + shard_tokens])
              for i, at in enumerate(range(0, len(tokens), shard_tokens))]
    held_out = [write("validation-00000", validation, None if masks is None else [1] * len(validation))]
    (folder / "dataset.json").write_text(json.dumps({
        "format": "longhaul data set", "version": 1, "tokenizer": None, "end_token": END, "vocabulary": 256,
        "bytes_per_token": 2, "packed": packed, "chunk_bytes": CHUNK, "documents": 1,
        "training": shards, "validation": held_out if validation else []}))


def write_run(cluster, name, data, stages=4, steps=30, model=GPT):
    path = cluster.write_run(name, steps=steps, stages=stages, model=model)
    path.write_text(path.read_text().replace(TEXT, data))
    return path


def train(cluster, name, data, **options):
    run = cluster.cli("submit", write_run(cluster, name, data, **options), "--watch").stdout.split()[0]
    return cluster.losses(run)


def documents(seed, count, low=5, high=200):
    random.seed(seed)
    tokens = []
    for _ in range(count):
        first = random.randrange(1, 200)
        tokens += [1 + (first + i * i) % 255 for i in range(random.randrange(low, high))] + [END]
    return tokens


def reads_what_it_says(cluster):
    """One stage and four, shards from the folder and from the coordinator: the same losses."""
    text = (cluster.folder / "text.txt").read_bytes()
    write_set(cluster.folder / "words", list(text), validation=list(text[:5000]))
    sets = "data: { sets: [words], seed: 3, memory: 64KiB }"
    one = train(cluster, "one", sets, stages=1)
    if not one[-1] < 0.8 * one[0]:
        raise AssertionError(f"nothing was learnt: {one[0]} to {one[-1]}")
    expect_equal("four stages against one", train(cluster, "four", sets), one)
    cluster.kill("worker4")
    wait_for("three workers", lambda: len(cluster.connected()) == 3)
    run = cluster.cli("submit", write_run(cluster, "fetched", sets)).stdout.split()[0]
    shutil.rmtree(cluster.folder / "words")
    cluster.start_worker(4)
    wait_for("the end", lambda: cluster.seen(run)["state"] == "done")
    expect_equal("from the coordinator, a few chunks in memory at a time", cluster.losses(run), one)


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, whole or by one range."""

    def do_GET(self):
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not wanted:
            super().do_GET()
            return
        try:
            data = pathlib.Path(self.translate_path(self.path)).read_bytes()
        except OSError:
            self.send_error(404)
            return
        begin, end = int(wanted[1]), min(int(wanted[2]) + 1, len(data))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        self.wfile.write(data[begin:end])

    def log_message(self, *_):
        pass


def from_a_web_server(cluster):
    """The same losses as from the folder; nothing goes over the coordinator but the list."""
    write_set(cluster.folder / "web", documents(8, 400))
    from_folder = train(cluster, "from-folder", "data: { sets: [web], seed: 3, memory: 64KiB }", stages=2)
    elsewhere = cluster.folder / "elsewhere"
    elsewhere.mkdir()
    (cluster.folder / "web").rename(elsewhere / "web set")
    handler = functools.partial(Ranges, directory=elsewhere)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/web%20set"
            sets = f"data: {{ sets: ['{address}'], seed: 3, memory: 64KiB }}"
            expect_equal("from a web server", train(cluster, "from-web", sets, stages=2), from_folder)
            refused = cluster.cli("submit", write_run(cluster, "nothing-there", sets.replace("set'", "sets'")),
                                  check=False)
            if refused.returncode != 1 or "answers 404" not in refused.stderr:
                raise AssertionError(refused.stderr)
        finally:
            server.shutdown()


def mixtures(cluster):
    write_set(cluster.folder / "a", documents(1, 400))
    write_set(cluster.folder / "b", documents(2, 300))
    sets = "data: { sets: [{ from: a, weight: 3 }, b], seed: 3 }"
    one = train(cluster, "mixed-one", sets, stages=1)
    expect_equal("two sources, four stages against one", train(cluster, "mixed-four", sets), one)
    aqsgd = write_run(cluster, "mixed-aqsgd", sets)
    aqsgd.write_text(aqsgd.read_text().replace(NONE, '{ forward: "aqsgd", backward: "aqsgd" }'))
    run = cluster.cli("submit", aqsgd, "--watch").stdout.split()[0]
    if cluster.status(run)["state"] != "done":
        raise AssertionError(cluster.status(run)["reason"])
    print("ok: codecs that remember samples know those of a mixture", flush=True)


def document_masks(cluster, name="gpt", model=GPT):
    write_set(cluster.folder / f"short-{name}", documents(3, 600, high=40))
    sets = f"data: {{ sets: [short-{name}], seed: 3, mask: document }}"
    one = train(cluster, f"documents-{name}", sets, stages=1, model=model)
    expect_equal(f"documents apart, {name}, four stages against one",
                 train(cluster, f"documents-four-{name}", sets, model=model), one)
    without = train(cluster, f"together-{name}", f"data: {{ sets: [short-{name}], seed: 3 }}", stages=1, model=model)
    if one == without:
        raise AssertionError("data.mask changes nothing")


def document_masks_of_llama(cluster):
    document_masks(cluster, "llama", "{ family: llama, layers: 4, hidden: 64, heads: 4, kv_heads: 2, intermediate: 96, "
                                     "context: 64 }")


def loss_masks(cluster):
    """Only what the mask marks is learnt: tokens behind a 7 are random and do not count."""
    random.seed(5)
    tokens, marks = [], []
    for _ in range(4000):
        tokens += [7, random.randrange(8, 256), 1, 2, 3]
        marks += [1, 0, 1, 1, 1]
    write_set(cluster.folder / "marked", tokens, masks=marks)
    sets = "data: { sets: [marked], seed: 3 }"
    one = train(cluster, "marked-one", sets, stages=1, steps=110)
    # What does not count would alone cost log(248) / 5.
    if not one[-1] < 0.5:
        raise AssertionError(f"a loss of {one[-1]}: what is masked counts")
    expect_equal("masked targets, four stages against one", train(cluster, "marked-four", sets),
                 train(cluster, "marked-one-again", sets, stages=1))


def refusals(cluster):
    def refused(name, data, *sentences, model=GPT):
        result = cluster.cli("submit", write_run(cluster, name, data, model=model), check=False)
        if result.returncode != 1 or not all(s in result.stderr for s in sentences):
            raise AssertionError(f"{name}: exit {result.returncode}: {result.stderr}")
        print(f"ok: {result.stderr.strip().splitlines()[0]}", flush=True)

    write_set(cluster.folder / "packed", documents(6, 100), packed=32)
    write_set(cluster.folder / "cut", documents(7, 100))
    (cluster.folder / "cut" / "training-00000.bin").write_bytes(b"12")
    refused("packed", "data: { sets: [packed] }", "packed for a context of 32, and model.context is 64")
    refused("nowhere", "data: { sets: [nowhere, cut] }", "nowhere/dataset.json", "expected at least")
    refused("both", "data: { sets: [packed], text: [text.txt] }", "leave one of them out")
    refused("small", "data: { sets: [a] }", "larger than the model's 100 rows",
            model="{ family: gpt, layers: 4, hidden: 64, heads: 4, context: 64, vocabulary: 100 }")
    refused("documents", "data: { text: [text.txt], mask: document }", "longhaul data prepare")


def exported(cluster):
    """An export of a run from random numbers has the tokenizer of its data."""
    folder = cluster.folder / "words-of"
    write_set(folder, documents(9, 100))
    files = {"tokenizer.json": b'{"made": "for this test"}', "chat_template.jinja": b"{{ messages }}"}
    (folder / "tokenizer").mkdir()
    for name, content in files.items():
        (folder / "tokenizer" / name).write_bytes(content)
    manifest = json.loads((folder / "dataset.json").read_text())
    manifest["tokenizer"] = {"name": "of-this-test", "sha256": hashlib.sha256(files["tokenizer.json"]).hexdigest()}
    (folder / "dataset.json").write_text(json.dumps(manifest))
    path = write_run(cluster, "scratch", "data: { sets: [words-of] }", steps=10)
    run = cluster.cli("submit", path, "--watch").stdout.split()[0]
    cluster.cli("export", run, "--out", cluster.folder / "with-words")
    got = {name: (cluster.folder / "with-words" / name).read_bytes() for name in files}
    if got != files:
        raise AssertionError(f"{got} instead of {files}")
    (folder / "tokenizer" / "tokenizer.json").write_bytes(b'{"made": "later"}')
    result = cluster.cli("export", run, "--out", cluster.folder / "without-words")
    if "the export has no tokenizer" not in result.stderr or (cluster.folder / "without-words" / "tokenizer.json").exists():
        raise AssertionError(f"another tokenizer by now: {result.stderr}")
    print("ok: the tokenizer of the data comes along, and no other one", flush=True)


def epochs(cluster):
    """A run has as many steps as its passes over the training data take, of data sets and of texts."""
    tokens = documents(10, 60)
    write_set(cluster.folder / "passes", tokens, validation=documents(11, 20))
    text = (cluster.folder / "text.txt").stat().st_size
    for name, data, share, count in (("of-set", "data: { sets: [passes] }", 2, len(tokens)),
                                     ("of-text", TEXT, 0.1, text - int(text * 0.1))):  # RUN's validation.share
        path = write_run(cluster, name, data, stages=2)
        path.write_text(path.read_text().replace("steps: 30", f"epochs: {share}").replace("warmup: 5", "warmup: 1"))
        run = cluster.cli("submit", path, "--watch").stdout.split()[0]
        wanted = math.ceil(share * ((count - 1) // CONTEXT) / 8)  # RUN's sequences of a step
        steps = len(cluster.losses(run))
        if steps != wanted or steps < 2:
            raise AssertionError(f"{name}: {steps} steps instead of {wanted}")
        print(f"ok: {share} passes {name} are {steps} steps", flush=True)


CASES = {"epochs": epochs, "exported": exported, "reads": reads_what_it_says, "web": from_a_web_server, "mixtures": mixtures, "documents": document_masks,
         "documents_of_llama": document_masks_of_llama, "masked": loss_masks, "refused": refusals}

if __name__ == "__main__":
    if len(sys.argv) < 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    sys.exit(run_cases(CASES, kind=RemoteCluster))
