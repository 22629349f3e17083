"""The console's settings, once the session's services run: pytest-django reads settings before conftest."""

from tests import services

services.provide()

from console.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
