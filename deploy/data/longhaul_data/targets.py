"""Documents on which no token's loss counts."""
from .errors import need
from .pieces import place
from .report import counted


class TargetCount:
    """`context`: tokens of a packed conversation or completion that are kept; 0: all."""

    def __init__(self, context):
        self._numpy = need("numpy", "preparing data")
        self._context = context
        self._tokens = self._targets = 0  # in the document that is being read
        self.without = 0
        self.first = None

    def add(self, encoded):
        sums = self._numpy.concatenate([[0], self._numpy.cumsum(encoded.mask, dtype="i8")])
        begin = 0
        for piece, length in zip(encoded.pieces, encoded.lengths):
            if piece.first:
                self._tokens = self._targets = 0
            kept = length
            if self._context and not piece.rest:
                kept = max(0, min(length, self._context - self._tokens))
            self._targets += int(sums[begin + kept] - sums[begin])
            self._tokens += length
            begin += length
            if piece.last and self._targets == 0:
                self.without += 1
                self.first = self.first or piece.where


def no_targets(what, counts, roles):
    """Why files of which nothing would be learned are refused."""
    seen = f"; the roles are {roles}" if roles else ""
    return (f"{what}: expected tokens whose loss counts, got none in {counted(counts.documents, 'document')}, the "
            f"first of {place(counts.first_without)}{seen}; the loss counts on completions and on what 'assistant' "
            "says (--map assistant=ROLE), up to --pack")
