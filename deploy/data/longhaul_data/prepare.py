"""`prepare` of texts: checks the arguments, reads, encodes, writes."""
import dataclasses
import os
import pathlib
import shutil

from . import files, manifest, readers, records, texts
from .chat import Chat
from .encode import Encoder, batches_of, in_order
from .errors import Problem, Problems, need
from .fields import Names
from .files import TEXTS
from .folder import OutputFolder
from .lfs import refuse_pointer
from .pack import Packer
from .pairs import PairPacker, check_fields
from .pieces import Cutter, place
from .progress import Progress
from .report import counted
from .shards import ShardWriter
from .targets import TargetCount, no_targets
from .tokenizer import Tokenizer, read_template


@dataclasses.dataclass
class Counts:
    documents: int = 0
    empty: int = 0
    ends_inside: int = 0
    cut: int = 0
    dropped_tokens: int = 0
    filled_tokens: int = 0
    without_targets: int = 0  # documents, or pairs
    pairs: int = 0
    pairs_too_long: int = 0
    same_answers: int = 0  # pairs
    first_without: tuple = None  # the first one's place

    def add(self, other):
        self.first_without = self.first_without or other.first_without
        for field in dataclasses.fields(self):
            if field.name == "first_without":
                continue
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


@dataclasses.dataclass
class Source:
    path: str
    kind: str
    size: int
    style: str = records.TEXT
    names: tuple = ()  # fields of a record
    others: tuple = ()  # what its records could be instead


@dataclasses.dataclass
class Summary:
    manifest: dict
    training: Counts
    validation: Counts
    input_bytes: int
    seconds: float
    targets: int = None
    notes: list = dataclasses.field(default_factory=list)


def collect(errors, call, *arguments):
    """The result; a Problem goes into `errors`, so that the next thing can be looked at too."""
    try:
        return call(*arguments)
    except Problem as error:
        errors.append(str(error))
        return None


def source_of(path, kind, field, names, in_pairs=False):
    """Looks into the file as far as its first record."""
    try:
        size = os.stat(path).st_size
        if not os.path.isfile(path):
            raise Problem(f"{path}: expected a file, got a folder or a device")
        refuse_pointer(path)
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}") from error
    kind = kind or files.kind_of(path)
    source = Source(path, kind, size)
    if kind in files.RECORDS:
        found = readers.first_fields(path, kind)
        if found is not None and in_pairs:
            check_fields(path, found, names)
            source.names, source.style = tuple(found), records.CHOSEN
        elif found is not None:
            source.names = tuple(found)
            source.style = records.style_of(path, found, field, names)
            source.others = tuple(records.styles(found, names)[1:]) if field is None else ()
    return source


def inside_of(folder, options):
    """Sentences on inputs that --force would remove."""
    return [f"{path}: lies in the folder that --out names, which is replaced"
            for path in (*options.files, *options.validation)
            if folder.target.resolve() in pathlib.Path(path).resolve().parents]


