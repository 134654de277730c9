"""A small OpenID provider on this machine: discovery, keys, codes with PKCE, and who is who."""

import base64
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET = "helixweb", "a secret of the client"


class Provider:
    """`claims` are told of whoever logs in; `spoil` changes a token before it is signed."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.claims: dict[str, Any] = {"sub": "42", "preferred_username": "grace", "groups": []}
        self.spoil: dict[str, Any] = {}
        self.told: dict[str, Any] = {}  # by userinfo, where it is not what the token says
        self.codes: dict[str, dict[str, str]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.get(self)

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                form = parse_qs(self.rfile.read(length).decode())
                provider.token(self, {name: values[0] for name, values in form.items()})

            def log_message(self, *args: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def log_in(self, address: str) -> str:
        """What a browser that follows `address` to the provider comes back with: a query."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return urlencode({"code": code, "state": asked["state"]})

    def get(self, http: BaseHTTPRequestHandler) -> None:
        if http.path == "/.well-known/openid-configuration":
            paths = {
                "authorization_endpoint": "authorize",
                "token_endpoint": "token",
                "userinfo_endpoint": "userinfo",
                "jwks_uri": "keys",
            }
            answer(
                http, {"issuer": self.issuer} | {k: f"{self.issuer}/{v}" for k, v in paths.items()}
            )
        elif http.path == "/keys":
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
            answer(http, {"keys": [public | {"kid": "one", "alg": "RS256", "use": "sig"}]})
        elif http.path == "/userinfo" and http.headers["Authorization"] == "Bearer access":
            answer(http, self.claims | self.told)
        else:
            answer(http, {}, status=404)

    def token(self, http: BaseHTTPRequestHandler, form: dict[str, str]) -> None:
        asked = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        good = (
            asked is not None
            and (form["client_id"], form["client_secret"]) == (CLIENT, SECRET)
            and asked["code_challenge"] == challenge
            and asked["redirect_uri"] == form["redirect_uri"]
        )
        if not good or asked is None:
            answer(http, {"error": "invalid_grant"}, status=400)
            return
        payload = {
            "iss": self.issuer,
            "aud": CLIENT,
            "exp": int(time.time()) + 60,
            "iat": int(time.time()),
            "nonce": asked["nonce"],
            **self.claims,
            **self.spoil,
        }
        token = jwt.encode(payload, self.key, algorithm="RS256", headers={"kid": "one"})
        answer(http, {"access_token": "access", "id_token": token, "token_type": "Bearer"})


def answer(http: BaseHTTPRequestHandler, document: Any, status: int = 200) -> None:
    content = json.dumps(document).encode()
    http.send_response(status)
    http.send_header("Content-Type", "application/json")
    http.send_header("Content-Length", str(len(content)))
    http.end_headers()
    http.wfile.write(content)
