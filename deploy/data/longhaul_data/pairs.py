"""Pairs of answers (`--pairs`): which of two is preferred. A record becomes two documents, first that of the chosen
answer, then that of the rejected one."""
import os

from .errors import Problem
from .fields import quoted
from .messages import Conversation
from .pack import Windows
from .pieces import place
from .readers import type_name

NEEDED = ("chosen", "rejected")


def check_fields(path, found, names):
    """`found` are the names of the first record's fields."""
    missing = [names.theirs(ours) for ours in NEEDED if names.theirs(ours) not in found]
    if missing:
        raise Problem(f"{path}: expected the fields 'chosen' and 'rejected' (--pairs), got {quoted(found)}; name "
                      "others with --map, for example --map chosen=NAME")


def shared_words(one, other):
    """Length of the text that both begin with, up to the end of a word. What follows is an answer."""
    shared = len(os.path.commonprefix([one, other]))
    while shared > 0 and not one[shared - 1].isspace():
        shared -= 1
    # A space belongs to the word behind it, as tokenizers have it.
    return shared - 1 if shared > 0 and one[shared - 1] == " " else shared


def texts(where, prompt, chosen, rejected):
    """(prompt, chosen answer, rejected answer), or None where the answers are the same. Without a prompt it is what
    both texts begin with."""
    if chosen == rejected:
        return None
    for name, text in zip(NEEDED, (chosen, rejected)):
        if not isinstance(text, str):
            raise Problem(f"{place(where)}: expected text in '{name}' as in the prompt, got {type_name(text)}")
    if prompt is not None:
        return prompt, chosen, rejected
    shared = shared_words(chosen, rejected)
    return chosen[:shared], chosen[shared:], rejected[shared:]


def conversations(where, prompt, chosen, rejected, tools):
    """Two conversations, or None where they are the same. The prompt is `prompt`, and what both have behind it
    alike."""
    sides = [side if side[:len(prompt)] == prompt else prompt + side for side in (chosen, rejected)]
    if sides[0] == sides[1]:
        return None
    shared = len(prompt)
    while shared < min(map(len, sides)) and sides[0][shared] == sides[1][shared]:
        shared += 1
    for name, side in zip(NEEDED, sides):
        if not any(message["role"] == "assistant" for message in side[shared:]):
            raise Problem(f"{place(where)}: expected a message of 'assistant' in '{name}' that the other side does not "
                          "have; got none")
    return [Conversation(side, tools, shared) for side in sides]


class PairPacker(Windows):
    """Writes pairs so that none crosses a window's border: they are documents 0 and 1, 2 and 3, ... of a window."""

    def __init__(self, writer, context, end_token, width):
        super().__init__(writer, context, end_token, width)
        self._end = end_token
        self._parts, self._length = [], 0  # of the document that is being read
        self._documents = []               # of the pair that is being read: (ids, mask, length)
        self.pairs = self.too_long = self.without_targets = 0

    def add(self, encoded):
        begin = 0
        for piece, length in zip(encoded.pieces, encoded.lengths):
            # More than a window is only counted.
            if self._length <= self._context:
                self._parts.append((encoded.ids[begin:begin + length], encoded.mask[begin:begin + length]))
            self._length += length
            begin += length
            if piece.last:
                self._end_document(piece.where)

    def _end_document(self, where):
        ids, mask = (self._numpy.concatenate(arrays) for arrays in zip(*self._parts))
        if self._length <= self._context and (ids == self._end).sum() > 1:
            raise Problem(f"{place(where)}: the end token also stands inside of a document of a pair, as where it ends "
                          "each turn of a conversation, so documents could not be told apart; name another one with "
                          "--end-token")
        self._documents.append((ids, mask, self._length))
        self._parts, self._length = [], 0
        if len(self._documents) == 2:
            self._place(*self._documents)
            self._documents = []

    def _place(self, chosen, rejected):
        length = chosen[2] + rejected[2]
        if length > self._context:
            self.too_long += 1
            return
        if not (chosen[1].any() and rejected[1].any()):
            self.without_targets += 1
            return
        self._write_together(((ids, mask) for ids, mask, _ in (chosen, rejected)), length)
        self.pairs += 1
