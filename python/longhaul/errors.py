"""What calls raise."""


class Error(RuntimeError):
    """`longhaul` refused or failed. The message is what it said; `code` its exit code: 1 failed, 2 wrong usage."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class RunFailed(Error):
    """A run failed, or was stopped before its last step."""
