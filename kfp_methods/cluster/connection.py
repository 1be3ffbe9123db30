"""Where a Kubeflow Pipelines server is, who asks, and what to do when it does not answer.

Imports neither kfp nor kfp-server-api.
"""

from __future__ import annotations

import math
import os
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from kfp_methods.cluster.checks import name_problems

IN_CLUSTER_ENDPOINT = "http://ml-pipeline.kubeflow:8888"
IN_CLUSTER_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
IN_CLUSTER_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1"}


class ClusterError(Exception):
    """The server could not be asked, or refused; the text is one line that ends with the remedy.

    `status` is the HTTP status where there was an answer; `transient` says that the same may work later. What is
    not transient, such as a wrong token or an unknown run, is for the user to correct.
    """

    def __init__(self, problem: str, remedy: str, *, status: int | None = None, transient: bool = False) -> None:
        self.problem = _one_line(problem)
        self.remedy = _one_line(remedy)
        self.status = status
        self.transient = transient
        super().__init__(f"{self.problem}. {self.remedy}.")


@dataclass(frozen=True)
class Connection:
    """One KFP server as one user sees it.

    endpoint: URL of the server, as the browser shows it or as the API service is called in the cluster. A
        text without a scheme means https, and http for this machine (a forwarded port). What the browser adds
        behind the path (`?ns=…#/runs`) is dropped; the dashboard's `/_/pipeline` becomes `/pipeline`.
    namespace: the profile's namespace of a multi-user deployment; None on a single-user one.
    token: bearer token; never shown. token_file: a file with it, read anew for every request, since the
        kubelet replaces a projected token every hour.
    ca: PEM file of the authority that signed the server's certificate. verify: False accepts any certificate.
    timeout: seconds to wait for a connection, and again for each answer.
    ui: URL of the user interface for links, where it is not the endpoint.

    Raises ClusterError where one of them cannot be used.
    """

    endpoint: str
    namespace: str | None = None
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    verify: bool = True
    timeout: float = 30.0
    token_file: Path | None = None
    ui: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "endpoint", _normal_url(self.endpoint))
        object.__setattr__(self, "ui", _normal_url(self.ui) if self.ui else self.endpoint)
        if self.token is not None:
            object.__setattr__(self, "token", _checked_token(self.token, "The token"))
        if not 0 < self.timeout < math.inf:
            raise ClusterError(f"timeout={self.timeout} is not positive", "Give the seconds to wait, such as 30")
        if self.ca is not None:
            _check_authority(self.ca)
        if self.namespace is not None and name_problems(namespace=self.namespace):
            raise ClusterError(
                f"The namespace {self.namespace!r} is not a name that Kubernetes allows",
                "Give the profile's namespace, as kubectl get namespaces lists it (--namespace or KFP_NAMESPACE)",
            )

    @classmethod
    def from_environment(
        cls,
        *,
        endpoint: str | None = None,
        namespace: str | None = None,
        token: str | None = None,
        token_file: Path | None = None,
        ca: Path | None = None,
        verify: bool | None = None,
        timeout: float | None = None,
        ui: str | None = None,
    ) -> Connection:
        """What is given, else KFP_ENDPOINT, KFP_NAMESPACE, KFP_TOKEN, KFP_TOKEN_FILE, KFP_CA and KFP_UI.

        The SDK's own KF_PIPELINES_ENDPOINT and KF_PIPELINES_UI_ENDPOINT count too. In a pod that has a
        projected KFP token and names no endpoint, the in-cluster service, that token and the pod's namespace
        are used; the pod's token is never sent to an endpoint that somebody named.
        """
        endpoint = endpoint or _variable("KFP_ENDPOINT", "KF_PIPELINES_ENDPOINT")
        namespace = namespace or _variable("KFP_NAMESPACE")
        if token is None and token_file is None:
            token = _variable("KFP_TOKEN")
            token_file = None if token else _path_variable("KFP_TOKEN_FILE")
        if endpoint is None and IN_CLUSTER_TOKEN.is_file():
            endpoint = IN_CLUSTER_ENDPOINT
            token_file = token_file or (None if token else IN_CLUSTER_TOKEN)
            namespace = namespace or _text(IN_CLUSTER_NAMESPACE)
        if endpoint is None:
            raise ClusterError(
                "No Kubeflow Pipelines endpoint was given",
                "Give --endpoint or set KFP_ENDPOINT, such as https://kubeflow.example.com/pipeline, or "
                "kubectl port-forward -n kubeflow svc/ml-pipeline-ui 8080:80 and give localhost:8080",
            )
        return cls(
            endpoint=endpoint,
            namespace=namespace,
            token=token,
            token_file=token_file,
            ca=ca or _path_variable("KFP_CA"),
            verify=True if verify is None else verify,
            timeout=30.0 if timeout is None else timeout,
            ui=ui or _variable("KFP_UI", "KF_PIPELINES_UI_ENDPOINT"),
        )

    def bearer(self) -> str | None:
        """The token to send now, or None; raises ClusterError where its file cannot be read."""
        if self.token is not None or self.token_file is None:
            return self.token
        try:
            return _checked_token(self.token_file.read_text(), f"The token in {self.token_file}")
        except (OSError, UnicodeDecodeError) as error:
            raise ClusterError(
                f"The token file {self.token_file} cannot be read: {type(error).__name__}",
                "Give the path of a file with the token alone (KFP_TOKEN_FILE)",
            ) from None

    def link(self, page: str) -> str:
        """URL of a page of the user interface, such as `runs/details/ID`."""
        return f"{self.ui}/#/{page}"


def _normal_url(text: str) -> str:
    text = text.strip()
    if "://" not in text:
        host = urlsplit(f"//{text}").hostname
        text = f"{'http' if host in _LOCAL_HOSTS else 'https'}://{text}"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ClusterError(
            "The endpoint is not a URL of a server", "Give one such as https://kubeflow.example.com/pipeline"
        )
    if "@" in parts.netloc:
        raise ClusterError(
            f"The endpoint of {parts.hostname} holds a user name or password",
            "Leave it out, and give a token with KFP_TOKEN or KFP_TOKEN_FILE",
        )
    path = re.sub(r"/_/pipeline(/|$)", r"/pipeline\1", parts.path).rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _check_authority(file: Path) -> None:
    try:
        ssl.create_default_context(cafile=str(file))
    except (ssl.SSLError, ValueError):
        flaw = "is not a PEM certificate"
    except OSError as error:
        flaw = f"cannot be read ({error.strerror})"
    else:
        return
    raise ClusterError(f"The CA file {file} {flaw}", "Give the path of the authority's PEM file (--ca or KFP_CA)")


def _checked_token(text: str, what: str) -> str:
    """Refused here because http.client would quote the whole token in its own error."""
    token = text.strip().removeprefix("Bearer ").strip()
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        flaw = "a text with blanks or odd characters" if token else "empty"
        raise ClusterError(
            f"{what} is {flaw}",
            "Give the bare token, as kubectl create token prints it",
        )
    return token


def _variable(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


def _path_variable(name: str) -> Path | None:
    return Path(value) if (value := _variable(name)) else None


def _text(path: Path) -> str | None:
    return path.read_text().strip() if path.is_file() else None


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
