"""A Kubeflow Pipelines server in memory that speaks the v2beta1 REST API over a real socket.

Its routes, query parameters and body types are read from the installed kfp_server_api: a request with an
unknown parameter or field, or with a value of another type, is answered 400; every answer is a kfp_server_api
model. What the models do not say (unique names, filters, page tokens, which fields a run needs) follows the
server's behaviour. Faults can be put before any route.
"""

from __future__ import annotations

import base64
import email
import functools
import inspect
import json
import re
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, unquote_plus, urlsplit

import kfp_server_api as kfp
import yaml

_OPERATIONS = ["UNSPECIFIED", "EQUALS", "NOT_EQUALS", "GREATER_THAN", "", "GREATER_THAN_EQUALS", "LESS_THAN"]
_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 409: 6, 500: 13, 501: 12}
_PLAIN: dict[str, Any] = {"str": str, "int": int, "bool": bool, "float": (int, float)}


class RefusalError(Exception):
    """An answer with a status of failure: KFP's gRPC code in the body, as its gateway writes it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": message, "code": _CODES[status], "message": message, "details": []}


@dataclass
class Fault:
    """Answers instead of the server, `times` times (None: always), where `where` matches `METHOD path`."""

    where: str = ""
    times: int | None = 1
    status: int = 500
    body: bytes = b'{"error": "boom", "code": 13, "message": "boom"}'
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    delay: float = 0.0
    drop: bool = False
    passes: bool = False
    """The server does what is asked of it, and the answer is then replaced."""


@dataclass
class Stage:
    """What a run shows until it is asked again."""

    state: str
    tasks: dict[str, str] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class Route:
    operation: str
    method: str
    path: str
    query: frozenset[str]
    body: str | None

    def match(self, method: str, path: str) -> dict[str, str] | None:
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/:]+)", re.escape(self.path))
        found = re.fullmatch(pattern, path) if method == self.method else None
        return None if found is None else {name: unquote(value) for name, value in found.groupdict().items()}


@dataclass
class Request:
    """A checked request: `body` is a kfp_server_api model, or an uploaded file's bytes."""

    route: Route
    path: dict[str, str]
    query: dict[str, str]
    body: Any = None


@functools.cache
def routes() -> tuple[Route, ...]:
    """Every operation that kfp_server_api can send, from its generated code; fixed paths before patterns."""
    found = []
    for api in (value for name, value in vars(kfp).items() if name.endswith("ServiceApi")):
        for name, function in inspect.getmembers(api, inspect.isfunction):
            if name.endswith("_with_http_info"):
                found.append(_route(name.removesuffix("_with_http_info"), inspect.getsource(function)))
    return tuple(sorted(found, key=lambda route: route.path.count("{")))


def _route(operation: str, source: str) -> Route:
    path, method = re.findall(r"'(/apis[^']*)', '(\w+)'", source)[0]
    sent = re.search(r"body_params = local_var_params\['(\w+)'\]", source)
    body = re.search(rf":type {sent[1]}: (\w+)", source) if sent else None
    query = frozenset(re.findall(r"query_params\.append\(\('(\w+)'", source))
    return Route(operation, method, path, query, body[1] if body else None)


def parse(type_name: str, value: Any, where: str = "body") -> Any:
    """JSON as a kfp_server_api type; refuses unknown fields and values of another type."""
    if value is None or type_name == "object":
        return value
    if inner := re.fullmatch(r"list\[(.*)\]", type_name):
        if not isinstance(value, list):
            raise RefusalError(400, f"{where} is not a list")
        return [parse(inner[1], entry, f"{where}[]") for entry in value]
    if inner := re.fullmatch(r"dict\(str, (.*)\)", type_name):
        if not isinstance(value, dict):
            raise RefusalError(400, f"{where} is not a mapping")
        return {name: parse(inner[1], entry, f"{where}.{name}") for name, entry in value.items()}
    if type_name in _PLAIN:
        if not isinstance(value, _PLAIN[type_name]) or (type_name == "int" and isinstance(value, bool)):
            raise RefusalError(400, f"invalid value for {type_name} field {where}: {value!r}")
        return value
    if type_name == "datetime":
        return datetime.fromisoformat(value)
    return _parse_model(getattr(kfp, type_name), value, where)


