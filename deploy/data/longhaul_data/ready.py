"""Data sets of ready token files: `prepare` links each file into the data set's folder, or copies it."""
import os

from . import manifest, token_files
from .errors import Problem, Problems, need
from .folder import OutputFolder
from .prepare import Counts, Summary, collect, copy_tokenizer, inside_of, limit_of
from .progress import Progress
from .shards import CHUNK_BYTES, ChunkHashes, ShardWriter
from .tokenizer import Tokenizer

ONLY_TEXTS = ("field", "split_on", "begin_token", "chat_template", "pack", "map")


def checked(numpy, path, at, block, vocabulary):
    """A block of ids that begins at token `at`; a Problem where one is not in the vocabulary."""
    if len(block) and (int(block.max()) >= vocabulary or int(block.min()) < 0):
        wrong = int(numpy.argmax((block >= vocabulary) | (block < 0)))
        raise Problem(f"{path}: expected ids below {vocabulary}, the vocabulary, got {int(block[wrong])} as token "
                      f"{at + wrong}; --vocabulary or --tokenizer is another, or --dtype")
    return block


class ReadyPreparation:
    """`options` are the command line's (cli.py)."""

    def __init__(self, options):
        self._options = options
        self._numpy = need("numpy", "preparing data")
        errors = [f"--{name.replace('_', '-')} is for texts; the files are tokens"
                  for name in ONLY_TEXTS if getattr(options, name)]
        self._folder = OutputFolder(options.out, options.force)
        if self._folder.problem:
            errors.append(self._folder.problem)
        self._tokenizer = None
        if options.tokenizer is not None:
            self._tokenizer = collect(errors, Tokenizer, options.tokenizer)
        self._training = [collect(errors, token_files.open_token_file, path, options.dtype) for path in options.files]
        self._validation = [collect(errors, token_files.open_token_file, path, options.dtype)
                            for path in options.validation]
        errors += inside_of(self._folder, options)
        self._vocabulary = options.vocabulary or (self._tokenizer and self._tokenizer.vocabulary)
        self._end = None
        if self._vocabulary is None:
            if options.tokenizer is None:
                errors.append("--vocabulary: expected the number that all ids are below, or --tokenizer; token "
                              "files do not say it")
        else:
            self._end = collect(errors, self._end_token)
        if self._tokenizer and options.vocabulary is not None and options.vocabulary < self._tokenizer.vocabulary:
            errors.append(f"--vocabulary: expected at least {self._tokenizer.vocabulary}, the tokenizer's, got "
                          f"{options.vocabulary}")
        self._files = [file for file in self._training + self._validation if file]
        if not errors:
            errors += self._refusals()
        if errors:
            raise Problems(errors)
        self._width = self._files[0].width
        if options.rewrite or options.copy:
            self._width = 2 if self._vocabulary <= 1 << 16 else 4

    def _end_token(self):
        given = self._options.end_token
        if self._tokenizer:
            if given is not None:
                return self._tokenizer.id_of(given, "--end-token")
            return self._tokenizer.end_token()
        if given is None:
            return None
        if not given.isdecimal() or int(given) >= self._vocabulary:
            raise Problem(f"--end-token: expected an id below {self._vocabulary}, since there is no --tokenizer, got "
                          f"'{given}'")
        return int(given)

    def _refusals(self):
        """Why files cannot be taken as they are."""
        errors = []
        for file in self._files:
            if file.starts is not None and self._end is None:
                errors.append(f"{file.path}: expected --end-token ID, to see whether its documents end with it")
                continue
            if self._options.rewrite:
                continue
            why = file.why_rewrite or (file.starts is not None and token_files.open_documents(file, self._end))
            if why:
                errors.append(f"{file.path}: {why}; --rewrite makes a copy that longhaul reads")
        if not (self._options.rewrite or self._options.copy):
            widths = {file.width for file in self._files if file.width}
            if len(widths) > 1:
                errors.append("expected token files of one width, got both 2 and 4 bytes per token; --copy makes a "
                              "copy of one width")
        return errors

    def run(self):
        """The summary. The folder is there when this returns, and not at all when it raises."""
        total = sum(os.path.getsize(file.path) for file in self._files)
        self._progress = Progress(total)
        try:
            with self._folder as folder:
                training, counts = self._entries("training", self._training)
                validation, validation_counts = self._entries("validation", self._validation)
                tokenizer = copy_tokenizer(self._tokenizer, self._end, folder.path) if self._tokenizer else None
                made = manifest.make(
                    tokenizer=tokenizer, end_token=self._end, vocabulary=self._vocabulary, width=self._width,
                    packed=0, documents=counts.documents, validation_documents=validation_counts.documents,
                    ends_inside=0, training=training, validation=validation)
                manifest.write(folder.path, made)
                folder.commit()
        finally:
            self._progress.clear()
        notes = []
        if self._end is None:
            notes.append("no --end-token was named, so nobody knows where documents begin")
        return Summary(made, counts, validation_counts, total, self._progress.seconds, None, notes)

    def _entries(self, name, files):
        """(the manifest's entries, counts)"""
        counts = Counts()
        if not (self._options.copy or self._options.rewrite):
            return [self._linked(f"{name}-{index:05}.bin", file, counts) for index, file in enumerate(files)], counts
        writer = ShardWriter(self._folder.path, name, self._width, limit_of(self._options, self._width), masked=False)
        for file in files:
            for at, block in self._parts(file):
                self._count(block, counts)
                writer.write(block)
        return writer.finish(), counts

    def _blocks(self, file):
        """(number of the first token, ids), checked, of CHUNK_BYTES each."""
        tokens, step = file.mapped(), CHUNK_BYTES // self._numpy.dtype(file.type).itemsize
        for at in range(0, file.tokens, step):
            self._progress.read(file.offset + at * tokens.itemsize)
            yield at, checked(self._numpy, file.path, at, tokens[at:at + step], self._vocabulary)
        self._progress.file_done(os.path.getsize(file.path))

    def _parts(self, file):
        """Blocks with the end tokens that Megatron's documents lack."""
        insert = self._options.rewrite and file.ends is not None
        for at, block in self._blocks(file):
            if insert and len(block):
                first, last = self._numpy.searchsorted(file.ends, (at + 1, at + len(block) + 1))
                ends = file.ends[first:last] - at
                ends = ends[block[ends - 1] != self._end]
                block = self._numpy.insert(block.astype(f"<u{self._width}"), ends, self._end)
            yield at, block

    def _linked(self, name, file, counts):
        """A hard link: workers read no file outside of a data set's folder, and follow no link out of it."""
        try:
            os.link(os.path.realpath(file.path), os.path.join(self._folder.path, name))
        except OSError as error:
            raise Problem(f"{file.path}: cannot be linked into {self._options.out} ({error.strerror}); make the data "
                          "set on the same disk, as the file's owner, or copy the tokens with --copy") from error
        hashes = ChunkHashes()
        for _, block in self._blocks(file):
            hashes.add(self._numpy.ascontiguousarray(block).data)
            self._count(block, counts)
        return {"file": name, "offset": file.offset, "tokens": file.tokens, "chunks": hashes.finish()}

    def _count(self, block, counts):
        if self._end is not None:
            counts.documents += int(self._numpy.count_nonzero(block == self._end))
