"""Names of fields, of a message's keys and of roles, and what --map calls them instead."""
from .errors import Problem

RECORD = ("text", "messages", "conversations", "prompt", "completion", "chosen", "rejected", "instruction", "input",
          "output", "system", "history", "tools")
MESSAGE = ("role", "content")
ROLES = ("system", "user", "assistant", "tool")
# Roles that templates of the supported families know besides.
KNOWN_ROLES = (*ROLES, "developer", "function", "ipython")
SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant",
                  "bard": "assistant", "function_call": "assistant", "observation": "tool",
                  "function_response": "tool"}


def quoted(names):
    return ", ".join(f"'{name}'" for name in names) or "none"


class Names:
    """`pairs` are texts OURS=THEIRS, as --map has them."""

    def __init__(self, pairs=()):
        self._theirs, self._roles = {}, {}
        for pair in pairs:
            ours, equals, theirs = pair.partition("=")
            if not equals or not theirs or ours not in (*RECORD, *MESSAGE, *ROLES):
                raise Problem(f"--map: expected OURS=THEIRS, where OURS is one of {', '.join(RECORD)} (fields), "
                              f"{', '.join(MESSAGE)} (of a message) or {', '.join(ROLES)} (values of role), got "
                              f"'{pair}'")
            # `system` is a field and a role; a file has either.
            if ours in ROLES:
                self._roles[theirs] = ours
            if ours not in ROLES or ours == "system":
                self._theirs[ours] = theirs

    def theirs(self, ours):
        return self._theirs.get(ours, ours)

    def mapped(self):
        """Fields of records that --map names."""
        return [ours for ours in self._theirs if ours in RECORD and ours != "system"]

    def role(self, theirs):
        return self._roles.get(theirs, theirs)

    def role_is_mapped(self, theirs):
        return theirs in self._roles
