"""Finds what the assistant says in conversations that a chat template renders without marks.

A message of the assistant is trained as it is at inference: before it stands the template's rendering of the messages
before it with a generation prompt. Templates rewrite earlier messages, for example Qwen3's, which drops what the
assistant thought. Then a conversation becomes several documents, each with the history as it is at that turn."""
import dataclasses
import os

# How long the text between a generation prompt and a message's content may be, for example an empty thought.
LEAD = 256
PLACEHOLDERS = "\ue0f1\ue0f2\ue0f3"


class NotFound(Exception):
    """Why an assistant's message cannot be found in the rendered text."""


@dataclasses.dataclass
class Document:
    text: str
    spans: list    # (begin, end) of characters
    whole: bool    # whether the conversation ends with this document


class Turns:
    """Documents of one conversation. `render(messages, prompt)` gives text; `ends` are texts of special tokens."""

    def __init__(self, render, ends):
        self._render, self._ends = render, tuple(ends)
        self.whole = None  # the text of the whole conversation

    def documents(self, messages, first_target):
        """Documents in order. A document goes on for as long as the template leaves its text unchanged."""
        whole = self.whole = self._render(messages, False)
        made = []
        for number in range(first_target, len(messages)):
            if messages[number]["role"] != "assistant":
                continue
            before, text = self._turn(messages, number)
            span = (len(before), max(len(before), self._end(text)))
            if made and before.startswith(made[-1].text):
                made[-1].text = text  # the document goes on
                made[-1].spans.append(span)
            else:
                made.append(Document(text, [span], False))
        if not made:
            return [Document(whole, [], True)]
        if whole.startswith(made[-1].text):
            made[-1].text = whole
            made[-1].whole = True
        else:
            made[-1].whole = messages[-1]["role"] == "assistant"
        return made

    def _end(self, text):
        """Without the line break that a template writes after the token that ends a message: no model says it."""
        said = text.rstrip()
        return len(said) if self._ends and said.endswith(self._ends) else len(text)

    def _turn(self, messages, number):
        """(text before what message `number` says, text with it)"""
        text = self._render(messages[:number + 1], False)
        before = None
        # Templates look at the first message, so none is rendered without one.
        if number > 0:
            before = self._render(messages[:number], True)
            if text.startswith(before):
                return before, text
        at = self._begin(messages, number, text, before)
        if before is None:
            return text[:at], text
        return before, before + text[at:]

    def _begin(self, messages, number, text, before):
        """Where in `text` begins what follows the generation prompt. A rendering with another content bounds the place
        from above. It is the last one before which the prompt's end stands, with the message before: earlier turns may
        say the same."""
        mark = next((mark for mark in PLACEHOLDERS if mark not in text), None)
        if mark is None:
            raise NotFound("its text has characters of a private use area")
        other = self._render([*messages[:number], {"role": "assistant", "content": mark}], False)
        if mark not in other:
            raise NotFound("the template leaves out its content")
        common = len(os.path.commonprefix([text, other]))
        wanted = self._generation_prompt() if before is None else before
        if not wanted:
            return common
        last = messages[number - 1]["content"]
        needed = wanted if before is None else last.strip() if isinstance(last, str) else ""
        for at in range(common, max(-1, common - LEAD), -1):
            if text[at - 1:at] == wanted[-1]:
                shared = len(os.path.commonprefix([text[:at][::-1], wanted[::-1]]))
                if needed and needed in text[at - shared:at]:
                    return at
        if before is None:
            raise NotFound("the template writes no generation prompt before it")
        raise NotFound(f"with a generation prompt the text before message {number + 1} ends in {before[-24:]!r}, with "
                       f"the message itself in {text[:common][-24:]!r}")

    def _generation_prompt(self):
        asked = [{"role": "user", "content": "a"}]
        try:
            without, text = self._render(asked, False), self._render(asked, True)
        except Exception:  # whatever a template does with what it is given
            return ""
        return text[len(without):] if text.startswith(without) else ""
