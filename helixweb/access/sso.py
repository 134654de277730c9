"""Single sign-on by OpenID Connect: code flow with PKCE, state and nonce, by mozilla-django-oidc.

What the library leaves open is settled here: endpoints come from the provider's discovery
document, tokens must be of that issuer and for this client, people are known by the provider's
`sub` and never by an e-mail address that they may have chosen themselves, and groups give roles.
Needs the extra `sso`; imported only where `HELIX_OIDC_ISSUER` is set.
"""

from typing import Any

import jwt
import requests
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.core.exceptions import SuspiciousOperation
from django.db import transaction
from django.urls import reverse
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.utils import import_from_settings
from mozilla_django_oidc.views import (
    OIDCAuthenticationCallbackView,
    OIDCAuthenticationRequestView,
)

from helixweb.access import audit, roles_of_holders
from helixweb.access.models import Grant, Identity
from helixweb.access.roles import Role

TIMEOUT_S = 10
KEPT_S = 600
SCOPES = "openid email profile"
_FROM_DISCOVERY = {
    "OIDC_OP_AUTHORIZATION_ENDPOINT": "authorization_endpoint",
    "OIDC_OP_TOKEN_ENDPOINT": "token_endpoint",
    "OIDC_OP_USER_ENDPOINT": "userinfo_endpoint",
    "OIDC_OP_JWKS_ENDPOINT": "jwks_uri",
}


def discovery() -> dict[str, Any]:
    """The provider's discovery document, cached for some minutes. Raises SuspiciousOperation."""
    issuer = settings.HELIX_OIDC_ISSUER
    key = f"oidc-discovery:{issuer}"
    known: dict[str, Any] | None = cache.get(key)
    if known is None:
        answer = requests.get(f"{issuer}/.well-known/openid-configuration", timeout=TIMEOUT_S)
        answer.raise_for_status()
        known = dict(answer.json())
        if str(known.get("issuer", "")).rstrip("/") != issuer:
            raise SuspiciousOperation(
                f"The provider says that it is {known.get('issuer')!r}; HELIX_OIDC_ISSUER is "
                f"{issuer!r}, and both must be the same."
            )
        cache.set(key, known, KEPT_S)
    return known


def setting(name: str, *default: Any) -> Any:
    """A setting of the OpenID library, by its name there."""
    if name in _FROM_DISCOVERY:
        return discovery().get(_FROM_DISCOVERY[name], *default)
    own = {
        "OIDC_RP_CLIENT_ID": settings.HELIX_OIDC_CLIENT_ID,
        "OIDC_RP_CLIENT_SECRET": settings.HELIX_OIDC_CLIENT_SECRET,
        "OIDC_RP_SIGN_ALGO": settings.HELIX_OIDC_ALGORITHM,
        "OIDC_RP_SCOPES": SCOPES,
        "OIDC_USE_PKCE": True,
        "OIDC_TIMEOUT": TIMEOUT_S,
        "OIDC_AUTHENTICATION_CALLBACK_URL": "sso-callback",
        "LOGIN_REDIRECT_URL_FAILURE": f"{reverse('login')}?sso=refused",
    }
    return own[name] if name in own else import_from_settings(name, *default)


class Backend(OIDCAuthenticationBackend):  # type: ignore[misc]
    """Made for every log-in, also by password: asks the provider nothing until it must."""

    get_settings = staticmethod(setting)
    OIDC_RP_IDP_SIGN_KEY = None

    def __init__(self) -> None:
        self.UserModel = get_user_model()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("OIDC_"):
            return setting(name, None)
        raise AttributeError(name)

    def verify_token(self, token: str, **kwargs: Any) -> dict[str, Any]:
        """Signature and nonce are the library's to check; issuer and audience are not."""
        try:
            payload: dict[str, Any] = super().verify_token(token, **kwargs)
        except jwt.PyJWTError as error:  # of which the library expects some only
            raise SuspiciousOperation(f"The token is refused: {error}") from error
        audience = payload.get("aud")
        ours = audience if isinstance(audience, list) else [audience]
        client = settings.HELIX_OIDC_CLIENT_ID
        if str(payload.get("iss", "")).rstrip("/") != settings.HELIX_OIDC_ISSUER:
            raise SuspiciousOperation("The token is of another issuer.")
        if client not in ours or (len(ours) > 1 and payload.get("azp") != client):
            raise SuspiciousOperation("The token is for another client.")
        if "exp" not in payload or not payload.get("sub"):
            raise SuspiciousOperation("The token says neither whose it is nor until when.")
        return payload

    def get_or_create_user(self, access_token: str, id_token: str, payload: dict[str, Any]) -> Any:
        claims = dict(payload)
        if discovery().get("userinfo_endpoint"):
            userinfo = self.get_userinfo(access_token, id_token, payload)
            if userinfo.get("sub") != payload["sub"]:
                raise SuspiciousOperation("The provider tells of somebody else than it let in.")
            claims |= userinfo
        return user_of_claims(claims)


def user_of_claims(claims: dict[str, Any]) -> Any | None:
    """The user of these claims, with the role that their groups give; None: they have none."""
    role = role_of(claims)
    with transaction.atomic():
        identity = (
            Identity.objects.select_related("user")
            .filter(issuer=settings.HELIX_OIDC_ISSUER, subject=claims["sub"])
            .first()
        )
        if identity is None and role is None:
            audit.note_refusal(
                "login", _name_of(claims), text="single sign-on: no group has a role"
            )
            return None
        user = identity.user if identity is not None else _new_user(claims)
        _set_role(user, role)
    return user


def role_of(claims: dict[str, Any]) -> Role | None:
    """The highest that one of the groups gives, else the default, else none."""
    claimed = claims.get(settings.HELIX_OIDC_GROUPS_CLAIM, [])
    groups = claimed if isinstance(claimed, list) else [claimed]
    roles = [
        Role(settings.HELIX_OIDC_ROLES[group])
        for group in groups
        if isinstance(group, str) and group in settings.HELIX_OIDC_ROLES
    ]
    if roles:
        return max(roles, key=lambda role: role.rank)
    default = settings.HELIX_OIDC_DEFAULT_ROLE
    return Role(default) if default else None


def _new_user(claims: dict[str, Any]) -> Any:
    """Create a user under a free name: a local user of the same name is a different person."""
    users = get_user_model().objects
    wanted = name = _name_of(claims)
    number = 2
    while users.filter(username=name).exists():
        name, number = f"{wanted}-{number}", number + 1
    user = users.create_user(name, email=str(claims.get("email", ""))[:254])
    Identity.objects.create(
        user=user, issuer=settings.HELIX_OIDC_ISSUER, subject=str(claims["sub"])
    )
    audit.note_row(user, "added", text="by single sign-on")
    return user


def _name_of(claims: dict[str, Any]) -> str:
    claimed = str(claims.get("preferred_username") or claims.get("email") or claims["sub"])
    return "".join(char for char in claimed if char.isalnum() or char in "@.+-_")[:140] or "user"


def _set_role(user: Any, role: Role | None) -> None:
    """The role on the whole site follows the groups; those on clusters are given here."""
    if role is not None:
        roles_of_holders.give(user, role)
        return
    for grant in Grant.objects.filter(user=user, cluster__isnull=True):
        roles_of_holders.withdraw(grant)


class Begin(OIDCAuthenticationRequestView):  # type: ignore[misc]
    """Sends the browser to the provider."""

    get_settings = staticmethod(setting)


class Return(OIDCAuthenticationCallbackView):  # type: ignore[misc]
    """The browser comes back from the provider."""

    get_settings = staticmethod(setting)
