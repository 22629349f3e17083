"""`python -m console.processes.web`: the console's ASGI server, with the settings it was chosen for."""

from __future__ import annotations

import os

import uvicorn

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")


def main() -> None:
    from django.conf import settings  # after the settings module is named

    uvicorn.run(
        "console.asgi:application",
        host=settings.CONSOLE_HOST,
        port=settings.CONSOLE_PORT,
        loop="uvloop",
        http="httptools",
        ws="websockets-sansio",
        ws_max_size=64 << 10,
        lifespan="off",
        access_log=False,
        server_header=False,
        proxy_headers=settings.USES_TLS,  # only a TLS proxy's word about the client is taken
        log_config=None,
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    main()
