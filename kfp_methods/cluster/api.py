"""One call to KFP's REST API: with a timeout, retried where that is safe, and every refusal explained.

Built on kfp-server-api's generated client rather than on kfp.Client, which sets no timeout on its requests,
reads and writes a context file in the home directory, waits 25 s for a dead server and prints links.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import kfp_server_api
from urllib3 import exceptions as http

from kfp_methods.cluster.connection import ClusterError, Connection
from kfp_methods.cluster.refusals import RefusalError, explained

PAUSES = (0.5, 1.0, 2.0)
"""Seconds before each retry."""


class _Client(kfp_server_api.ApiClient):
    """The generated client, held to a timeout, to no redirects and to JSON."""

    def __init__(self, connection: Connection) -> None:
        configuration = kfp_server_api.Configuration(host=connection.endpoint)
        configuration.verify_ssl = connection.verify
        configuration.ssl_ca_cert = str(connection.ca) if connection.ca else None
        configuration.retries = False  # urllib3's own would follow a redirect to a login page
        super().__init__(configuration)
        self._connection = connection

    def update_params_for_auth(self, headers: dict[str, str], querys: Any, auth_settings: Any) -> None:
        if bearer := self._connection.bearer():
            headers["authorization"] = f"Bearer {bearer}"

    def request(self, *args: Any, **kwargs: Any) -> Any:
        # A pair, because the generated code ignores a timeout that is a float.
        kwargs["_request_timeout"] = (self._connection.timeout, self._connection.timeout)
        try:
            response = super().request(*args, **kwargs)
        except kfp_server_api.ApiException as error:
            if not error.status:  # how the generated code hands on a TLS failure
                raise http.SSLError(error.reason) from None
            raise RefusalError(error.status, error.headers or {}, error.body or b"") from None
        if not response.data.lstrip().startswith(b"{"):
            raise RefusalError(response.status, response.getheaders(), response.data)
        return response


class Api:
    """The services of one server; `call` is the only way to use them."""

    def __init__(self, connection: Connection, pauses: tuple[float, ...] = PAUSES) -> None:
        client = _Client(connection)
        self._connection = connection
        self._pauses = pauses
        self.pipelines = kfp_server_api.PipelineServiceApi(client)
        self.uploads = kfp_server_api.PipelineUploadServiceApi(client)
        self.experiments = kfp_server_api.ExperimentServiceApi(client)
        self.runs = kfp_server_api.RunServiceApi(client)
        self.recurring_runs = kfp_server_api.RecurringRunServiceApi(client)

    def call(
        self, doing: str, operation: Callable[..., Any], *args: Any, repeatable: bool = True, **kwargs: Any
    ) -> Any:
        """The operation's answer; keywords that are None are left out.

        A transient failure is retried after each of the pauses. Where `repeatable` is False (a run created
        twice costs a run), only a request that the server did not take is: refused connection, 429, 503.
        Raises ClusterError; `doing` tells what was attempted, such as "list runs".
        """
        given = {name: value for name, value in kwargs.items() if value is not None}
        pauses = iter(self._pauses)
        attempts = 0
        while True:
            attempts += 1
            try:
                return operation(*args, **given)
            except (RefusalError, http.HTTPError, kfp_server_api.OpenApiException) as error:
                problem = explained(error, doing, self._connection)
                not_taken = isinstance(error, http.NewConnectionError) or problem.status in (429, 503)
            if problem.transient and not (repeatable or not_taken):
                raise _perhaps_done(problem, doing)
            pause = next(pauses, None) if problem.transient else None
            if pause is None:
                raise _after(problem, attempts)
            time.sleep(pause)


def _perhaps_done(problem: ClusterError, doing: str) -> ClusterError:
    remedy = f"Look before you {doing} again: it was not repeated, since the server may have done it"
    return ClusterError(problem.problem, f"{remedy}. {problem.remedy}", status=problem.status, transient=True)


def _after(problem: ClusterError, attempts: int) -> ClusterError:
    if attempts == 1:
        return problem
    counted = f"{problem.problem} ({attempts} attempts)"
    return ClusterError(counted, problem.remedy, status=problem.status, transient=problem.transient)
