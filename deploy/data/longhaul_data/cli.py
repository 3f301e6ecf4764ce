"""The command line of `longhaul data`."""
import argparse
import json
import re
import signal
import sys

from . import files
from .errors import Problem, Problems, printable

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
SIZE = re.compile(r"(\d+)(KiB|MiB|GiB)?")
UNITS = {None: 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size(text):
    match = SIZE.fullmatch(text)
    if not match or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"expected a size such as 256MiB, got '{text}'")
    return int(match[1]) * UNITS[match[2]]


def positive(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a number from 1, got '{text}'")
    return int(text)


def context(text):
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"expected a number of tokens from 2, got '{text}'")
    return int(text)


def not_empty(text):
    if not text:
        raise argparse.ArgumentTypeError("expected LINE, BLANK or a text, got none")
    return text


def vocabulary(text):
    number = positive(text)
    if number > 1 << 31:
        raise argparse.ArgumentTypeError(f"expected at most {1 << 31}, got {number}")
    return number


PREPARE = """Makes a data set, a folder of token shards with a manifest, out of texts.

Texts: a file is a document. .jsonl, .json, .csv, .tsv (also with .gz or .zst) and .parquet: a record is a document.
Its field 'text', or that of --field, has the text; 'prompt' and 'completion' make a document whose loss counts on the
completion; 'messages' are rendered by the tokenizer's chat template, and the loss counts on what the assistant says.
Conversations may also be 'conversations' (ShareGPT), 'instruction', 'input' and 'output' (Alpaca), 'prompt' and
'completion' as lists of messages, or 'chosen'. --map names other fields.

With --pairs a record has a 'chosen' and a 'rejected' answer, and both become documents.

Token files are linked into DIR, which takes no space: .bin of nanoGPT, llm.c and Megatron (with its .idx), .npy.

Files may be at addresses, which are downloaded first: hf://datasets/ORG/NAME[@REVISION]/PATH, s3://BUCKET/KEY,
gs://BUCKET/KEY, https://HOST/PATH. A folder there means all files in it that are of the kinds above."""