def limit_of(options, width):
    """Tokens in a shard, at most: whole windows where documents are packed."""
    limit = max(options.shard_bytes // width, options.pack or 1)
    return limit // options.pack * options.pack if options.pack else limit


def left_out(counts, context):
    """A sentence for each reason for which pairs were left out."""
    return [f"{counted(number, 'pair')} left out: {why}" for number, why in (
        (counts.pairs_too_long, f"the two answers with their prompts are longer than {context} tokens (--pack)"),
        (counts.same_answers, "both answers are the same"),
        (counts.without_targets, "an answer has no token whose loss counts")) if number]


def copy_tokenizer(tokenizer, end_token, folder):
    """The manifest's entry."""
    (folder / "tokenizer").mkdir()
    for name, path in tokenizer.files.items():
        shutil.copyfile(path, folder / "tokenizer" / name)
    return {"name": tokenizer.name, "sha256": tokenizer.sha256, "vocabulary": tokenizer.vocabulary,
            "end_token": end_token, "files": sorted(tokenizer.files)}


class TextPreparation:
    """`options` are the command line's (cli.py)."""

    def __init__(self, options):
        self._options = options
        errors = []
        self._folder = OutputFolder(options.out, options.force)
        if self._folder.problem:
            errors.append(self._folder.problem)
        self._tokenizer = collect(errors, Tokenizer, options.tokenizer)
        self._names = collect(errors, Names, options.map) or Names()
        looked = [collect(errors, source_of, path, options.kind, options.field, self._names, options.pairs)
                  for path in (*options.files, *options.validation)]
        self._training, self._validation = looked[:len(options.files)], looked[len(options.files):]
        self._chat = None
        if self._tokenizer:
            self._end = collect(errors, self._end_token)
            self._begin = collect(errors, self._begin_token)
            errors += self._vocabulary_problems()
            self._prepare_chat(errors)
        errors += inside_of(self._folder, options) + self._pair_problems()
        if errors:
            raise Problems(errors)
        self._cutter = Cutter(self._tokenizer.backend)
        self._vocabulary = options.vocabulary or self._tokenizer.vocabulary
        self._width = 2 if self._vocabulary <= 1 << 16 else 4
        self._masked = options.pack > 0 or any(
            source.style != records.TEXT for source in self._training + self._validation)

    def _end_token(self):
        if self._options.end_token is not None:
            return self._tokenizer.id_of(self._options.end_token, "--end-token")
        return self._tokenizer.end_token()

    def _begin_token(self):
        if self._options.begin_token is None:
            return None
        return self._tokenizer.id_of(self._options.begin_token, "--begin-token")

    def _vocabulary_problems(self):
        wanted = self._options.vocabulary
        if wanted is not None and wanted < self._tokenizer.vocabulary:
            return [f"--vocabulary: the tokenizer {self._tokenizer.name} has ids up to "
                    f"{self._tokenizer.vocabulary - 1}, so expected at least {self._tokenizer.vocabulary}, got "
                    f"{wanted}"]
        return []

    def _pair_problems(self):
        if not self._options.pairs:
            return []
        errors = []
        if not self._options.pack:
            errors.append("--pairs: expected --pack CONTEXT, too: a window of a run has whole pairs, so they are laid "
                          "out for one model.context")
        if self._options.field is not None:
            errors.append("--field is for records with one text; pairs have 'chosen' and 'rejected' (--map)")
        return errors + [f"{source.path}: expected records with 'chosen' and 'rejected' (--pairs), got a text file"
                         for source in self._training + self._validation if source and source.kind == TEXTS]

    def _prepare_chat(self, errors):
        template_of = self._tokenizer.chat_template
        if self._options.chat_template is not None:
            text = collect(errors, read_template, self._options.chat_template)
            if text is None:
                return
            template_of = lambda with_tools: text  # noqa: E731
        self._chat = Chat(template_of, self._tokenizer.special_tokens(), self._tokenizer.ends())
        if any(source and source.style not in (records.TEXT, records.PROMPTS, records.CHOSEN)
               for source in self._training + self._validation):
            collect(errors, self._chat.template)
        for name, token in self._tokenizer.missing(collect([], template_of, False) or "").items():
            errors.append(f"the chat template writes {name}, which is '{token}'; the tokenizer {self._tokenizer.name} "
                          "has no such token; name another template with --chat-template")

    def run(self):
        """The summary. The folder is there when this returns, and not at all when it raises."""
        total = sum(source.size for source in self._training + self._validation)
        progress = Progress(total)
        try:
            with self._folder as folder:
                training, counts, targets = self._write("training", self._training, progress)
                validation, validation_counts, validation_targets = self._write(
                    "validation", self._validation, progress)
                if not self._options.pairs:
                    self._check_targets("the files", counts, targets)
                    self._check_targets("--validation", validation_counts, validation_targets)
                made = manifest.make(
                    tokenizer=copy_tokenizer(self._tokenizer, self._end, folder.path), end_token=self._end,
                    vocabulary=self._vocabulary, width=self._width, packed=self._options.pack,
                    documents=counts.documents,
                    validation_documents=validation_counts.documents,
                    ends_inside=counts.ends_inside + validation_counts.ends_inside, training=training,
                    validation=validation, targets=targets if self._masked else None,
                    pairs=counts.pairs if self._options.pairs else None)
                if self._options.pairs:
                    self._check_pairs("the files", counts)
                    if self._validation:
                        self._check_pairs("--validation", validation_counts)
                if counts.documents == 0:
                    raise Problem("expected a document at least, the files have none")
                manifest.write(folder.path, made)
                folder.commit()
        finally:
            progress.clear()
        return Summary(made, counts, validation_counts, total, progress.seconds,
                       targets if self._masked else None, self._notes(counts, validation_counts))

    def _documents(self, sources, progress, counts):
        for source in sources:
            if source.kind == TEXTS:
                yield from texts.open_documents(source.path, self._cutter, self._options.split_on, progress)
            else:
                style = records.Style(source.style, self._options.field, self._cutter, self._chat, self._names,
                                      self._options.pairs)
                yield from records.open_records(source.path, source.kind, style, source.names, progress)
                counts.same_answers += style.same_answers
            progress.file_done(source.size)

    def _check_targets(self, what, counts, targets):
        if self._masked and counts.documents and targets == 0:
            raise Problem(no_targets(what, counts, self._chat.roles() if self._chat else ""))

    def _check_pairs(self, what, counts):
        if counts.pairs == 0:
            raise Problem("; ".join([f"{what}: expected a pair at least, got none",
                                     *left_out(counts, self._options.pack)]))

    def batches(self, sources, progress, counts):
        return batches_of(self._documents(sources, progress, counts), counts)

    def encoder(self):
        return Encoder(self._tokenizer.backend, self._width, self._end, self._begin, self._masked)

    def _write(self, name, sources, progress):
        """(the manifest's entries, counts, targets)"""
        counts, pack = Counts(), self._options.pack
        limit = limit_of(self._options, self._width)
        writer = ShardWriter(self._folder.path, name, self._width, limit, self._masked)
        in_pairs = self._options.pairs
        packer = (PairPacker if in_pairs else Packer)(writer, pack, self._end, self._width) if pack else None
        count = TargetCount(pack) if self._masked and not in_pairs else None
        for encoded in in_order(self.encoder(), self.batches(sources, progress, counts)):
            counts.documents += sum(piece.last for piece in encoded.pieces)
            counts.ends_inside += encoded.ends_inside
            if count:
                count.add(encoded)
            if packer:
                packer.add(encoded)
            else:
                writer.write(encoded.ids, encoded.mask)
        if in_pairs:
            packer.finish()
            counts.pairs, counts.pairs_too_long = packer.pairs, packer.too_long
            counts.documents, counts.ends_inside = 2 * packer.pairs, 0
            counts.without_targets, counts.filled_tokens = packer.without_targets, packer.filled_tokens
        elif packer:
            packer.finish()
            counts.cut, counts.dropped_tokens = packer.cut_documents, packer.dropped_tokens
            counts.filled_tokens = packer.filled_tokens
        if count:
            counts.without_targets, counts.first_without = count.without, count.first
        return writer.finish(), counts, writer.targets

    def _notes(self, counts, validation_counts):
        both = Counts()
        both.add(counts)
        both.add(validation_counts)
        notes = []
        if both.ends_inside:
            text = self._tokenizer.backend.id_to_token(self._end)
            notes.append(f"{both.ends_inside} times the end token {text} stands inside a document, which counts as "
                         "several where attention is kept inside documents; another --end-token avoids that")
        if both.empty:
            notes.append(f"{both.empty} empty documents were left out")
        if both.cut:
            notes.append(f"{both.cut} documents are longer than {self._options.pack} tokens and were cut; "
                         f"{both.dropped_tokens} tokens of conversations and completions were left out")
        if self._options.pairs:
            notes += left_out(both, self._options.pack)
        elif both.without_targets:
            notes.append(f"{counted(both.without_targets, 'document')} without a token whose loss counts, the first of "
                         f"{place(both.first_without)}")
        notes += [f"{source.path}: {source.style} is taken, although there is {' and '.join(source.others)}"
                  for source in self._training + self._validation if source.others]
        return notes + (self._chat.notes() if self._chat else [])


def check_numpy():
    need("numpy", "preparing data")
