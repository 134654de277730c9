"""Settings, all from the environment (see docs/configuration.md).

Without any variable: SQLite and Celery's filesystem transport under HELIX_DATA_DIR, loopback only.
DATABASE_URL switches to PostgreSQL, REDIS_URL to Redis; nothing else changes.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import dj_database_url
from csp.constants import NONCE, NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from helixweb import environment
from helixweb.places import Addresses, default_data_dir

# Templates, scripts, styles and translations: beside the packages in a checkout, in this one where
# a wheel was installed (setup.py puts them there).
_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "_assets"
ASSETS = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent
DATA_DIR = environment.folder("HELIX_DATA_DIR", default_data_dir())

DEBUG = environment.flag("HELIX_DEBUG", default=False)
SECRET_KEY = environment.text("SECRET_KEY") or environment.generated_secret(DATA_DIR / "secret_key")

# What hashes of API keys depend on beside the database; empty: derived from SECRET_KEY. To change
# it, keep the old one in HELIX_PEPPERS_BEFORE until no key depends on it (common/peppers.py).
HELIX_PEPPER = environment.text("HELIX_PEPPER")
HELIX_PEPPERS_BEFORE = environment.words("HELIX_PEPPERS_BEFORE")

# Where people reach the site; else where `up` last ran it. https switches on everything that
# needs it.
HELIX_URL = environment.text("HELIX_URL", Addresses.kept_in(DATA_DIR).url).rstrip("/")
_url = urlsplit(HELIX_URL)
try:
    _port = _url.port
except ValueError:
    _port = 0
if _url.scheme not in ("http", "https") or not _url.hostname or _port == 0:
    raise ImproperlyConfigured(f"HELIX_URL is {HELIX_URL!r}; give a URL like https://helix.example")
_https = _url.scheme == "https"

ALLOWED_HOSTS = [
    _url.hostname,
    "127.0.0.1",
    "localhost",
    "[::1]",
    *environment.words("HELIX_HOSTS"),
]
CSRF_TRUSTED_ORIGINS = [HELIX_URL]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = _https
# Browsers send a host's cookies to each of its ports: another site there must not end our sessions.
if _port not in (None, Addresses().port):
    SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = f"sessionid-{_port}", f"csrftoken-{_port}"
SECURE_HSTS_SECONDS = 31_536_000 if _https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = _https
# Browsers ignore the header over plain HTTP, and log an error for each page.
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin" if _https else None
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
_behind_proxy = environment.flag("HELIX_BEHIND_PROXY", default=False)
if _behind_proxy:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
# A pasted problem file (inventory.forms.MAX_PROBLEM_BYTES), encoded as a form.
DATA_UPLOAD_MAX_MEMORY_SIZE = 10_000_000
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"

INSTALLED_APPS = [
    "helixweb.access",  # before Django's: its versions of the commands for users are logged
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_filters",
    "django_htmx",
    "csp",
    "rest_framework",
    "drf_spectacular",
    *(["drf_spectacular_sidecar"] if find_spec("drf_spectacular_sidecar") else []),
    "helixweb.common",
    "helixweb.common.rest",
    "helixweb.inventory",
    "helixweb.planning",
    "helixweb.deployment",
    "helixweb.monitoring",
    "helixweb.alerting",
    "helixweb.operations",
]

MIDDLEWARE = [
    "helixweb.common.request_ids.give_request_id",
    "helixweb.common.web_requests.count_requests",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "helixweb.access.middleware.AccessControl",
    "helixweb.common.middleware.remember_reader",
    "helixweb.access.audit.tell_the_rest",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "helixweb.urls"
ASGI_APPLICATION = "helixweb.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ASSETS / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "helixweb.common.context.shell",
            ],
        },
    },
]

_database = dj_database_url.parse(
    environment.url(
        "DATABASE_URL",
        schemes=("postgres", "postgresql", "sqlite"),
        example="postgres://USER:PASSWORD@HOST/NAME",
    )
    or f"sqlite:///{quote(str(DATA_DIR / 'helixweb.sqlite3'))}",
    conn_health_checks=True,
)
_database_options: dict[str, Any] = {}
if _database["ENGINE"] == "django.db.backends.sqlite3":
    _database_options = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
    }
DATABASES = {
    "default": {**_database, "OPTIONS": {**_database.get("OPTIONS", {}), **_database_options}}
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# -- Celery: the row is the truth, a message is only a wake-up (docs/decisions) -------------------
REDIS_URL = environment.url("REDIS_URL", schemes=("redis", "rediss"), example="redis://HOST:6379/0")
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any]
if REDIS_URL:
    CELERY_BROKER_URL = REDIS_URL
    CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 6 * 3600}
else:
    CELERY_BROKER_URL = "filesystem://localhost"
    CELERY_BROKER_TRANSPORT = "helixweb.common.folder_queue:Transport"
    _queue = DATA_DIR / "queue"
    for _folder in ("messages", "control"):
        (_queue / _folder).mkdir(parents=True, exist_ok=True, mode=0o700)
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "data_folder_in": str(_queue / "messages"),
        "data_folder_out": str(_queue / "messages"),
        "control_folder": str(_queue / "control"),
        "polling_interval": 0.1,
    }
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# One to search, one to explain and simulate plans, one for what is quick (common/jobs.py).
CELERY_WORKER_CONCURRENCY = 3
# A process that is not up by then is killed, which on a busy machine 4 s would do to all.
CELERY_WORKER_PROC_ALIVE_TIMEOUT = 60.0
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BEAT_SCHEDULER = "helixweb.beat:Scheduler"
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_DIR / "celerybeat-schedule")
CELERY_BEAT_SCHEDULE: dict[str, Any] = {
    name: {"task": f"helixweb.{task}", "schedule": every_s, "options": {"expires": every_s}}
    for name, task, every_s in (
        ("reap-lost-jobs", "common.jobs.reap_lost_jobs", 2.0),
        ("beat-pulse", "operations.tasks.beat_pulse", 10.0),
        ("tend-deployments", "deployment.tasks.tend_deployments", 2.0),
        ("prune-expired", "common.tasks.prune_expired", 300.0),
        ("prune-access", "access.tasks.prune_access", 300.0),
        ("prune-change-log", "inventory.tasks.prune_change_log", 86_400.0),
        ("prune-node-logs", "deployment.tasks.prune_node_logs", 3600.0),
        ("announce-silent-processes", "inventory.tasks.announce_silent_processes", 2.0),
        ("tend-predictions", "monitoring.tasks.tend_predictions", 30.0),
        ("tend-alerts", "alerting.tasks.tend_alerts", 5.0),
        ("prune-alerts", "alerting.tasks.prune_alerts", 86_400.0),
        ("prune-metrics", "monitoring.tasks.prune_samples", 300.0),
    )
}

# -- People ----------------------------------------------------------------------------------------
# Counts failed log-ins and joins, and caches charts for some seconds.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "OPTIONS": {"MAX_ENTRIES": 10_000},
    }
}
# A session ends when nothing was asked for that long, and in any case so long after the log-in.
SESSION_COOKIE_AGE = 14 * 86_400
HELIX_SESSION_MAX_AGE_S = 30 * 86_400
# Single sign-on by OpenID Connect, with the extra `sso`; without an issuer there is none.
HELIX_OIDC_ISSUER = environment.url(
    "HELIX_OIDC_ISSUER", schemes=("https", "http"), example="https://login.example/realms/ours"
).rstrip("/")
HELIX_OIDC_CLIENT_ID = environment.text("HELIX_OIDC_CLIENT_ID")
HELIX_OIDC_CLIENT_SECRET = environment.text("HELIX_OIDC_CLIENT_SECRET")
HELIX_OIDC_ALGORITHM = environment.text("HELIX_OIDC_ALGORITHM", "RS256")
HELIX_OIDC_NAME = environment.text("HELIX_OIDC_NAME", "single sign-on")
HELIX_OIDC_GROUPS_CLAIM = environment.text("HELIX_OIDC_GROUPS_CLAIM", "groups")
# Which group there is which role here, on the whole site: GROUP=ROLE,…; a claim changes roles at
# every log-in. A user in none of them gets HELIX_OIDC_DEFAULT_ROLE, or is refused.
HELIX_OIDC_ROLES = dict(word.rpartition("=")[::2] for word in environment.words("HELIX_OIDC_ROLES"))
HELIX_OIDC_DEFAULT_ROLE = environment.text("HELIX_OIDC_DEFAULT_ROLE")
for _role in {*HELIX_OIDC_ROLES.values(), *filter(None, [HELIX_OIDC_DEFAULT_ROLE])}:
    if _role not in ("viewer", "operator", "admin"):
        raise ImproperlyConfigured(
            f"HELIX_OIDC_ROLES or HELIX_OIDC_DEFAULT_ROLE names the role {_role!r}; "
            "use viewer, operator or admin, as in HELIX_OIDC_ROLES=staff=viewer,ops=operator"
        )
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
if HELIX_OIDC_ISSUER:
    if not HELIX_OIDC_CLIENT_ID or not HELIX_OIDC_CLIENT_SECRET:
        raise ImproperlyConfigured(
            "HELIX_OIDC_ISSUER is set; set HELIX_OIDC_CLIENT_ID and HELIX_OIDC_CLIENT_SECRET too, "
            "as the provider gave them"
        )
    AUTHENTICATION_BACKENDS.append("helixweb.access.sso.Backend")
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

# -- REST ------------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "helixweb.common.auth.ApiKeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["helixweb.access.permissions.MayDo"],
    "DEFAULT_RENDERER_CLASSES": ["helixweb.common.rest.rendering.JsonRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "helixweb.common.rest.negotiation.ByFormat",
    "DEFAULT_PARSER_CLASSES": ["helixweb.common.parsers.JsonParser"],
    "DEFAULT_PAGINATION_CLASS": "helixweb.common.pagination.Pages",
    "DEFAULT_SCHEMA_CLASS": "helixweb.common.rest.openapi.RestSchema",
    "EXCEPTION_HANDLER": "helixweb.common.problems.exception_handler",
    # Proxies whose X-Forwarded-For is trusted when requests are counted by address.
    "NUM_PROXIES": 1 if _behind_proxy else 0,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "HelixWeb",
    "VERSION": "1",
    "DESCRIPTION": "Inventory, plans, deployments and live metrics of a HelixWeb cluster.",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["helixweb.access.permissions.MayDo"],
    "COMPONENT_SPLIT_REQUEST": True,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    # The processes' messages are pydantic models, whose schemas are those of OpenAPI 3.1.
    "OAS_VERSION": "3.1.0",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "helixweb.common.rest.openapi.document_problems",
    ],
    "ENUM_NAME_OVERRIDES": {
        "ActorKindEnum": "helixweb.inventory.models.Change.ActorKind",
        "RoleOfPersonEnum": "helixweb.access.roles.Role",
        "NodeStateEnum": "helixweb.inventory.models.NodeState",
        "TaskStatusEnum": "helixweb.common.models.Job.Status",
        "ImportedKindEnum": "helixweb.inventory.as_code.documents.SECTIONS",
        "AlertKindEnum": "helixweb.alerting.kinds.Kind",
        "AlertSeverityEnum": "helixweb.alerting.kinds.Severity",
        "DeploymentStatusEnum": "helixweb.deployment.models.Status",
        "ObjectiveEnum": "helixweb.planning.forms.OBJECTIVES",
        "MixObjectiveEnum": "planner.multi_model.shares.MIXED",
        "PipelineMethodEnum": "helixweb.planning.serializers.STAGES_ONLY",
    },
}

# -- Pages -----------------------------------------------------------------------------------------
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        # Plotly writes style attributes on what it draws; style elements still need the nonce.
        "style-src-attr": ["'unsafe-inline'"],
        "img-src": [SELF, "data:", "blob:"],
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}
STATIC_URL = "static/"
STATICFILES_DIRS = [ASSETS / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "helixweb.common.plotly_finder.PlotlyFinder",
]
STATIC_ROOT = DATA_DIR / "staticfiles"
STATIC_ROOT.mkdir(exist_ok=True, mode=0o700)  # whitenoise warns when it is missing
WHITENOISE_USE_FINDERS = True
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [ASSETS / "locale"]
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"request_id": {"()": "helixweb.common.request_ids.WithRequestId"}},
    "formatters": {
        "text": {
            "()": "runtime.protocol.logs.TextLines",
            "fmt": "%(asctime)s %(levelname)s %(name)s [%(request_id)s]: %(message)s",
        },
        "json": {"()": "runtime.protocol.logs.JsonLines", "process": "web"},
    },
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": environment.choice(
                "HELIXWEB_LOG", "TEXT", choices=("TEXT", "JSON")
            ).lower(),
            "filters": ["request_id"],
        }
    },
    # uvicorn's own lines go the same way.
    "loggers": {
        name: {"handlers": [], "propagate": True}
        for name in ("uvicorn", "uvicorn.access", "uvicorn.error")
    }
    # It logs every request with its whole URL, and URLs of webhooks often hold a key.
    | {"httpx": {"level": "WARNING"}},
    "root": {
        "handlers": ["stderr"],
        "level": environment.choice(
            "HELIX_LOG_LEVEL", "INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
        ),
    },
}

# -- Models ----------------------------------------------------------------------------------------
# Folder whose checkpoints the site may read the sizes of; empty: only agents look at paths.
HELIX_MODELS_DIR = environment.text("HELIX_MODELS_DIR")
# Where models that are given by name are looked up; the names are those of huggingface_hub.
HF_ENDPOINT = environment.url(
    "HF_ENDPOINT",
    "https://huggingface.co",
    schemes=("https", "http"),
    example="https://huggingface.co",
)
HF_TOKEN = environment.text("HF_TOKEN")
HF_HUB_OFFLINE = environment.flag("HF_HUB_OFFLINE", default=False)

# -- Alerts ----------------------------------------------------------------------------------------
# Networks that are not public but that webhooks may reach, like 10.1.0.0/16.
HELIX_WEBHOOK_NETWORKS = environment.networks("HELIX_WEBHOOK_NETWORKS")
# Certificates (PEM) to trust beside the system's issuers, where this site dials itself.
HELIX_CA = environment.text("HELIX_CA")
# The site's own certificate (PEM), whose expiry an alert rule watches; empty: unknown.
HELIX_TLS_CERTIFICATE = environment.text("HELIX_TLS_CERTIFICATE")
# Mails of alerts; without a host none is sent.
EMAIL_HOST = environment.text("EMAIL_HOST")
EMAIL_PORT = environment.number("EMAIL_PORT", 587, least=1, most=65_535)
EMAIL_HOST_USER = environment.text("EMAIL_HOST_USER")
EMAIL_HOST_PASSWORD = environment.text("EMAIL_HOST_PASSWORD")
EMAIL_USE_TLS = environment.flag("EMAIL_USE_TLS", default=True)
EMAIL_TIMEOUT = 15
DEFAULT_FROM_EMAIL = environment.text("HELIX_EMAIL_FROM", f"helixweb@{_url.hostname}")

# Event streams and waits for events that one user may have open at one web process, over all of
# their pages and keys. A browser has six at most, of the pages that are seen.
HELIX_STREAMS_PER_USER = environment.number("HELIX_STREAMS_PER_USER", 100, least=1, most=100_000)

# Whether programs on this machine may read /metrics without a key.
HELIX_METRICS_ON_LOOPBACK = environment.flag("HELIX_METRICS_ON_LOOPBACK", default=False)

# -- The product -----------------------------------------------------------------------------------
HELIX_HEARTBEAT_INTERVAL_S = 2.0
# A node that stays silent this long is shown as lost.
HELIX_NODE_LOST_AFTER_S = 10.0
# A task that stops renewing its lease this long is run again by the reaper.
HELIX_LEASE_S = 6.0
# Plan runs solved at once by the workers of this site; others stay queued.
HELIX_CONCURRENT_SOLVES = 1
