"""A small OpenID provider on this machine: discovery, keys, codes with PKCE, and who is who."""

import base64
import hashlib
import json
import time
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.answering import QuietHandler

CLIENT, SECRET = "helixweb", "a secret of the client"


class Provider(ThreadingHTTPServer):
    """`claims` are told of whoever logs in; `spoil` changes a token before it is signed."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.issuer = f"http://127.0.0.1:{self.server_port}"
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.claims: dict[str, Any] = {"sub": "42", "preferred_username": "grace", "groups": []}
        self.spoil: dict[str, Any] = {}
        self.told: dict[str, Any] = {}  # by userinfo, where it is not what the token says
        self.codes: dict[str, dict[str, str]] = {}

    def log_in(self, address: str) -> str:
        """What a browser that follows `address` to the provider comes back with: a query."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return urlencode({"code": code, "state": asked["state"]})


class _Handler(QuietHandler):
    server: Provider

    def do_GET(self) -> None:
        provider = self.server
        if self.path == "/.well-known/openid-configuration":
            paths = {
                "authorization_endpoint": "authorize",
                "token_endpoint": "token",
                "userinfo_endpoint": "userinfo",
                "jwks_uri": "keys",
            }
            places = {key: f"{provider.issuer}/{path}" for key, path in paths.items()}
            self._tell({"issuer": provider.issuer} | places)
        elif self.path == "/keys":
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(provider.key.public_key()))
            self._tell({"keys": [public | {"kid": "one", "alg": "RS256", "use": "sig"}]})
        elif self.path == "/userinfo" and self.headers["Authorization"] == "Bearer access":
            self._tell(provider.claims | provider.told)
        else:
            self._tell({}, status=404)

    def do_POST(self) -> None:
        """A token for a code."""
        provider = self.server
        form = {name: values[0] for name, values in parse_qs(self.body().decode()).items()}
        asked = provider.codes.pop(form["code"], None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        good = (
            asked is not None
            and (form["client_id"], form["client_secret"]) == (CLIENT, SECRET)
            and asked["code_challenge"] == challenge
            and asked["redirect_uri"] == form["redirect_uri"]
        )
        if not good or asked is None:
            self._tell({"error": "invalid_grant"}, status=400)
            return
        payload = {
            "iss": provider.issuer,
            "aud": CLIENT,
            "exp": int(time.time()) + 60,
            "iat": int(time.time()),
            "nonce": asked["nonce"],
            **provider.claims,
            **provider.spoil,
        }
        token = jwt.encode(payload, provider.key, algorithm="RS256", headers={"kid": "one"})
        self._tell({"access_token": "access", "id_token": token, "token_type": "Bearer"})

    def _tell(self, document: Any, status: int = 200) -> None:
        self.answer(status, json.dumps(document).encode())
