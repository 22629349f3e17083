from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "console"
    verbose_name = "Console"

    def ready(self) -> None:
        from console import checks, signins  # noqa: F401 - importing registers the checks

        signins.connect()
