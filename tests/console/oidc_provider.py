"""A small OpenID Connect provider with real keys, on a port of its own: code flow with PKCE."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT = "tidegate-tests"


def new_key() -> Any:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class Provider:
    """`says` is what it tells of the person; `key`, `token` and `userinfo` let a test forge."""

    says: dict[str, Any] = field(default_factory=dict)
    key: Any = field(default_factory=new_key)
    published: Any = None
    token: dict[str, Any] = field(default_factory=dict)
    userinfo: dict[str, Any] = field(default_factory=dict)
    challenges: dict[str, str] = field(default_factory=dict)
    url: str = ""

    def start(self) -> None:
        self.published = self.key
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: dict[str, list[str]]) -> Any:
        match method, path:
            case "GET", "/.well-known/openid-configuration":
                ends = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
                addresses = {f"{name}_endpoint": f"{self.url}/{end}" for name, end in ends.items()}
                return {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **addresses}
            case "GET", "/keys":
                public = jwt.algorithms.RSAAlgorithm.to_jwk(self.published.public_key(), as_dict=True)
                return {"keys": [{**public, "kid": "one", "alg": "RS256", "use": "sig"}]}
            case "POST", "/token":
                return self._tokens(body)
            case "GET", "/userinfo":
                return {**self.says, **self.userinfo}
        return None

    def authorize(self, address: str) -> str:
        """What the person's browser does there: sign in, and be sent back with a code. Returns the query."""
        asked = parse_qs(urlsplit(address).query)
        code = f"code-{len(self.challenges)}"
        self.challenges[code] = asked["code_challenge"][0]
        return f"code={code}&state={asked['state'][0]}"

    def _tokens(self, body: dict[str, list[str]]) -> Any:
        digest = hashlib.sha256(body["code_verifier"][0].encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != self.challenges.pop(body["code"][0], ""):
            return {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 60,
            "auth_time": now,
            **self.says,
            **self.token,
        }
        algorithm = claims.pop("alg", "RS256")
        key = "guessable secret of the right length" if algorithm == "HS256" else self.key
        signed = jwt.encode(claims, key, algorithm=algorithm, headers={"kid": "one"})
        return {"access_token": "opaque", "token_type": "Bearer", "id_token": signed}


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            self._answer(parse_qs(self.rfile.read(length).decode()))

        def _answer(self, body: dict[str, list[str]]) -> None:
            at = urlsplit(self.path)
            said = provider.answer(self.command, at.path, parse_qs(at.query), body)
            data = json.dumps(said).encode()
            self.send_response(404 if said is None else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