def _parse_model(model: Any, value: Any, where: str) -> Any:
    if hasattr(model, "allowable_values") and not model.openapi_types:
        if value not in model.allowable_values:
            raise RefusalError(400, f"invalid value for enum field {where}: {value!r}")
        return value
    if not isinstance(value, dict):
        raise RefusalError(400, f"{where} is not a {model.__name__}")
    attributes = {name: attribute for attribute, name in model.attribute_map.items()}
    if unknown := value.keys() - attributes.keys():
        raise RefusalError(400, f'unknown field "{min(unknown)}" in {where}')
    return model(
        **{
            attributes[name]: parse(model.openapi_types[attributes[name]], entry, f"{where}.{name}")
            for name, entry in value.items()
        }
    )


class FakeKfp:
    """The server; a context manager. `url` is where it listens; `seen` keeps a line for every request."""

    def __init__(self, *, token: str | None = None, tls: ssl.SSLContext | None = None, prefix: str = "") -> None:
        self.token = token
        self.prefix = prefix
        self.multi_user = False
        self.max_page_size = 200
        self.forbidden_namespaces: set[str] = set()
        self.faults: list[Fault] = []
        self.seen: list[str] = []
        self.sent: list[Any] = []
        self.stages = [
            Stage("PENDING"),
            Stage("RUNNING", {"train": "RUNNING"}),
            Stage("SUCCEEDED", {"train": "SUCCEEDED"}),
        ]
        self.pipelines: list[Any] = []
        self.versions: list[Any] = []
        self.experiments: list[Any] = []
        self.runs: list[Any] = []
        self.recurring_runs: list[Any] = []
        self._asked: dict[str, int] = {}
        self._clock = datetime(2026, 1, 1, tzinfo=UTC)
        self._routes = routes()
        self._lock = threading.Lock()
        self._server = _listening(self)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "http" if tls is None else "https"

    def __enter__(self) -> FakeKfp:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"{self._scheme}://localhost:{self._server.server_port}{self.prefix}"

    def count(self, where: str) -> int:
        """How many requests matched."""
        return sum(re.search(where, line) is not None for line in self.seen)

    # ---- from a request to an answer

    def fault_for(self, line: str) -> Fault | None:
        with self._lock:
            self.seen.append(line)
            for fault in self.faults:
                if re.search(fault.where, line) and fault.times != 0:
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> Any:
        """The JSON to send with 200; raises RefusalError."""
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            raise RefusalError(
                401, f"Unauthenticated: the request's header {headers.get('authorization')} is not valid"
            )
        request = self._checked(method, urlsplit(target), headers, body)
        operation = getattr(self, request.route.operation, None)
        if operation is None:
            raise RefusalError(501, f"{request.route.operation} is not part of this server")
        with self._lock:
            self.sent.append(request.body)
            return kfp.ApiClient(kfp.Configuration()).sanitize_for_serialization(operation(request))

    def _checked(self, method: str, url: Any, headers: Any, body: bytes) -> Request:
        path = url.path.removeprefix(self.prefix)
        for route in self._routes:
            if (values := route.match(method, path)) is not None:
                break
        else:
            raise LookupError(path)
        query = dict(parse_qsl(url.query))
        if unknown := query.keys() - route.query:
            raise RefusalError(400, f"unknown query parameter {min(unknown)} of {route.operation}")
        if self.multi_user and query.get("namespace") in self.forbidden_namespaces:
            verb, resource = ("list", path.rsplit("/", 1)[-1]) if method == "GET" else ("create", "pipelines")
            raise RefusalError(403, f"User is not authorized to {verb} {resource} in namespace {query['namespace']}")
        request = Request(route, values, query)
        if headers.get_content_type() == "multipart/form-data":
            request.body = _uploaded(headers, body)
        elif route.body is not None:
            if not body:
                raise RefusalError(400, f"{route.operation} needs a body")
            request.body = parse(route.body, json.loads(body))
        return request

    def _now(self) -> datetime:
        self._clock += timedelta(seconds=1)
        return self._clock

    def _page(self, request: Request, items: list[Any], response: Callable[..., Any], name: str) -> Any:
        """Filtered, sorted and cut as the server does; a page token holds only for the same question."""
        query = request.query
        question = [query.get("filter", ""), query.get("sort_by", "")]
        items = _sorted([item for item in items if _matches(item, query.get("filter", ""))], question[1])
        size, start = min(int(query.get("page_size", 0)) or 20, self.max_page_size), 0
        if token := query.get("page_token"):
            start, *asked = json.loads(base64.b64decode(token))
            if asked != question:
                raise RefusalError(400, "page token does not match the supplied sort by and/or filtering criteria")
        end = start + size
        more = base64.b64encode(json.dumps([end, *question]).encode()).decode() if end < len(items) else None
        return response(**{name: items[start:end], "total_size": len(items), "next_page_token": more})

    def _in_namespace(self, items: list[Any], request: Request) -> list[Any]:
        namespace = request.query.get("namespace", "")
        if self.multi_user and not namespace:
            raise RefusalError(400, "Invalid input error: the namespace cannot be empty in multi-user mode")
        return [item for item in items if not self.multi_user or item.namespace == namespace]

    # ---- pipelines

    def pipeline_service_list_pipelines(self, request: Request) -> Any:
        found = self._in_namespace(self.pipelines, request)
        return self._page(request, found, kfp.V2beta1ListPipelinesResponse, "pipelines")

    def pipeline_service_create_pipeline(self, request: Request) -> Any:
        pipeline = request.body
        pipeline.name = pipeline.name or pipeline.display_name
        pipeline.display_name = pipeline.display_name or pipeline.name
        if not pipeline.name:
            raise RefusalError(400, "Invalid input error: the pipeline's name is empty")
        if any((other.name, other.namespace) == (pipeline.name, pipeline.namespace) for other in self.pipelines):
            raise RefusalError(409, f"The pipeline name {pipeline.name} already exists")
        pipeline.pipeline_id, pipeline.created_at = str(uuid.uuid4()), self._now()
        self.pipelines.append(pipeline)
        return pipeline

    def upload_pipeline(self, request: Request) -> Any:
        query = request.query
        request.body, package = (
            kfp.V2beta1Pipeline(
                name=query.get("name"),
                display_name=query.get("display_name"),
                description=query.get("description"),
                namespace=query.get("namespace"),
            ),
            request.body,
        )
        pipeline = self.pipeline_service_create_pipeline(request)
        self._add_version(pipeline.pipeline_id, pipeline.name, query.get("description"), package)
        return pipeline

    def upload_pipeline_version(self, request: Request) -> Any:
        query = request.query
        if not query.get("pipelineid"):
            raise RefusalError(400, "Failed to create a pipeline version")
        self._one(self.pipelines, "pipeline_id", query["pipelineid"])
        return self._add_version(query["pipelineid"], query.get("name"), query.get("description"), request.body)

    def _add_version(self, pipeline_id: str, name: str | None, description: str | None, package: bytes) -> Any:
        documents = [document for document in yaml.safe_load_all(package) if document]
        if not documents or "pipelineInfo" not in documents[0]:
            raise RefusalError(400, "Invalid input error: unknown template format: pipeline spec is invalid")
        if not name:
            raise RefusalError(400, "Invalid input error: the version's name is empty")
        if any((other.pipeline_id, other.name) == (pipeline_id, name) for other in self.versions):
            raise RefusalError(409, "Failed to create a pipeline version")
        spec = documents[0] if len(documents) == 1 else {"pipeline_spec": documents[0], "platform_spec": documents[1]}
        version = kfp.V2beta1PipelineVersion(
            pipeline_id=pipeline_id,
            pipeline_version_id=str(uuid.uuid4()),
            name=name,
            display_name=name,
            description=description,
            created_at=self._now(),
            pipeline_spec=spec,
        )
        self.versions.append(version)
        return version

    def pipeline_service_list_pipeline_versions(self, request: Request) -> Any:
        pipeline_id = request.path["pipeline_id"]
        self._one(self.pipelines, "pipeline_id", pipeline_id)
        found = [version for version in self.versions if version.pipeline_id == pipeline_id]
        return self._page(request, found, kfp.V2beta1ListPipelineVersionsResponse, "pipeline_versions")

    def pipeline_service_get_pipeline_version(self, request: Request) -> Any:
        return self._one(self.versions, "pipeline_version_id", request.path["pipeline_version_id"])

    @staticmethod
    def _one(items: list[Any], key: str, value: str) -> Any:
        found = next((item for item in items if getattr(item, key) == value), None)
        if found is None:
            raise RefusalError(404, f"ResourceNotFoundError: {key.removesuffix('_id')} {value} not found")
        return found

    # ---- experiments

    def experiment_service_list_experiments(self, request: Request) -> Any:
        if request.query.get("namespace") and not self.multi_user:
            raise RefusalError(
                400, "Invalid ListExperiments request. Namespace should not be provided in single-user mode"
            )
        found = self._in_namespace(self.experiments, request)
        return self._page(request, found, kfp.V2beta1ListExperimentsResponse, "experiments")

    def experiment_service_create_experiment(self, request: Request) -> Any:
        experiment = request.body
        if not experiment.display_name:
            raise RefusalError(400, "Invalid input error: the experiment's name is empty")
        key = (experiment.display_name, experiment.namespace)
        if any((other.display_name, other.namespace) == key for other in self.experiments):
            raise RefusalError(409, f"Experiment {experiment.display_name} already exists")
        experiment.experiment_id, experiment.created_at = str(uuid.uuid4()), self._now()
        self.experiments.append(experiment)
        return experiment

    # ---- runs

    def _check_job(self, job: Any) -> None:
        """What both kinds of run need: a name, an experiment, a known pipeline, arguments that fit it."""
        if not job.display_name:
            raise RefusalError(400, "Invalid input error: the name is empty")
        self._one(self.experiments, "experiment_id", job.experiment_id)
        if job.pipeline_version_reference is not None:
            reference = job.pipeline_version_reference
            spec = self._one(self.versions, "pipeline_version_id", reference.pipeline_version_id).pipeline_spec
        elif job.pipeline_spec is not None:
            spec = job.pipeline_spec
        else:
            raise RefusalError(400, "Invalid input error: pipeline spec or version reference is missing")
        inputs = spec.get("pipeline_spec", spec)["root"].get("inputDefinitions", {}).get("parameters", {})
        given = job.runtime_config.parameters or {}
        if unknown := given.keys() - inputs.keys():
            raise RefusalError(400, f"Invalid input error: unrecognized input parameter: {min(unknown)}")
        needed = {name for name, p in inputs.items() if "defaultValue" not in p and not p.get("isOptional")}
        if missing := needed - given.keys():
            raise RefusalError(400, f"Invalid input error: input parameter {min(missing)} is required")

    def run_service_create_run(self, request: Request) -> Any:
        run = request.body
        self._check_job(run)
        run.run_id, run.created_at, run.state = str(uuid.uuid4()), self._now(), "PENDING"
        self.runs.append(run)
        return run

    def run_service_list_runs(self, request: Request) -> Any:
        if experiment_id := request.query.get("experiment_id"):
            self._one(self.experiments, "experiment_id", experiment_id)
            found = [run for run in self.runs if run.experiment_id == experiment_id]
        else:
            namespace = {e.experiment_id for e in self._in_namespace(self.experiments, request)}
            found = [run for run in self.runs if run.experiment_id in namespace]
        return self._page(request, found, kfp.V2beta1ListRunsResponse, "runs")

    def run_service_get_run(self, request: Request) -> Any:
        """Each time it is asked, a run is one stage further."""
        run = self._one(self.runs, "run_id", request.path["run_id"])
        asked = self._asked.get(run.run_id, 0)
        self._asked[run.run_id] = asked + 1
        stage = self.stages[min(asked, len(self.stages) - 1)]
        run.state = stage.state
        if stage.error:
            run.error = kfp.GoogleRpcStatus(code=2, message=stage.error)
        run.run_details = kfp.V2beta1RunDetails(task_details=_task_details(run, stage))
        return run

    # ---- recurring runs

    def recurring_run_service_create_recurring_run(self, request: Request) -> Any:
        recurring = request.body
        self._check_job(recurring)
        if not 1 <= int(recurring.max_concurrency or 0) <= 10:
            raise RefusalError(400, "Invalid input error: max concurrency must be at least 1 and at most 10")
        trigger = recurring.trigger
        cron = trigger.cron_schedule.cron if trigger and trigger.cron_schedule else None
        if cron is not None and not cron.startswith("@") and len(cron.split()) != 6:
            raise RefusalError(400, f"Invalid input error: the cron expression {cron} has not 6 fields")
        if cron is None and not (trigger and trigger.periodic_schedule):
            raise RefusalError(400, "Invalid input error: the trigger is empty")
        recurring.recurring_run_id, recurring.created_at = str(uuid.uuid4()), self._now()
        recurring.status = "ENABLED" if recurring.mode == "ENABLE" else "DISABLED"
        experiment = self._one(self.experiments, "experiment_id", recurring.experiment_id)
        recurring.namespace = experiment.namespace
        self.recurring_runs.append(recurring)
        return recurring

    def recurring_run_service_list_recurring_runs(self, request: Request) -> Any:
        found = self._in_namespace(self.recurring_runs, request)
        return self._page(request, found, kfp.V2beta1ListRecurringRunsResponse, "recurring_runs")

    def recurring_run_service_get_recurring_run(self, request: Request) -> Any:
        return self._one(self.recurring_runs, "recurring_run_id", request.path["recurring_run_id"])

    def recurring_run_service_disable_recurring_run(self, request: Request) -> Any:
        self.recurring_run_service_get_recurring_run(request).status = "DISABLED"
        return {}

    def recurring_run_service_enable_recurring_run(self, request: Request) -> Any:
        self.recurring_run_service_get_recurring_run(request).status = "ENABLED"
        return {}

    def recurring_run_service_delete_recurring_run(self, request: Request) -> Any:
        self.recurring_runs.remove(self.recurring_run_service_get_recurring_run(request))
        return {}

    def healthz_service_get_healthz(self, request: Request) -> Any:
        return kfp.V2beta1GetHealthzResponse(multi_user=self.multi_user, pipeline_store="database")


