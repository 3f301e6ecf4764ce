"""Makes a chat template's messages out of a record: one form, whatever the record's format is."""
import dataclasses
import json

from .errors import Problem
from .fields import SHAREGPT_ROLES, quoted
from .pieces import place
from .readers import type_name

TEXT_PARTS = ("text", "input_text", "output_text")
TOOL_ROLES = ("tool", "function", "ipython")
REASONING = ("reasoning_content", "thinking", "reasoning")


class NoText(str):
    """The content of a message that has none: an empty text, and none for a template that asks."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        return other is None or str.__eq__(self, other)

    def __ne__(self, other):
        return not self == other


class Object(dict):
    """A JSON object that a template may also print or append to a text, as templates do that expect JSON text."""

    def __str__(self):
        return json.dumps(self, ensure_ascii=False)

    def __add__(self, other):
        return str(self) + other

    def __radd__(self, other):
        return other + str(self)


@dataclasses.dataclass
class Conversation:
    messages: list
    tools: list = None
    # Messages before this one are a prompt: nothing in them is a target.
    first_target: int = 0


class Reader:
    """Messages of one record. Every Problem names the record's place."""

    def __init__(self, where, names):
        self.where, self._names = where, names

    def refuse(self, text):
        raise Problem(f"{place(self.where)}: {text}")

    def json_text(self, value, what):
        """A list that columns and tables hold as text."""
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            self.refuse(f"expected a list or its JSON text in {what}; {error}")

    def messages(self, value, field):
        value = self.json_text(value, f"'{field}'")
        if not isinstance(value, list) or not value:
            self.refuse(f"expected a list of messages in '{field}', got "
                        f"{'an empty list' if value == [] else type_name(value)}")
        return [self._message(message, f"message {number} of '{field}'") for number, message in
                enumerate(value, start=1)]

    def _message(self, message, what):
        role_key, content_key = self._names.theirs("role"), self._names.theirs("content")
        if isinstance(message, dict) and role_key not in message and "from" in message:
            role_key, content_key = "from", "value"
        if not isinstance(message, dict) or not isinstance(message.get(role_key), str) or not message[role_key]:
            got = quoted(message) if isinstance(message, dict) else type_name(message)
            if isinstance(message, dict) and role_key in message:
                got = f"{type_name(message[role_key]) if message[role_key] != '' else 'an empty text'} in '{role_key}'"
            self.refuse(f"expected an object with a '{role_key}' and a '{content_key}' as {what}, got {got}")
        theirs = message[role_key]
        made = {key: value for key, value in message.items()
                if value is not None and key not in (role_key, content_key)}
        role = self._names.role(theirs)
        content = message.get(content_key)
        if role_key == "from" and not self._names.role_is_mapped(theirs):
            role = SHAREGPT_ROLES.get(theirs, theirs)
            if theirs == "function_call":
                calls = self.json_text(content, what)
                made["tool_calls"], content = calls if isinstance(calls, list) else [calls], None
        self._add_calls(made, what)
        made = {"role": role, "content": self._content(content, role, made, content_key, what), **made}
        for name in REASONING:
            if name in made and not isinstance(made[name], str):
                self.refuse(f"expected text in '{name}' of {what}, got {type_name(made[name])}")
        return with_reasoning(made)

    def _content(self, content, role, message, key, what):
        if content is None:
            if message.get("tool_calls") or any(message.get(name) for name in REASONING):
                return NoText()
            self.refuse(f"expected text in '{key}' of {what}, got null; only a message with tool calls may have none")
        if isinstance(content, str):
            return content
        if isinstance(content, list):
            if not content:
                self.refuse(f"expected text in '{key}' of {what}, got an empty list")
            return "".join(self._part(part, f"part {number} of {what}") for number, part in
                           enumerate(content, start=1))
        if isinstance(content, dict) and role in TOOL_ROLES:
            return Object(content)
        self.refuse(f"expected text in '{key}' of {what}, got {type_name(content)}")

    def _part(self, part, what):
        if isinstance(part, str):
            return part
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in TEXT_PARTS and isinstance(part.get("text"), str):
            return part["text"]
        got = f"the type '{kind}'" if isinstance(kind, str) and kind not in TEXT_PARTS else (
            quoted(part) if isinstance(part, dict) else type_name(part))
        self.refuse(f"expected text as {what} ({{\"type\": \"text\", \"text\": ...}}), got {got}; longhaul trains on "
                    "text alone")

    def _add_calls(self, message, what):
        """Calls have one form: a function's name, and its arguments as an object."""
        if isinstance(message.get("function_call"), dict) and "tool_calls" not in message:
            message["tool_calls"] = [message.pop("function_call")]
        calls = self.json_text(message.pop("tool_calls", None), f"'tool_calls' of {what}")
        if not calls:
            return
        if not isinstance(calls, list):
            self.refuse(f"expected a list in 'tool_calls' of {what}, got {type_name(calls)}")
        message["tool_calls"] = [self._call(call, f"tool call {number} of {what}") for number, call in
                                 enumerate(calls, start=1)]

    def _call(self, call, what):
        function = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            self.refuse(f"expected a function with a 'name' as {what}, got "
                        f"{quoted(function) if isinstance(function, dict) else type_name(call)}")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments) if arguments.strip() else {}
            except (ValueError, RecursionError) as error:
                self.refuse(f"expected an object or its JSON text as arguments of {what}; {error}")
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            self.refuse(f"expected an object as arguments of {what}, got {type_name(arguments)}")
        made = {**function, "arguments": Object(arguments)}
        return {"type": "function", **call, "function": made} if function is not call else {
            "type": "function", "function": made}

    def tools(self, value):
        value = self.json_text(value or None, "'tools'")
        if not value:
            return None
        if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
            self.refuse(f"expected a list of objects in 'tools', got {type_name(value)}"
                        f"{' with other things' if isinstance(value, list) else ''}")
        return value


def with_reasoning(message):
    """Reasoning has several names; a template reads one of them."""
    for name in REASONING:
        if message.get(name) is not None:
            return {"thinking": message[name], **message, "reasoning_content": message[name]}
    return message
