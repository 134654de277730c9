"""The certificate by which a node's instances are known to coordinators on other machines.

Signed by itself and kept beside the instances; the agent tells it to the site with its own
credential, and who asks the instances takes this one and no other.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from runtime.whole_file import write_whole

_NAME = "helix-instance"
_LASTS = timedelta(days=3650)  # it is replaced by deleting it, not by its end
_EARLIER = timedelta(days=1)  # clocks of machines differ


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """Paths of what a server presents; `text` is the certificate (PEM), which is no secret."""

    key: Path
    certificate: Path
    text: str


def load_or_create(directory: Path) -> CertificateFiles:
    """Those kept in `directory`, made on first use, the key readable by its owner only."""
    key_path, path = directory / "instances.key", directory / "instances.pem"
    if not (key_path.exists() and path.exists()):
        key = ec.generate_private_key(ec.SECP256R1())
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        write_whole(key_path, secret)
        write_whole(path, _signed(key).public_bytes(serialization.Encoding.PEM))
    return CertificateFiles(key=key_path, certificate=path, text=path.read_text())


def _signed(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + _LASTS)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
