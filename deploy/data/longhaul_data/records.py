"""What the records of a file are, by their fields, and how each becomes a document: texts, prompts with
completions, conversations."""
from . import pairs, readers
from .errors import Findings, Problem
from .fields import Names, quoted
from .messages import Conversation, Reader
from .pieces import Piece, bounded, place
from .readers import type_name

TEXT, PROMPTS, MESSAGES, CONVERSATIONS, CHOSEN, ALPACA = (
    "text", "prompt and completion", "messages", "conversations", "chosen", "instruction and output")
# In the order in which they are looked for.
NEEDED = {MESSAGES: ("messages",), CONVERSATIONS: ("conversations",), CHOSEN: ("chosen",),
          PROMPTS: ("prompt", "completion"), TEXT: ("text",), ALPACA: ("instruction", "output")}
MORE = {MESSAGES: ("tools", "system"), CONVERSATIONS: ("tools", "system"), CHOSEN: ("prompt", "rejected", "tools"),
        PROMPTS: ("tools",), TEXT: (), ALPACA: ("input", "system", "history")}


def style_of(path, found, field, names):
    """`found` are the names of the first record's fields."""
    if field is not None:
        if field not in found:
            raise Problem(f"{path}: expected the field '{field}' (--field), got {quoted(found)}")
        return TEXT
    for ours in names.mapped():
        if names.theirs(ours) not in found:
            raise Problem(f"{path}: expected the field '{names.theirs(ours)}' (--map {ours}={names.theirs(ours)}), got "
                          f"{quoted(found)}")
    if possible := styles(found, names):
        return possible[0]
    raise Problem(f"{path}: expected the fields 'text', 'prompt' and 'completion', or 'messages' ('conversations', "
                  f"'chosen', 'instruction' and 'output' are taken, too), got {quoted(found)}; name the field that has "
                  "the text with --field, or the field of another format with --map, for example --map messages=NAME")


def styles(found, names):
    """What records with these fields can be, the style that is taken first."""
    return [style for style, needed in NEEDED.items() if all(names.theirs(ours) in found for ours in needed)]


