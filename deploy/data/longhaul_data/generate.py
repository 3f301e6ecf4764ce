"""`longhaul generate`: text out of a model's folder. The ids are longhaul-generate's."""
import shutil
import subprocess
import sys

from .errors import Problem, printable
from .tokenizer import Tokenizer

# An unfinished character: bytes of the next token belong to it.
UNFINISHED = "\N{REPLACEMENT CHARACTER}"


def generate(options):
    try:
        run(options)
    finally:
        if options.temporary:
            shutil.rmtree(options.folder, ignore_errors=True)


def run(options):
    tokenizer = Tokenizer(options.folder, what="FROM")
    if options.chat:
        prompt = conversation(tokenizer, options)
    else:
        prompt = options.prompt
    ids = tokenizer.backend.encode(prompt, add_special_tokens=False).ids
    if not ids:
        raise Problem("--prompt: expected some text, got none")
    command = [options.program, options.folder, "--tokens", str(options.tokens), "--temperature",
               str(options.temperature), "--top-k", str(options.top_k), "--top-p", str(options.top_p), "--seed",
               str(options.seed), "--threads", str(options.threads)]
    stop = end_token(tokenizer)
    if stop is not None:
        command += ["--stop", str(stop)]
    if not options.chat:
        sys.stdout.write(printable(prompt))
        sys.stdout.flush()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write(" ".join(map(str, ids)) + "\n")
        process.stdin.close()
        follow(tokenizer, process.stdout)
    if process.returncode != 0:
        sys.exit(1)  # it has said why


def follow(tokenizer, lines):
    """Prints text as soon as its characters are whole."""
    ids, shown = [], ""
    for line in lines:
        if not line.strip():
            break
        ids.append(int(line))
        text = tokenizer.backend.decode(ids, skip_special_tokens=True)
        if text.endswith(UNFINISHED) or not text.startswith(shown):
            continue
        sys.stdout.write(printable(text[len(shown):]))
        sys.stdout.flush()
        shown = text
    sys.stdout.write("\n")


def conversation(tokenizer, options):
    from .chat import Template

    template = tokenizer.chat_template(with_tools=False)
    if template is None:
        raise Problem("--chat: the model's tokenizer has no chat template; leave --chat out")
    messages = [{"role": "user", "content": options.prompt}]
    text, _ = Template(template).render(messages=messages, tools=None, documents=None, add_generation_prompt=True,
                                        **tokenizer.special_tokens())
    return text


def end_token(tokenizer):
    """None where the tokenizer names none: then the text has all its tokens."""
    try:
        return tokenizer.end_token()
    except Problem:
        return None