def _uploaded(headers: Any, body: bytes) -> bytes:
    """The one file of a multipart form, which must be called uploadfile."""
    message = email.message_from_bytes(b"Content-Type: " + headers["content-type"].encode() + b"\r\n\r\n" + body)
    parts: Any = message.get_payload()
    names = [part.get_param("name", header="content-disposition") for part in parts]
    if names != ["uploadfile"]:
        raise RefusalError(400, "Failed to read pipeline from file")
    return bytes(parts[0].get_payload(decode=True))


def _matches(item: Any, encoded: str) -> bool:
    """Whether a filter lets an item through; the server decodes the text once more than the query."""
    if not encoded:
        return True
    try:
        document = json.loads(unquote_plus(encoded))
    except ValueError:
        raise RefusalError(400, f"failed to parse valid filter from {encoded!r}") from None
    filtered = parse("V2beta1Filter", {"predicates": [_plain_names(p) for p in document.pop("predicates")], **document})
    return all(_holds(item, predicate) for predicate in filtered.predicates)


def _plain_names(predicate: dict[str, Any]) -> dict[str, Any]:
    """protojson also takes camel case and an enum's number, which is what kfp.Client sends."""
    names = {re.sub("([A-Z])", lambda m: f"_{m[1].lower()}", name): value for name, value in predicate.items()}
    if isinstance(number := names.get("operation"), int):
        names["operation"] = _OPERATIONS[number]
    return names


