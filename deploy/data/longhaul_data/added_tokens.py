"""Tokens that only tokenizer_config.json or added_tokens.json names, added as transformers adds them."""
from .errors import Problem, need

ATTRIBUTES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def declared(config, added, special):
    """{id: token} of what the files declare."""
    package = need("tokenizers", "tokenizing")
    if "added_tokens_decoder" in config:
        return {int(number): package.AddedToken(token["content"], **{flag: token[flag] for flag in FLAGS
                                                                     if flag in token})
                for number, token in config["added_tokens_decoder"].items()}
    return {number: package.AddedToken(text, rstrip=False, lstrip=False, normalized=text not in special,
                                       special=text in special) for text, number in added.items()}


def add(backend, config, added, special, folder):
    """Adds to `backend`. `config` and `added` are the files' objects; `special`: {"eos_token": "</s>", ...}.

    A special token that no file gives an id is not added: it would get one beyond the model's vocabulary."""
    package = need("tokenizers", "tokenizing")
    named = {text for name, text in special.items() if name in ATTRIBUTES}
    try:
        wanted = declared(config, added, named)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Problem(f"{folder}: expected added tokens with an id and a 'content' in tokenizer_config.json and "
                      f"added_tokens.json; {error!r}") from error
    legacy = "added_tokens_decoder" not in config
    there = backend.get_added_tokens_decoder().values()
    known, texts = {repr(token) for token in there}, {token.content for token in there}
    tokens = {number: token for number, token in sorted(wanted.items())
              if repr(token) not in known and not (legacy and token.content in texts)}
    texts |= {token.content for token in tokens.values()}
    fresh = {number: token for number, token in tokens.items() if backend.token_to_id(token.content) is None}
    more = [package.AddedToken(text, special=True) for text in sorted(named)
            if text not in texts and backend.token_to_id(text) is not None]
    for token in tokens.values():
        token.special = token.special or token.content in named
    backend.add_tokens([*tokens.values(), *more])
    for number, token in fresh.items():
        got = backend.token_to_id(token.content)
        if got != number:
            raise Problem(f"{folder}: tokenizer_config.json or added_tokens.json gives '{token.content}' the id "
                          f"{number}, but after the tokens of tokenizer.json it gets {got}; expected a tokenizer.json "
                          "that has the token")
