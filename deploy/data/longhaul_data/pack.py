"""Lays documents into windows of CONTEXT tokens so that none crosses a window's border."""
from .errors import need


class Windows:
    """Writes whole windows to `writer`. What does not fit into the rest of a window begins the next one, and end tokens
    that are no targets fill the rest.

    A training window reads CONTEXT + 1 tokens, so the last target of a window is the first token of the next one.
    That is the first token of a document or of a filling, which is never a target."""

    def __init__(self, writer, context, end_token, width):
        self._numpy = need("numpy", "preparing data")
        self._writer, self._context = writer, context
        self._filling = self._numpy.full(context, end_token, dtype=f"<u{width}")
        self._no_targets = self._numpy.zeros(context, dtype="u1")
        self._used = 0
        self.filled_tokens = 0

    def _write_together(self, parts, length):
        """Writes `parts`, pairs of ids and mask of `length` tokens in all, into one window."""
        if length > self._context - self._used:
            self._fill()
        for ids, mask in parts:
            self._writer.write(ids, mask)
        self._used = (self._used + length) % self._context

    def _fill(self):
        count = (self._context - self._used) % self._context
        self._writer.write(self._filling[:count], self._no_targets[:count])
        self.filled_tokens += count
        self._used = 0

    def finish(self):
        """The last window reads one token more, too."""
        self._fill()
        if self._writer.tokens:
            self._writer.write(self._filling[:1], self._no_targets[:1])


class Packer(Windows):
    """Writes documents so that none crosses a window's border; one that is longer than a window is cut."""

    def __init__(self, writer, context, end_token, width):
        super().__init__(writer, context, end_token, width)
        # The document that is being read; at most `context` tokens of it are kept.
        self._ids, self._masks, self._waiting, self._cut = [], [], 0, False
        self.cut_documents = self.dropped_tokens = 0

    def add(self, encoded):
        begin = 0
        for piece, length in zip(encoded.pieces, encoded.lengths):
            if piece.first:
                self._cut = False
            self._take(encoded.ids[begin:begin + length], encoded.mask[begin:begin + length], piece.rest)
            begin += length
            if piece.last:
                self._place()

    def _take(self, ids, mask, rest):
        while len(ids) > 0:
            if self._waiting == self._context:  # and there is more of it
                if not self._cut:
                    self._cut = True
                    self.cut_documents += 1
                if not rest:
                    self.dropped_tokens += len(ids)
                    return
                self._place()
                mask = mask.copy()
                mask[0] = 0
            room = self._context - self._waiting
            self._ids.append(ids[:room])
            self._masks.append(mask[:room])
            self._waiting += len(ids[:room])
            ids, mask = ids[room:], mask[room:]

    def _place(self):
        self._write_together(zip(self._ids, self._masks), self._waiting)
        self._ids, self._masks, self._waiting = [], [], 0
