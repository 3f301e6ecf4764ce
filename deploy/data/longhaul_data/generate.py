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
    check_text(options.prompt)
    tokenizer = Tokenizer(options.folder, what="FROM")
    if options.chat:  # templates have the begin token in them
        ids = tokenizer.backend.encode(conversation(tokenizer, options.prompt), add_special_tokens=False).ids
    else:
        ids = beginning(tokenizer, options.prompt)
    if not tokenizer.backend.encode(options.prompt, add_special_tokens=False).ids:
        raise Problem("--prompt: expected some text, got none")
    command = [options.program, options.folder, "--tokens", str(options.tokens), "--temperature",
               str(options.temperature), "--top-k", str(options.top_k), "--top-p", str(options.top_p), "--seed",
               str(options.seed), "--threads", str(options.threads), "--device", options.device]
    stop = end_tokens(tokenizer)
    if stop:
        command += ["--stop", ",".join(map(str, stop))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write(" ".join(map(str, ids)) + "\n")
        process.stdin.close()
        follow(tokenizer, ids, "" if options.chat else options.prompt, process.stdout)
    if process.returncode != 0:
        sys.exit(1)  # it has said why


def check_text(prompt):
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Problem("--prompt: expected UTF-8, got other bytes") from error


def beginning(tokenizer, prompt):
    """The prompt's ids, with the token before them that the tokenizer puts before a text."""
    plain = tokenizer.backend.encode(prompt, add_special_tokens=False).ids
    whole = tokenizer.backend.encode(prompt, add_special_tokens=True).ids
    # Some tokenizers put an end token behind a text, too, which a text that goes on has not.
    first = next((k for k in range(len(whole)) if whole[k:k + len(plain)] == plain), None)
    before = whole[:first] if plain and first else []
    if not before and tokenizer.beside("tokenizer_config.json").get("add_bos_token") is True:
        token = tokenizer.backend.token_to_id(tokenizer.special_tokens().get("bos_token", ""))
        before = [] if token is None or plain[:1] == [token] else [token]
    return before + plain


def follow(tokenizer, prompt_ids, prompt, lines):
    """Prints the prompt once the model has answered, then text as soon as its characters are whole. Ids are decoded with those
    of the prompt: alone, some tokenizers take the space before a word from them."""
    ids, begun = list(prompt_ids), False
    shown = tokenizer.backend.decode(ids, skip_special_tokens=True)
    for line in lines:
        if not begun:
            sys.stdout.write(printable(prompt))
            begun = True
        if not line.strip():
            sys.stdout.write("\n")
            break
        ids.append(int(line))
        text = tokenizer.backend.decode(ids, skip_special_tokens=True)
        if not text.endswith(UNFINISHED) and text.startswith(shown):
            sys.stdout.write(printable(text[len(shown):]))
            shown = text
        sys.stdout.flush()


def conversation(tokenizer, prompt):
    from .chat import Template

    template = tokenizer.chat_template(with_tools=False)
    if template is None:
        raise Problem("--chat: the model's tokenizer has no chat template; leave --chat out")
    messages = [{"role": "user", "content": prompt}]
    text, _ = Template(template).render(messages=messages, tools=None, documents=None, add_generation_prompt=True,
                                        **tokenizer.special_tokens())
    return text


def end_tokens(tokenizer):
    """Ids that end a text, by the tokenizer and the model's own files; none: the text has all its tokens."""
    found = set()
    try:
        found.add(tokenizer.end_token())
    except Problem:
        pass
    for file in ("generation_config.json", "config.json"):
        named = tokenizer.beside(file).get("eos_token_id")
        found.update(id_ for id_ in (named if isinstance(named, list) else [named])
                     if isinstance(id_, int) and not isinstance(id_, bool) and id_ >= 0)
    return sorted(found)
