"""From pieces of text to arrays of ids, in batches, two at a time on threads of their own."""
import array
import collections
import concurrent.futures
import dataclasses
import threading

from .errors import Problem, need
from .pieces import place

BATCH_CHARACTERS = 1 << 20
BATCH_PIECES = 8192
# Batches with a longer piece are encoded one at a time, for their memory.
LONG_CHARACTERS = 4 << 20
# Batches under way. While the ids of one become an array, the other has the cores.
THREADS = 2
AHEAD = THREADS + 2


@dataclasses.dataclass
class Encoded:
    """A batch's tokens, those that begin and end documents among them."""

    ids: object       # numpy array of the data set's type
    mask: object      # numpy array of 0 and 1, or None
    lengths: list     # tokens of each piece
    pieces: list
    ends_inside: int  # end tokens that end no document


def batches_of(documents, counts):
    """Lists of pieces. `documents` yields lists of pieces; an empty one is an empty document."""
    batch, characters = [], 0
    for pieces in documents:
        if not pieces:
            counts.empty += 1
            continue
        for piece in pieces:
            batch.append(piece)
            characters += len(piece.text)
        if characters >= BATCH_CHARACTERS or len(batch) >= BATCH_PIECES:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


class Encoder:
    """Thread-safe."""

    def __init__(self, backend, width, end_token, begin_token=None, masked=False):
        self._numpy = need("numpy", "preparing data")
        self._backend = backend
        self._type = f"<u{width}"
        self._end = end_token
        self._begin = begin_token
        self._masked = masked
        self._long = threading.Lock()

    def encode(self, batch):
        if sum(len(piece.text) for piece in batch) > LONG_CHARACTERS:
            with self._long:
                return self._encode(batch)
        return self._encode(batch)

    def _encode(self, batch):
        encodings = self._encodings(batch)
        if self._masked:
            ids, lengths, mask = self._with_mask(batch, encodings)
        else:
            (ids, lengths), mask = self._plain(batch, encodings), None
        # array takes a third of the time that numpy takes for a list.
        tokens = self._numpy.frombuffer(array.array("I", ids), dtype="=u4").astype(self._type)
        ends = int(self._numpy.count_nonzero(tokens == self._end))
        return Encoded(tokens, mask, lengths, batch, ends - sum(piece.last for piece in batch))

    def _encodings(self, batch):
        texts = [piece.text for piece in batch]
        # Only conversations need to know where in the text a token stands.
        with_places = any(piece.spans is not None for piece in batch)
        encode = self._backend.encode_batch if with_places else self._backend.encode_batch_fast
        try:
            return encode(texts, add_special_tokens=False)
        except Exception:
            for piece in batch:
                self._try_alone(piece)
            raise

    def _try_alone(self, piece):
        try:
            piece.text.encode("utf-8")
            self._backend.encode(piece.text, add_special_tokens=False)
        except UnicodeEncodeError as error:
            raise Problem(f"{place(piece.where)}: expected text, got half of a surrogate pair, "
                          f"U+{ord(piece.text[error.start]):04X}") from error
        except Exception as error:
            raise Problem(f"{place(piece.where)}: the tokenizer fails; {error}") from error

    def _plain(self, batch, encodings):
        ids, lengths, before = [], [], 0
        begin, end = self._begin, self._end
        for piece, encoding in zip(batch, encodings):
            if begin is not None and piece.first:
                ids.append(begin)
            ids += encoding.ids
            if piece.last:
                ids.append(end)
            lengths.append(len(ids) - before)
            before = len(ids)
        return ids, lengths

    def _with_mask(self, batch, encodings):
        ids, lengths, mask, fresh = [], [], bytearray(), False
        for piece, encoding in zip(batch, encodings):
            own = encoding.ids
            own_mask = self._spans(piece, encoding) if piece.spans is not None else bytearray([piece.loss]) * len(own)
            # A chat template may have written both by itself.
            whole = piece.spans is not None
            if self._begin is not None and piece.first and not (whole and own[:1] == [self._begin]):
                own, own_mask = [self._begin, *own], b"\0" + own_mask
            if piece.last and not (whole and own[-1:] == [self._end]):
                # The template may have ended the last target by it, with a line break after.
                target = own_mask.rfind(1) if whole else -1
                said = target >= 0 and own[target] == self._end
                own, own_mask = [*own, self._end], own_mask + bytes([piece.end_counts and not said])
            # Nothing of its document stands before the first token of it. An empty prompt has none.
            fresh = fresh or piece.first
            if fresh and own:
                own_mask, fresh = b"\0" + own_mask[1:], False
            ids += own
            mask += own_mask
            lengths.append(len(own))
        return ids, lengths, self._numpy.frombuffer(bytes(mask), dtype="u1")

    @staticmethod
    def _spans(piece, encoding):
        """From the token of a span's first character to that of its last. Some tokenizers have no token for a
        space at an end of a span; then the next character inside counts."""
        mask = bytearray(len(encoding.ids))
        for begin, end in piece.spans:
            first = next((at for at in map(encoding.char_to_token, range(begin, end)) if at is not None), None)
            if first is None:
                continue
            backwards = map(encoding.char_to_token, range(end - 1, begin - 1, -1))
            stop = next(at for at in backwards if at is not None) + 1
            mask[first:stop] = b"\1" * (stop - first)
        return mask


def in_order(encoder, batches):
    """Encoded batches, in the order of `batches`. Reading goes on in the caller's thread."""
    pool = concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="encode")
    waiting = collections.deque()
    try:
        for batch in batches:
            waiting.append(pool.submit(encoder.encode, batch))
            while len(waiting) >= AHEAD or (waiting and waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