def _holds(item: Any, predicate: Any) -> bool:
    if predicate.key not in item.openapi_types:
        raise RefusalError(400, f"Invalid input error: no support for filtering on unrecognized field {predicate.key}")
    if predicate.operation not in ("EQUALS", "NOT_EQUALS"):
        raise RefusalError(501, f"The operation {predicate.operation} is not part of this server")
    equal = getattr(item, predicate.key) == predicate.string_value
    return equal is (predicate.operation == "EQUALS")


def _sorted(items: list[Any], sort_by: str) -> list[Any]:
    key, _, order = (sort_by or "created_at").partition(" ")
    if order not in ("", "asc", "desc") or (items and key not in items[0].openapi_types):
        raise RefusalError(400, f"Invalid input error: invalid sort by {sort_by!r}")
    return sorted(items, key=lambda item: getattr(item, key), reverse=order == "desc")


def _task_details(run: Any, stage: Stage) -> list[Any]:
    """As the server lists them: the DAG, a driver and an executor pod beside each task, newest first."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    names = [("root", stage.state), ("root-driver", "SUCCEEDED")]
    for task, state in stage.tasks.items():
        names += [(f"{task}-driver", "SUCCEEDED"), (task, state), ("executor", state)]
    return [
        kfp.V2beta1PipelineTaskDetail(
            run_id=run.run_id,
            task_id=f"{run.run_id}-{index}",
            display_name=name,
            create_time=run.created_at,
            start_time=run.created_at + timedelta(seconds=index),
            end_time=epoch if state in ("PENDING", "RUNNING") else run.created_at + timedelta(seconds=60 + index),
            state=state,
            error=kfp.GoogleRpcStatus(code=2, message="exit code 1") if (name, state) == (name, "FAILED") else None,
        )
        for index, (name, state) in reversed(list(enumerate(names)))
    ]


def _listening(fake: FakeKfp) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each answer waits 40 ms for the headers' acknowledgement

        def log_message(self, *_: object) -> None:
            """Nothing on the tests' standard error."""

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            fault = fake.fault_for(f"{self.command} {self.path}")
            if fault is None or fault.passes:
                status, answer = self._answered(body)
            if fault is not None:
                if fault.delay:
                    time.sleep(fault.delay)
                if fault.drop:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                self._send(fault.status, fault.headers, fault.body)
                return
            kind = "application/json" if isinstance(answer, dict) else "text/plain"
            text = json.dumps(answer) if isinstance(answer, dict) else answer
            self._send(status, {"Content-Type": kind}, text.encode())

        def _answered(self, body: bytes) -> tuple[int, Any]:
            try:
                return 200, fake.answer(self.command, self.path, self.headers, body)
            except RefusalError as refusal:
                if "/upload" in self.path:
                    return refusal.status, {"error_message": str(refusal), "error_details": str(refusal)}
                return refusal.status, refusal.body
            except LookupError:
                return 404, "404 page not found"

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            try:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
            except OSError:  # the client has given up waiting
                self.close_connection = True

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    return server
