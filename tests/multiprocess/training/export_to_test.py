"""`longhaul export --to`: a checkpoint goes to a hub and to S3, and a run begins from it there.

usage: export_to_test.py BIN_DIR
"""
import hashlib
import json
import os
import pathlib
import sys
import tempfile

from data_sets_test import TEXT, documents, write_set
from remote_model_test import S3, TOKEN, WEED, beside_a_hub, expect_no_secret, train, trust_workers
from training_test import NONE, RUN, expect_equal


def hashes(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def expect_refused(cluster, to, *expected, flags=()):
    answer = cluster.cli("export", "first", "--to", to, *flags, check=False)
    if answer.returncode != 1 or not all(text in answer.stderr for text in expected):
        raise AssertionError(f"{to}: exit {answer.returncode}: {answer.stderr}")
    print(f"ok: {answer.stderr.strip()}", flush=True)


def to_hub(cluster, hub, wanted):
    # A token is missing, may only read, or is wrong: said before anything is gathered.
    expect_refused(cluster, "hf://org/tuned", "set HF_TOKEN")
    os.environ["HF_TOKEN"] = "hf_read"
    hub.publish("org/old", cluster.model)
    expect_refused(cluster, "hf://org/old", "403", "HF_TOKEN")
    os.environ["HF_TOKEN"] = TOKEN
    expect_refused(cluster, "hf://closed/tuned", "cannot make the repository")
    expect_refused(cluster, "hf://datasets/org/x", "expected the address of a model")
    expect_refused(cluster, "folder", "--out names a folder")
    said = cluster.cli("export", "first", "--to", "hf://org/tuned").stderr
    for text in "made the private repository org/tuned", "step 6 of first is in hf://org/tuned":
        if text not in said:
            raise AssertionError(said)
    repository = hub.do("repository", name="models/org/tuned")
    files = repository["files"]["main"]
    files.pop(".gitattributes")
    if files != wanted or repository["commits"] != 2:
        raise AssertionError(f"{repository} instead of {wanted}")
    print(f"ok: {', '.join(files)} on the hub, bit-identical, in one commit", flush=True)
    # Over another export: what it had of its own goes, and files of the user stay.
    hub.do("publish", repository="models/org/full", revision="main", files={
        "README.md": ["r", 10], "model-00001-of-00002.safetensors": ["a", 5000],
        "model.safetensors.index.json": ["i", 100], "config.json": ["c", 100]})
    cluster.cli("export", "first", "--to", "hf://org/full@tuned")
    branches = hub.do("repository", name="models/org/full")["files"]
    if set(branches["tuned"]) != {*wanted, "README.md"} or len(branches["main"]) != 4:
        raise AssertionError(f"{branches}")
    print("ok: an older export on a hub is replaced, on a branch of its own", flush=True)


def from_hub(cluster, local):
    """Another run begins with what is on the hub."""
    del os.environ["HF_TOKEN"]
    _, losses = train(cluster, "second", "hf://org/tuned")
    expect_equal("from the export on a hub", losses, local)


def to_s3(cluster, wanted, local):
    if not WEED.exists():
        print("skipped: S3, because deploy/setup.sh --test has not brought SeaweedFS", flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="longhaul-test-s3-") as folder:
        server = S3(pathlib.Path(folder), cluster.model)
        os.environ.update(server.environment(), AWS_SECRET_ACCESS_KEY="wrong")
        try:
            expect_refused(cluster, "s3://bucket/tuned/", "403", "AWS_SECRET_ACCESS_KEY")
            os.environ.update(server.environment())
            expect_refused(cluster, "s3://no-bucket/tuned/", "404")
            # The base model is there.
            expect_refused(cluster, "s3://bucket/tiny", "has objects already", "--overwrite")
            cluster.cli("export", "first", "--to", "s3://bucket/tiny", "--overwrite")
            cluster.cli("export", "first", "--to", "s3://bucket/new/tuned", "--out", cluster.folder / "both")
            if hashes(cluster.folder / "both") != wanted:
                raise AssertionError("--out beside --to differs")
            trust_workers(cluster)
            for name in "tiny", "new/tuned":
                run = f"from-{pathlib.Path(name).name}"
                expect_equal(f"from the export in S3 at {name}", train(cluster, run, f"s3://bucket/{name}/")[1], local)
        finally:
            for name in server.environment():
                del os.environ[name]
            server.stop()


def tokenizer_from_hub(cluster, hub):
    """A run from random numbers, over a data set on a hub: the export has the set's tokenizer."""
    folder = cluster.folder / "words"
    write_set(folder, documents(9, 100))
    (folder / "tokenizer").mkdir()
    content = b'{"made": "for this test"}'
    (folder / "tokenizer" / "tokenizer.json").write_bytes(content)
    manifest = json.loads((folder / "dataset.json").read_text())
    manifest["tokenizer"] = {"name": "of-this-test", "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "dataset.json").write_text(json.dumps(manifest))
    hub.do("publish_folder", repository="datasets/org/words", revision="main", folder=str(folder))
    text = RUN.format(name="words", steps=2, stages=2, schedule="link-aware", links=NONE, transport="ucx")
    path = cluster.folder / "words.yaml"
    path.write_text(text.replace(TEXT, "data: { sets: [hf://datasets/org/words] }").replace("warmup: 5", "warmup: 1"))
    cluster.cli("submit", path, "--watch")
    cluster.cli("export", "words", "--to", "hf://org/of-words")
    files = hub.do("repository", name="models/org/of-words")["files"]["main"]
    if files["tokenizer.json"] != hashlib.sha256(content).hexdigest():
        raise AssertionError(f"{files}")
    print("ok: the tokenizer of a data set on a hub comes along", flush=True)


def main():
    with beside_a_hub(sys.argv[1]) as (cluster, hub):
        folder = cluster.folder
        train(cluster, "first", cluster.model)
        cluster.cli("export", "first", "--out", folder / "first")
        wanted = hashes(folder / "first")
        _, local = train(cluster, "local", folder / "first")
        to_hub(cluster, hub, wanted)
        tokenizer_from_hub(cluster, hub)
        from_hub(cluster, local)
        to_s3(cluster, wanted, local)
        expect_no_secret(folder)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    main()
