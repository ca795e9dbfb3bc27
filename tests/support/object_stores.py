"""Servers of objects for tests: nginx by https, an S3 server of PyPI (moto), and Azure's emulator of npm
(azurite), if its program ``azurite-blob`` is on PATH."""

import base64
import datetime
import hashlib
import hmac
import importlib.util
import ipaddress
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

_SECONDS = 60
BUCKET = "pictures"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Process:
    """A server of our own: ``command`` listens at ``port`` once it is up."""

    def __init__(self, command, port, log):
        self.port = port
        with open(log, "ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        self.close()
        raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}")

    def close(self):
        self.process.kill()
        self.process.wait()


NGINX = """
daemon off; master_process off; worker_processes 1; pid {work}/pid; error_log {work}/log info;
events {{ worker_connections 256; }}
http {{
  access_log {work}/requests; client_body_temp_path {work}/b; proxy_temp_path {work}/p;
  fastcgi_temp_path {work}/f; uwsgi_temp_path {work}/u; scgi_temp_path {work}/s;
  server {{
    listen 127.0.0.1:{port} ssl; root {files};
    ssl_certificate {work}/cert.pem; ssl_certificate_key {work}/key.pem;
  }}
}}
"""


class Nginx:
    """Serves a folder by https, with a certificate of its own."""

    def __init__(self, work):
        self.files = work / "files"
        self.files.mkdir()
        self._seconds = 1_700_000_000
        make_certificate(work)
        port = free_port()
        (work / "conf").write_text(NGINX.format(work=work, files=self.files, port=port))
        for each in (work, self.files):
            each.chmod(0o755)
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        command = [program, "-p", str(work), "-c", str(work / "conf")]
        self._process = Process(command, port, work / "out")
        self.port = port
        self.certificate = (work / "cert.pem").read_text()

    def put(self, name, content):
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        # nginx's ETag is time and size, and a shard that changes within a second would keep it.
        self._seconds += 1
        os.utime(path, (self._seconds, self._seconds))

    def url(self, port=None):
        return f"https://127.0.0.1:{port or self.port}"

    def options(self, port=None):
        return {"client_options": {"root_certificate": self.certificate}}

    def close(self):
        self._process.close()


class S3:
    """An S3 server with one bucket."""

    def __init__(self, work):
        port = free_port()
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._process = Process(command, port, work / "out")
        self.port = port
        import boto3

        self.client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        )
        self.client.create_bucket(Bucket=BUCKET)

    def put(self, name, content):
        self.client.put_object(Bucket=BUCKET, Key=name, Body=content)

    def url(self, port=None):
        return f"s3://{BUCKET}"

    def options(self, port=None):
        return {
            "endpoint": f"http://127.0.0.1:{port or self.port}",
            "access_key_id": "key",
            "secret_access_key": "secret",
            "region": "us-east-1",
        }

    def close(self):
        self._process.close()


# Known to all, and the same in each azurite.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Azurite:
    """Azure's emulator, with one container."""

    def __init__(self, work):
        port = free_port()
        command = ["azurite-blob", "--blobPort", str(port), "--blobHost", "127.0.0.1"]
        command += ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
        self._process = Process(command, port, work / "out")
        self.port = port
        self._make_container()
        import obstore.store

        client = {"client_options": {"allow_http": True}}
        self._store = obstore.store.from_url(self.url(), **self.options(), **client)

    def _make_container(self):
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {"x-ms-date": now, "x-ms-version": "2021-08-06"}
        lines = ["PUT", "", "", "", "", "application/octet-stream", *[""] * 6]
        lines += [f"{name}:{value}" for name, value in headers.items()]
        lines += [f"/{_ACCOUNT}/{_ACCOUNT}/{BUCKET}", "restype:container"]
        signed = hmac.new(base64.b64decode(_KEY), "\n".join(lines).encode(), hashlib.sha256)
        signature = base64.b64encode(signed.digest()).decode()
        headers["Authorization"] = f"SharedKey {_ACCOUNT}:{signature}"
        headers["Content-Type"] = "application/octet-stream"
        where = f"http://127.0.0.1:{self.port}/{_ACCOUNT}/{BUCKET}?restype=container"
        request = urllib.request.Request(where, b"", headers, method="PUT")
        assert urllib.request.urlopen(request).status == 201

    def put(self, name, content):
        self._store.put(name, content)

    def url(self, port=None):
        return f"az://{BUCKET}"

    def options(self, port=None):
        endpoint = f"http://127.0.0.1:{port or self.port}/{_ACCOUNT}"
        return {"account_name": _ACCOUNT, "account_key": _KEY, "endpoint": endpoint}

    def close(self):
        self._process.close()


def make_certificate(folder):
    """A certificate for 127.0.0.1, which signs itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    now = datetime.datetime.now(datetime.timezone.utc)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def started(kind, work):
    """The server, or a skip that says what is missing."""
    pytest.importorskip("obstore")
    if kind == "https":
        if shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") is None:
            pytest.skip("needs nginx")
        pytest.importorskip("cryptography")
        return Nginx(work)
    if kind == "az":
        if shutil.which("azurite-blob") is None:
            pytest.skip("needs azurite-blob, of npm's azurite")
        return Azurite(work)
    if importlib.util.find_spec("moto") is None:
        pytest.skip("needs moto[server]")
    pytest.importorskip("boto3")
    return S3(work)
