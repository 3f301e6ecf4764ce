"""dataset.json: what a data set's folder has (docs/design/data_sets.md)."""
import json
import pathlib

from .errors import Problem
from .shards import CHUNK_BYTES

FILE = "dataset.json"
FORMAT = "longhaul data set"
VERSION = 1
# For a set of pairs of answers: a program that does not know them must not train on rejected ones.
VERSION_OF_PAIRS = 2


def make(*, tokenizer, end_token, vocabulary, width, packed, documents, validation_documents, ends_inside, training,
         validation, targets=None, pairs=None):
    """`pairs`: number of training pairs; None: the set has no pairs."""
    optional = {name: value for name, value in (("targets", targets), ("pairs", pairs)) if value is not None}
    return {"format": FORMAT, "version": VERSION if pairs is None else VERSION_OF_PAIRS, "tokenizer": tokenizer,
            "end_token": end_token, "vocabulary": vocabulary, "bytes_per_token": width, "packed": packed,
            "chunk_bytes": CHUNK_BYTES, "documents": documents, "validation_documents": validation_documents,
            "ends_inside": ends_inside, **optional, "training": training, "validation": validation}


def write(folder, manifest):
    (folder / FILE).write_text(json.dumps(manifest, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read(folder):
    """Reads the manifest of a data set's folder. Raises Problem if the folder is no data set or a newer one."""
    path = pathlib.Path(folder) / FILE
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise Problem(f"{folder}: expected a data set, which has a file {FILE}; `longhaul data prepare` makes "
                      "one") from error
    except (OSError, ValueError) as error:
        raise Problem(f"{path}: expected a data set's manifest; {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise Problem(f"{path}: expected \"format\": \"{FORMAT}\"")
    if manifest.get("version") not in (VERSION, VERSION_OF_PAIRS):
        raise Problem(f"{path}: expected version {VERSION} or {VERSION_OF_PAIRS}, got {manifest.get('version')}; "
                      "prepare the data set again, or use the longhaul that made it")
    return manifest


def tokens_of(entries):
    return sum(entry["tokens"] for entry in entries)
