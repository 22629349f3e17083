"""One JSON line per event on stdout: the process manager decides where lines go."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog
from structlog.tracebacks import ExceptionDictTransformer

from tenants.keys import masked


def configure(options: dict[str, Any]) -> None:
    """Django's `LOGGING_CONFIG` hook; workers, gateways and agents call it too."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                # Without the frames' local variables: they hold tokens, passwords and request bodies.
                structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
                structlog.processors.JSONRenderer(),
                _without_keys,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(options.get("level", "INFO"))
    logging.getLogger("httpx").setLevel("WARNING")
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _without_keys(logger: Any, method: str, line: Any) -> str:
    """Whatever was logged, by whomever: a key that somebody put into a path or a name is not kept."""
    return masked(str(line))
