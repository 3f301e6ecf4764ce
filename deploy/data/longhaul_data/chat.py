"""Conversations: the tokenizer's chat template, rendered as transformers renders it, and what of the text the
assistant said."""
import collections
import contextlib
import datetime
import json
import os
import re

from .errors import Problem, Problems, need
from .fields import KNOWN_ROLES
from .messages import TOOL_ROLES, NoText
from .pieces import Piece, bounded, place
from .report import counted
from .turns import Document, NotFound, Turns

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
        environment.tests["none"] = lambda value: value is None or isinstance(value, NoText)
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


def parts_of(message):
    """What a rendering of a message must have. Templates drop thoughts, and write results of tools in their own way."""
    if isinstance(message["content"], str) and message["role"] not in TOOL_ROLES:
        yield message["content"].rpartition("</think>")[2].strip()
    for call in message.get("tool_calls", []):
        yield call["function"]["name"]


class Seen:
    """How often something was seen, and where first."""

    def __init__(self):
        self.count, self.first = 0, None

    def add(self, where):
        self.count += 1
        self.first = self.first or where


class Chat:
    """Makes pieces of conversations. `template_of(with_tools)` gives a template's text. `special_tokens` are what
    templates write by name; `ends`, texts of all special tokens."""

    def __init__(self, template_of, special_tokens, ends=()):
        self._template_of = template_of
        self._special = special_tokens
        self._ends = tuple(ends)
        self._templates = {}
        self._roles = collections.defaultdict(Seen)
        self._split, self._left_out, self._left_out_tools = Seen(), Seen(), Seen()
        self._split_documents = 0

    def template(self, with_tools=False):
        if with_tools not in self._templates:
            text = self._template_of(with_tools)
            if text is None:
                raise Problem("the tokenizer has no chat template, which conversations need; name a file with "
                              "--chat-template")
            self._templates[with_tools] = Template(text)
        return self._templates[with_tools]

    def pieces(self, where, conversation):
        """A list of pieces for each document."""
        messages, tools = conversation.messages, conversation.tools
        try:
            template = self.template(tools is not None)
        except Problem as error:  # it is that of every record
            raise Problems([str(error)]) from error
        try:
            if template.marks_generation:
                documents = [self._marked(template, conversation)]
                whole = documents[0].text
            else:
                turns = Turns(lambda some, prompt: self._render(template, some, tools, prompt)[0], self._ends)
                documents = turns.documents(messages, conversation.first_target)
                whole = turns.whole
        except Problem:
            raise
        except NotFound as error:
            raise Problem(
                f"{place(where)}: what the assistant says cannot be found in the text that the chat template makes: "
                f"{error}; mark it in the template by {{% generation %}} and {{% endgeneration %}} (--chat-template)"
            ) from error
        except Exception as error:  # whatever a template does with what it is given
            raise Problem(f"{place(where)}: the chat template refuses the messages: {error}") from error
        self._note(where, conversation, documents, whole)
        answered = messages[-1]["role"] == "assistant"
        return [[Piece(bounded(document.text, where), where, spans=document.spans,
                       end_counts=answered and document.whole, rest=False)] for document in documents]

    def _render(self, template, messages, tools, prompt=False):
        return template.render(messages=messages, tools=tools, documents=None, add_generation_prompt=prompt,
                               **self._special)

    def _marked(self, template, conversation):
        text, spans = self._render(template, conversation.messages, conversation.tools)
        if conversation.first_target:
            prompt = conversation.messages[:conversation.first_target]
            spans = spans[len(self._render(template, prompt, conversation.tools)[1]):]
        return Document(text, spans, True)

    def _note(self, where, conversation, documents, whole):
        texts = [whole, *(document.text for document in documents)]
        for message in conversation.messages:
            self._roles[message["role"]].add(where)
            if any(all(part not in text for text in texts) for part in parts_of(message)):
                self._left_out.add(where)
        for tool in conversation.tools or []:
            name = tool.get("function", tool).get("name") if isinstance(tool.get("function", tool), dict) else None
            if isinstance(name, str) and all(name not in text for text in texts):
                self._left_out_tools.add(where)
        if len(documents) > 1:
            self._split.add(where)
            self._split_documents += len(documents)

    def roles(self):
        """A sentence's part on every role that was seen."""
        return ", ".join(f"'{role}' in {counted(seen.count, 'message')}" for role, seen in sorted(self._roles.items()))

    def notes(self):
        notes = [f"the role '{role}' of {counted(seen.count, 'message')}, first in {place(seen.first)}, is not known; "
                 f"what it says is no target (--map assistant={role} makes it the assistant)"
                 for role, seen in sorted(self._roles.items()) if role not in KNOWN_ROLES]
        if self._split.count:
            notes.append(f"{counted(self._split.count, 'conversation')} became {self._split_documents:,} documents, "
                         f"first that of {place(self._split.first)}: the chat template rewrites earlier messages, so "
                         "each document has them as they are at its turn")
        if self._left_out.count:
            notes.append("the chat template leaves out the text or the tool calls of "
                         f"{counted(self._left_out.count, 'message')}, first in {place(self._left_out.first)}")
        if self._left_out_tools.count:
            notes.append(f"the chat template leaves out {counted(self._left_out_tools.count, 'tool')}, first in "
                         f"{place(self._left_out_tools.first)}")
        if any(template.used_date for template in self._templates.values()):
            notes.append("the chat template writes today's date; SOURCE_DATE_EPOCH fixes it")
        return notes
