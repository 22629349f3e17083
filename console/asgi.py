"""The console's ASGI application: pages and API by Django, live topics by Channels."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application
from django.urls import get_resolver

django_application = get_asgi_application()

from console.bodies import BoundedBodies  # noqa: E402
from console.live.routing import websocket_urlpatterns  # noqa: E402
from serving.settling import settle_memory  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": BoundedBodies(django_application),
        "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)

# Every page and serializer is loaded before it is left out of collections, which otherwise look through all of them
# with some requests: 150 ms of them.
_ = get_resolver().url_patterns
settle_memory(allocations=10_000, generations=10)