class Style:
    """How records of one file become pieces. `in_pairs`: a record has a chosen and a rejected answer, and becomes two
    documents."""

    def __init__(self, style, field, cutter, chat, names=None, in_pairs=False):
        self.style = style
        self._in_pairs = in_pairs
        self.same_answers = 0  # pairs that were left out because both answers are the same
        self._names = names or Names()
        self._field = field or self._names.theirs("text")
        self._cutter = cutter
        self._chat = chat

    def columns(self, there):
        """The columns to read. `there`: the columns that the file has."""
        if self.style == TEXT:
            return [self._field]
        wanted = [self._names.theirs(ours) for ours in (*NEEDED[self.style], *MORE[self.style])]
        return [name for name in wanted if name in there]

    def pieces(self, where, record):
        """Lists of pieces: one list a document, but of long texts one a piece. Empty: an empty document."""
        if self._in_pairs:
            yield from self._two(where, record)
            return
        if self.style == TEXT:
            text = self._text(where, record, self._field)
            if not text:
                yield []
                return
            yield from ([piece] for piece in self._cutter.cut([text], where))
            return
        pair = self._pair(where, record)
        if pair is not None:
            yield self._completed(where, *pair)
            return
        yield from self._chat.pieces(where, self._conversation(Reader(where, self._names), record))

    @staticmethod
    def _completed(where, prompt, completion):
        return [Piece(bounded(prompt, where), where, last=False, loss=False, rest=False),
                Piece(bounded(completion, where), where, first=False, loss=True, rest=False)]

    def _two(self, where, record):
        """The documents of a chosen and of a rejected answer."""
        chosen, rejected = (self._value(where, record, self._names.theirs(ours)) for ours in pairs.NEEDED)
        prompt = record.get(self._names.theirs("prompt"))
        if any(isinstance(value, list) for value in (prompt, chosen, rejected)):
            yield from self._two_conversations(where, record)
            return
        found = pairs.texts(where, prompt and self._text(where, record, self._names.theirs("prompt")), chosen, rejected)
        if found is None:
            self.same_answers += 1
            return
        for answer in found[1:]:
            yield self._completed(where, found[0], answer)

    def _two_conversations(self, where, record):
        reader = Reader(where, self._names)
        value = {ours: record.get(self._names.theirs(ours)) for ours in ("prompt", "chosen", "rejected", "tools")}
        prompt = [] if value["prompt"] is None else self._turns(reader, value["prompt"], "prompt", "user")
        sides = [self._turns(reader, value[ours], ours, "assistant") for ours in pairs.NEEDED]
        found = pairs.conversations(where, prompt, *sides, reader.tools(value["tools"]))
        if found is None:
            self.same_answers += 1
            return
        documents = [list(self._chat.pieces(where, conversation)) for conversation in found]
        if any(len(each) != 1 for each in documents):
            raise Problem(f"{place(where)}: the chat template rewrites earlier messages, so an answer of several "
                          "messages has no text of its own; end the prompt before the last message, or name another "
                          "template with --chat-template")
        yield from (each[0] for each in documents)

    def _value(self, where, record, name):
        if name not in record:
            raise Problem(f"{place(where)}: expected the field '{name}', got {quoted(record)}")
        return record[name]

    def _text(self, where, record, name):
        text = self._value(where, record, name)
        if not isinstance(text, str):
            raise Problem(f"{place(where)}: expected text in '{name}', got {type_name(text)}")
        return text

    def _pair(self, where, record):
        """(prompt, completion) where both are text, or None. A chosen text without a prompt has an empty one."""
        if self.style not in (PROMPTS, CHOSEN):
            return None
        names = [self._names.theirs(ours) for ours in ("prompt", "completion" if self.style == PROMPTS else "chosen")]
        values = [self._value(where, record, names[1])]
        if self.style == PROMPTS or record.get(names[0]) is not None:
            values.insert(0, self._value(where, record, names[0]))
        if any(isinstance(value, list) for value in values):
            return None
        pair = [self._text(where, record, name) for name in names[-len(values):]]
        return pair if len(pair) == 2 else ("", *pair)

    def _conversation(self, reader, record):
        if self.style == ALPACA:
            return self._alpaca(reader, record)
        value = {ours: record.get(self._names.theirs(ours)) for ours in (*NEEDED[self.style], *MORE[self.style])}
        tools = reader.tools(value["tools"])
        if self.style == PROMPTS:
            prompt = self._turns(reader, value["prompt"], "prompt", "user")
            said = self._turns(reader, value["completion"], "completion", "assistant")
            return Conversation(prompt + said, tools, len(prompt))
        if self.style == CHOSEN:
            return self._chosen(reader, value, tools)
        field = self._names.theirs(NEEDED[self.style][0])
        messages = reader.messages(record.get(field), field)
        return Conversation(self._with_system(value["system"], messages), tools)

    def _turns(self, reader, value, ours, role):
        """A list of messages, or a text, which is one."""
        name = self._names.theirs(ours)
        return [{"role": role, "content": value}] if isinstance(value, str) else reader.messages(value, name)

    def _chosen(self, reader, value, tools):
        """What the chosen side adds to the prompt, or to the beginning that it shares with the rejected side."""
        chosen = self._turns(reader, value["chosen"], "chosen", "assistant")
        prompt = [] if value["prompt"] is None else self._turns(reader, value["prompt"], "prompt", "user")
        if chosen[:len(prompt)] != prompt:
            return Conversation(prompt + chosen, tools, len(prompt))
        shared = len(prompt)
        if isinstance(value["rejected"], list):
            rejected = reader.messages(value["rejected"], self._names.theirs("rejected"))
            while shared < min(len(chosen), len(rejected)) and chosen[shared] == rejected[shared]:
                shared += 1
        return Conversation(chosen, tools, shared)

    @staticmethod
    def _with_system(system, messages):
        if isinstance(system, str) and system and messages[0]["role"] != "system":
            return [{"role": "system", "content": system}, *messages]
        return messages

    def _alpaca(self, reader, record):
        texts = {}
        for ours in ("instruction", "output", "input", "system"):
            name = self._names.theirs(ours)
            if ours in NEEDED[ALPACA] or record.get(name) is not None:
                texts[ours] = self._text(reader.where, record, name)
        messages = []
        history = reader.json_text(record.get(self._names.theirs("history")) or [], "'history'")
        for number, turn in enumerate(history if isinstance(history, list) else [history], start=1):
            if not isinstance(turn, list) or len(turn) != 2 or not all(isinstance(each, str) for each in turn):
                reader.refuse(f"expected a list of two texts as turn {number} of 'history', got {type_name(turn)}")
            messages += [{"role": "user", "content": turn[0]}, {"role": "assistant", "content": turn[1]}]
        asked = "\n".join(text for text in (texts["instruction"], texts.get("input")) if text)
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": texts["output"]}]
        return Conversation(self._with_system(texts.get("system"), messages))


def open_records(path, kind, style, names, progress):
    """Lists of pieces. After the first record that is refused the rest is read for its errors alone."""
    found = Findings(path)
    records = readers.read(path, kind, style.columns(names), progress)
    while not found.full():
        try:
            where, record = next(records, (None, None))
        except Problem as error:  # nothing can be read after it
            found.add(error)
            break
        if where is None:
            break
        try:
            if isinstance(record, Problem):
                raise record
            for pieces in style.pieces(where, record):
                if not found:
                    yield pieces
        except Problem as error:
            found.add(error)
    found.raise_any()