def add_prepare(commands):
    command = commands.add_parser("prepare", help="make a data set of texts or token files", description=PREPARE,
                                  formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    command.add_argument("files", nargs="+", metavar="FILE", help="what to train on: files, or addresses")
    command.add_argument("--tokenizer", metavar="PATH", help="tokenizer.json, a folder that has it, or an address")
    command.add_argument("--out", metavar="DIR", required=True, help="the data set's folder")
    command.add_argument("--force", action="store_true", help="replace the data set that is there")
    command.add_argument("--validation", nargs="+", action="extend", default=[], metavar="FILE",
                         help="what to validate on")
    command.add_argument("--as", dest="kind", choices=files.KINDS,
                         help="what all files are, whatever their names")
    command.add_argument("--json", action="store_true", help="print the summary as JSON")
    command.add_argument("--shard-size", dest="shard_bytes", type=size, default=256 << 20, metavar="SIZE",
                         help="bytes of tokens in a file, at most (256MiB)")
    group = command.add_argument_group("texts")
    group.add_argument("--field", metavar="NAME", help="field of a record that has the text (text)")
    group.add_argument("--map", action="append", default=[], metavar="OURS=THEIRS",
                       help="another name of a field, of a message's key or of a role: messages=dialog, "
                       "content=utterance, assistant=bot; may stand several times")
    group.add_argument("--split-on", type=not_empty, metavar="LINE|BLANK|TEXT",
                       help="split text files into documents: at ends of lines, at blank lines, or at this text")
    group.add_argument("--begin-token", metavar="TOKEN", help="put this token before each document")
    group.add_argument("--end-token", metavar="TOKEN|ID",
                       help="token that ends a document (the tokenizer's eos_token)")
    group.add_argument("--chat-template", metavar="FILE", help="instead of the tokenizer's")
    group.add_argument("--pack", type=context, default=0, metavar="CONTEXT",
                       help="no document crosses a multiple of so many tokens")
    group.add_argument("--pairs", action="store_true",
                       help="records have a 'chosen' and a 'rejected' answer, for train.dpo; with --pack, as a window "
                       "has whole pairs")
    group = command.add_argument_group("token files")
    group.add_argument("--dtype", choices=("uint16", "uint32"), help="of a .bin without header (uint16)")
    group.add_argument("--vocabulary", type=vocabulary, metavar="N",
                       help="ids are below this number; with a tokenizer: of the model, at least the tokenizer's")
    group.add_argument("--copy", action="store_true", help="copy the tokens into the data set, instead of linking their files")
    group.add_argument("--rewrite", action="store_true",
                       help="copy them in the data set's type, with an end token after each of Megatron's documents")


def add_show(commands):
    command = commands.add_parser("show", help="what is in a data set", allow_abbrev=False,
                                  description="Prints what is in a data set, and its first tokens as text.")
    command.add_argument("folder", metavar="DIR", help="the data set's folder")
    command.add_argument("--tokens", type=positive, default=64, metavar="N", help="so many first tokens (64)")
    command.add_argument("--text", type=positive, metavar="N",
                         help="the first N documents as text instead, the tokens whose loss counts in colour or in "
                         "\u27e6 \u27e7")
    command.add_argument("--check", action="store_true", help="compare all bytes with the manifest's hashes")
    command.add_argument("--json", action="store_true", help="print the manifest's numbers as JSON")


def add_generate(commands):
    """`longhaul generate` says all of these; what they mean is told there."""
    command = commands.add_parser("generate", allow_abbrev=False)
    command.add_argument("folder")
    command.add_argument("--program", required=True)
    command.add_argument("--temporary", action="store_true", help="delete the folder in the end")
    command.add_argument("--prompt", required=True)
    command.add_argument("--chat", action="store_true")
    command.add_argument("--device", required=True)
    for name in ("tokens", "top-k", "seed", "threads"):
        command.add_argument(f"--{name}", type=int, required=True)
    for name in ("temperature", "top-p"):
        command.add_argument(f"--{name}", type=float, required=True)


def add_tokens(commands):
    """For `longhaul submit` and `longhaul generate` of a run."""
    command = commands.add_parser("tokens", allow_abbrev=False)
    command.add_argument("folder")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="longhaul data", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_prepare(commands)
    add_show(commands)
    add_generate(commands)
    add_tokens(commands)
    return parser.parse_args(arguments)


def prepare(options):
    from .fetch import Inputs

    with Inputs(options) as inputs:
        try:
            text = prepared(options, inputs)
        except (Problem, Problems) as error:
            raise Problem(inputs.named(str(error))) from error
        except OSError as error:
            raise Problem(inputs.named(f"{error.filename or options.command}: {error.strerror}")) from error
        print(inputs.named(text))


def prepared(options, inputs):
    """What is said of it."""
    from . import prepare as texts, report

    kinds = {options.kind or kind_or_text(path) for path in (*options.files, *options.validation)}
    if files.TOKENS in kinds:
        from .ready import ReadyPreparation

        if kinds != {files.TOKENS}:
            raise Problem("expected texts or token files, got both; make a data set of each")
        if options.pairs:
            raise Problem("--pairs is for records with 'chosen' and 'rejected'; the files are token files")
        # Files that were fetched do not stay where they lie.
        options.copy = options.copy or (bool(inputs) and not options.rewrite)
        summary = ReadyPreparation(options).run()
    else:
        if options.tokenizer is None:
            raise Problem("--tokenizer: expected tokenizer.json or a folder that has it; texts need one")
        for name in ("dtype", "copy", "rewrite"):
            if getattr(options, name):
                raise Problem(f"--{name} is for token files; the files are texts")
        texts.check_numpy()
        summary = texts.TextPreparation(options).run()
    return json.dumps(report.as_json(summary)) if options.json else report.as_text(summary, options.out)


def kind_or_text(path):
    try:
        return files.kind_of(path)
    except Problem:
        return files.TEXTS  # refused with all others, later


def show(options):
    from . import show as command

    command.show(options)


def generate(options):
    from . import generate as command

    command.generate(options)


def tokens(options):
    from . import tokens as command

    command.tokens(options)


def interrupted(*_):
    raise KeyboardInterrupt


def main(arguments):
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, interrupted)
    options = parse(arguments)
    try:
        {"prepare": prepare, "show": show, "generate": generate, "tokens": tokens}[options.command](options)
        sys.stdout.flush()
        return DONE
    except (Problem, Problems) as error:
        print(printable(str(error)), file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        sys.stderr.close()
        return FAILED
    except OSError as error:
        print(printable(f"{error.filename or options.command}: {error.strerror}"), file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("interrupted; nothing was written", file=sys.stderr)
        return INTERRUPTED
