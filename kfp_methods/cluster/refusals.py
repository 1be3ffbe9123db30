"""What a failed request means for the user, and what to do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from urllib3 import exceptions as http

from kfp_methods.cluster.connection import ClusterError, Connection

_SIGN_IN = (
    "Set KFP_TOKEN or KFP_TOKEN_FILE, for example to what kubectl create token default-editor -n NAMESPACE "
    "--audience pipelines.kubeflow.org prints"
)
_GO_ROUND = (
    "Give a token that the proxy takes (KFP_TOKEN or KFP_TOKEN_FILE), check the path (it often ends with "
    "/pipeline), or go round the proxy: kubectl port-forward -n kubeflow svc/ml-pipeline-ui 8080:80 and "
    "http://localhost:8080"
)
_WRONG_PATH = (
    "The path is not the API's: behind Kubeflow's dashboard the endpoint ends with /pipeline, a forwarded "
    "ml-pipeline-ui or ml-pipeline has no path"
)
_UNWELL = "The server or the proxy before it is unwell: try again, and look at kubectl get pods -n kubeflow"
_REMEDIES = {
    400: "Correct what the server names",
    404: "Check the id: kfp-methods runs and kfp-methods schedules list those that exist",
    409: "Somebody else made it at the same moment: try again",
    413: "Make the package smaller, or ask for a larger request limit of the proxy before the server",
    429: "The server asks to slow down: try again later",
    500: "If it names no input of yours, look at kubectl logs -n kubeflow deploy/ml-pipeline",
}


# The upload handler answers 400 where the rest of the API answers 401 or 403.
_DENIED = re.compile("authoriz|authenti|permission", re.IGNORECASE)


class RefusalError(Exception):
    """An answer that is not the API's JSON with a status of success."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.location = headers.get("location", "")
        self.is_page = "html" in headers.get("content-type", "") or body.lstrip().startswith(b"<")
        self.message, self.is_api = _server_message(body)


def explained(error: Exception, doing: str, connection: Connection) -> ClusterError:
    """The failure of an attempt to do something, such as "list runs", without the token that was sent."""
    if isinstance(error, RefusalError):
        problem = _refusal(error, doing, connection)
    elif isinstance(error, http.HTTPError):
        problem = _no_answer(error, doing, connection)
    else:
        problem = ClusterError(
            f"What {connection.endpoint} answers is not understood (to {doing})",
            "Check that the endpoint is a Kubeflow Pipelines 2 server",
        )
    token = connection.bearer()
    if not token or token not in str(problem):
        return problem
    return ClusterError(
        problem.problem.replace(token, "***"),
        problem.remedy.replace(token, "***"),
        status=problem.status,
        transient=problem.transient,
    )


def _no_answer(error: http.HTTPError, doing: str, connection: Connection) -> ClusterError:
    """What stood between this machine and the server."""
    where = f"{connection.endpoint} (to {doing})"
    if isinstance(error, http.SSLError):
        return ClusterError(
            f"TLS with {where} failed: {_cause(error)}",
            "Give the authority's PEM file with --ca or KFP_CA, or check that the scheme should not be http",
        )
    if isinstance(error, http.NameResolutionError):
        return ClusterError(
            f"The name {urlsplit(connection.endpoint).hostname} is not known to DNS (to {doing})",
            "Check the endpoint's spelling, and that this machine is on the network or VPN that knows it",
        )
    if isinstance(error, http.NewConnectionError):
        return ClusterError(
            f"No connection to {where}: {_cause(error)}",
            "Check host and port, and that the server or the kubectl port-forward is running",
            transient=True,
        )
    if isinstance(error, http.TimeoutError):
        return ClusterError(
            f"No answer from {where} within {connection.timeout:g} s",
            "Check the network or VPN, or give more time with --timeout",
            transient=True,
        )
    return ClusterError(
        f"The connection to {where} broke: {_cause(error)}",
        "Try again; where it stays so, check the proxy and whether the endpoint speaks http or https",
        transient=True,
    )


def _refusal(answer: RefusalError, doing: str, connection: Connection) -> ClusterError:
    """What the server's answer says."""
    status, endpoint = answer.status, connection.endpoint
    if 300 <= status < 400:
        return _redirected(answer, doing, endpoint)
    if answer.is_page and status in (200, 401, 403):
        return ClusterError(
            f"{endpoint} answered a web page instead of JSON (to {doing}), such as a proxy's login page",
            _GO_ROUND,
            status=status,
        )
    if status < 300:
        return ClusterError(f"What {endpoint} answers is not JSON (to {doing})", _WRONG_PATH, status=status)
    said = f": {answer.message}" if answer.message else ""
    return ClusterError(
        f"{endpoint} refused to {doing} with {status}{said}",
        _remedy(answer, connection),
        status=status,
        transient=status == 429 or status >= 500,
    )


def _remedy(answer: RefusalError, connection: Connection) -> str:
    status, namespace = answer.status, connection.namespace
    if status == 401:
        if connection.token is None and connection.token_file is None:
            return f"No token was sent. {_SIGN_IN}"
        return f"The token was refused, perhaps it has expired: get a new one. {_SIGN_IN}"
    if status == 403 or (status == 400 and _DENIED.search(answer.message)):
        where = f"in the namespace {namespace}" if namespace else "and give --namespace, none was given"
        return f"Ask for the role kubeflow-edit (to look only, kubeflow-view) {where}; or use another token"
    if status == 404 and not answer.is_api:
        return _WRONG_PATH
    if status == 400 and "namespace" in answer.message.lower():
        if namespace is None:
            return "This is a multi-user server: give --namespace or set KFP_NAMESPACE"
        if "single-user" in answer.message.lower():
            return "This server has no profiles: give no --namespace, and unset KFP_NAMESPACE"
    return _REMEDIES.get(status, _UNWELL if status > 500 else "Check the endpoint and the request")


def _redirected(answer: RefusalError, doing: str, endpoint: str) -> ClusterError:
    """A redirect is shown without its query, which may hold a session's secrets."""
    here, there = urlsplit(endpoint), urlsplit(answer.location)
    target = f"{there.scheme}://{there.hostname}{there.path}" if there.hostname else there.path
    upgraded = there.hostname == here.hostname and there.scheme == "https" and here.scheme == "http"
    return ClusterError(
        f"{endpoint} redirects to {target} (to {doing}), as a proxy does that wants a login",
        f"Give the endpoint with https: https://{there.netloc}{here.path}" if upgraded else _GO_ROUND,
        status=answer.status,
    )


def _server_message(body: bytes) -> tuple[str, bool]:
    """The error text of an answer, and whether it has the form of KFP's gRPC gateway or upload handler."""
    text = body[:100_000].decode("utf-8", errors="replace")
    try:
        document = json.loads(text)
    except ValueError:
        return ("" if text.lstrip().startswith("<") else " ".join(text.split())[:300]), False
    if not isinstance(document, dict):
        return "", False
    found = next((document[key] for key in ("message", "error_message", "error") if document.get(key)), "")
    return " ".join(str(found).split())[:600], bool({"code", "error_message"} & document.keys())


def _cause(error: Exception) -> str:
    """urllib3's text without the connection object that it begins with."""
    return str(error).rpartition("): ")[2]
