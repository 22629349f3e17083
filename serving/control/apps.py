from django.apps import AppConfig


class ControlConfig(AppConfig):
    name = "serving.control"
    label = "control"
    verbose_name = "Serving control"

    def ready(self) -> None:
        from serving.control import publish
        from tenants import changes

        changes.subscribe(publish.tenants_change)
