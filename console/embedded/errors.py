"""What can go wrong while the embedded services start; every message says what to do about it."""


class ServiceError(Exception):
    """A service cannot start or stay up; the text is meant for a person at a terminal."""


class AlreadyRunning(ServiceError):
    """Another process holds this state directory."""

    def __init__(self, directory: str, pid: int | None, command: str) -> None:
        owner = f"process {pid} ({command})" if pid else "another process"
        super().__init__(
            f"{directory} is in use by {owner}. Stop it first, or give this one a directory of its own "
            "(--state-dir or TIDEGATE_STATE_DIR)."
        )
        self.pid = pid
