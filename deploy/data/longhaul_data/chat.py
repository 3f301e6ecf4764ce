"""Conversations: the tokenizer's chat template, rendered as transformers renders it, and what of the text the
assistant said."""
import contextlib
import datetime
import json
import os
import re

from .errors import Problem, need
from .pieces import Piece, place

REASONING = ("reasoning_content", "thinking", "reasoning")
GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


class Template:
    """A compiled template. Not for several threads."""

    def __init__(self, text):
        jinja2 = need("jinja2", "rendering conversations")
        need("jinja2.ext", "rendering conversations")
        sandbox = need("jinja2.sandbox", "rendering conversations")
        self.marks_generation = bool(GENERATION.search(text))
        self.used_date = False
        self._error = jinja2.TemplateError
        self._blocks = None  # of the text so far, while it is rendered
        self._spans = None
        environment = sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[self._extension(jinja2), jinja2.ext.loopcontrols])
        environment.filters["tojson"] = to_json
        environment.globals["raise_exception"] = self._raise
        environment.globals["strftime_now"] = self._now
        try:
            self._template = environment.from_string(text)
        except jinja2.TemplateError as error:
            raise Problem(f"the chat template cannot be read: {error}") from error

    def _extension(self, jinja2):
        """{% generation %} ... {% endgeneration %}: what stands between them is the assistant's."""
        template = self

        class Generation(jinja2.ext.Extension):
            tags = {"generation"}

            def parse(self, parser):
                line = next(parser.stream).lineno
                body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
                return jinja2.nodes.CallBlock(self.call_method("_note"), [], [], body).set_lineno(line)

            def _note(self, caller):
                text = caller()
                begin = sum(map(len, template._blocks))
                template._spans.append((begin, begin + len(text)))
                return text

        return Generation

    def _raise(self, message):
        raise self._error(message)

    def _now(self, form):
        self.used_date = True
        fixed = os.environ.get("SOURCE_DATE_EPOCH")
        if fixed is not None:
            return datetime.datetime.fromtimestamp(int(fixed), datetime.timezone.utc).strftime(form)
        return datetime.datetime.now().strftime(form)

    def render(self, **variables):
        """(text, spans of characters in generation blocks)."""
        self._blocks, self._spans = [], []
        context = self._template.new_context(variables)
        try:
            with contextlib.closing(self._template.root_render_func(context)) as blocks:
                for block in blocks:
                    self._blocks.append(block)
        except Exception:
            self._template.environment.handle_exception()
        return "".join(self._blocks), self._spans


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def as_template_reads(message, from_columns):
    """Columns have every field in every message, null where the message has none. Reasoning has several names;
    a template reads one of them."""
    if from_columns:
        message = {key: value for key, value in message.items() if value is not None or key == "content"}
    for name in REASONING:
        if message.get(name) is not None:
            return {"thinking": message[name], **message, "reasoning_content": message[name]}
    return message


class Chat:
    """Makes a piece of a record's messages. `template_of(with_tools)` gives a template's text."""

    def __init__(self, template_of, special_tokens):
        self._template_of = template_of
        self._special = special_tokens
        self._templates = {}

    def used_date(self):
        return any(template.used_date for template in self._templates.values())

    def template(self, with_tools=False):
        if with_tools not in self._templates:
            text = self._template_of(with_tools)
            if text is None:
                raise Problem("the tokenizer has no chat template, which conversations ('messages') need; name a "
                              "file with --chat-template")
            self._templates[with_tools] = Template(text)
        return self._templates[with_tools]

    def piece(self, where, record):
        messages = record.get("messages")
        if not isinstance(messages, list) or not messages:
            raise Problem(f"{place(where)}: expected a list of messages in 'messages', got "
                          f"{'an empty list' if messages == [] else type(messages).__name__}")
        for number, message in enumerate(messages, start=1):
            if not isinstance(message, dict) or not isinstance(message.get("role"), str):
                raise Problem(f"{place(where)}: expected an object with a 'role' as message {number}")
        tools = record.get("tools") or None
        messages = [as_template_reads(message, from_columns=where[1] == "row") for message in messages]
        template = self.template(tools is not None)
        try:
            text, spans = self._render(template, messages, tools)
            if not template.marks_generation:
                spans = self._spans(where, template, messages, tools, text)
        except Problem:
            raise
        except Exception as error:  # whatever a template does with what it is given
            raise Problem(f"{place(where)}: the chat template refuses the messages: {error}") from error
        return Piece(text, where, spans=spans, end_counts=messages[-1]["role"] == "assistant", rest=False)

    def _render(self, template, messages, tools, prompt=False):
        return template.render(messages=messages, tools=tools, documents=None, add_generation_prompt=prompt,
                               **self._special)

    def _spans(self, where, template, messages, tools, whole):
        """What each of the assistant's messages adds to the text before it."""
        spans = []
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before, _ = self._render(template, messages[:number], tools, prompt=True)
            after, _ = self._render(template, messages[:number + 1], tools)
            if not after.startswith(before) or not whole.startswith(after):
                raise Problem(
                    f"{place(where)}: the chat template writes the messages before message {number + 1} otherwise "
                    "when it is there, so what the assistant said cannot be found; mark it in the template by "
                    "{% generation %} and {% endgeneration %} (--chat-template)")
            spans.append((len(before), len(after)))
        return spans
