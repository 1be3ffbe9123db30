"""What one asks of a KFP server: upload, submit, follow, schedule."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kfp_methods.cluster import answers, package
from kfp_methods.cluster.answers import RunStatus, RunSummary, Schedule, Submitted, UploadedVersion
from kfp_methods.cluster.checks import check, name_problems
from kfp_methods.cluster.connection import ClusterError, Connection
from kfp_methods.errors import InputError, Problem

if TYPE_CHECKING:
    from kfp_methods.cluster.api import Api

_PAGE = 100  # entries a page; the server gives at most 200
_LONGEST_PAUSE = 60.0  # seconds between two questions while the server does not answer


class Cluster:
    """A KFP server. Nothing is sent before the first method is called.

    retry_pauses: seconds before each repetition after a transient failure; api.PAUSES if None.
    """

    def __init__(self, connection: Connection, *, retry_pauses: tuple[float, ...] | None = None) -> None:
        self.connection = connection
        self._retry_pauses = retry_pauses

    @cached_property
    def _api(self) -> Api:
        from kfp_methods.cluster import api

        return api.Api(self.connection, api.PAUSES if self._retry_pauses is None else self._retry_pauses)

    # ---- pipelines

    def upload(self, pipeline: Path, *, name: str, description: str = "") -> UploadedVersion:
        """The package (YAML) as a version of the pipeline `name`, which is made where it does not exist.

        The version is called `name` with the package's digest, so the same content is never uploaded twice,
        whoever else uploads it at the same moment.
        """
        package.required("name", name, "Give the pipeline's name")
        version_name = f"{name}-{package.package_digest(pipeline)}"
        pipeline_id = self._pipeline_id(name, description)
        version, created = self._find_or_create(
            lambda: self._named(
                "list pipeline versions",
                self._api.pipelines.pipeline_service_list_pipeline_versions,
                "pipeline_versions",
                version_name,
                pipeline_id=pipeline_id,
            ),
            lambda: self._api.call(
                f"upload a version of the pipeline {name}",
                self._api.uploads.upload_pipeline_version,
                str(pipeline),
                name=version_name,
                pipelineid=pipeline_id,
                description=description or None,
            ),
        )
        version_id = version.pipeline_version_id
        url = self.connection.link(f"pipelines/details/{pipeline_id}/version/{version_id}")
        return UploadedVersion(pipeline_id, version_id, version_name, created, url)

    def _pipeline_id(self, name: str, description: str) -> str:
        from kfp_server_api import V2beta1Pipeline

        service, namespace = self._api.pipelines, self.connection.namespace
        body = V2beta1Pipeline(display_name=name, description=description or None, namespace=namespace)
        listing = service.pipeline_service_list_pipelines
        pipeline, _ = self._find_or_create(
            lambda: self._named("list pipelines", listing, "pipelines", name, namespace=namespace),
            lambda: self._api.call(f"create the pipeline {name}", service.pipeline_service_create_pipeline, body),
        )
        return str(pipeline.pipeline_id)

    # ---- runs

    def submit(
        self,
        pipeline: UploadedVersion | Path,
        *,
        name: str,
        experiment: str,
        arguments: Mapping[str, object],
        service_account: str | None = None,
        enable_caching: bool | None = None,
    ) -> Submitted:
        """Starts a run of an uploaded version, or of a package that is not kept on the server.

        The experiment is made where it does not exist; arguments that are None are left out, so that the
        pipeline's own defaults hold. `enable_caching` overrides what the pipeline says of every task; KFP can
        do that only with the specification itself, so the run then shows no link to its version.

        The request is not repeated where the server may have taken it: a run costs too much to start twice.
        """
        from kfp_server_api import V2beta1Run

        package.required("name", name, "Give the run's name")
        check(name_problems(service_account=service_account))
        job = self._job_fields(pipeline, arguments, enable_caching)
        experiment_id = self._experiment_id(experiment)
        run = self._api.call(
            "create a run",
            self._api.runs.run_service_create_run,
            V2beta1Run(display_name=name, experiment_id=experiment_id, service_account=service_account, **job),
            repeatable=False,
        )
        return Submitted(
            run_id=run.run_id,
            run_url=self.connection.link(f"runs/details/{run.run_id}"),
            experiment_id=experiment_id,
            experiment_url=self.connection.link(f"experiments/details/{experiment_id}"),
        )

    def runs(self, experiment: str | None = None, limit: int = 20) -> list[RunSummary]:
        """The newest `limit` runs, newest first, of one experiment (by name) or of all that the namespace shows."""
        if limit < 1:
            raise InputError(Problem("limit", limit, "is not positive", "Give how many runs to list, such as 20"))
        where: dict[str, Any] = {"namespace": self.connection.namespace}
        if experiment is not None:
            found = self._find_experiment(experiment)
            if found is None:
                raise ClusterError(
                    f"{self.connection.endpoint} has no experiment {experiment}",
                    "Check its name and the namespace; it is made by the first run submitted to it",
                )
            where = {"experiment_id": found.experiment_id}
        listing = self._api.runs.run_service_list_runs
        pages = self._pages("list runs", listing, "runs", min(limit, _PAGE), **where)
        return [answers.run_summary(run, self.connection.link) for _, run in zip(range(limit), pages, strict=False)]

    def status(self, run_id: str) -> RunStatus:
        """The run's state now, with its tasks."""
        package.required("run", run_id, "Give a run's id, as kfp-methods runs lists them")
        run = self._api.call(f"get the run {run_id}", self._api.runs.run_service_get_run, run_id)
        return answers.run_status(run, self.connection.link)

    def follow(
        self,
        run_id: str,
        *,
        on_change: Callable[[RunStatus], None] | None = None,
        poll: float = 5.0,
        patience: float = 300.0,
    ) -> RunStatus:
        """Asks every `poll` seconds until the run has ended; `on_change` gets the first and each new status.

        A server that stops answering is asked ever more rarely, and given up after `patience` seconds without
        an answer. KeyboardInterrupt ends the following and returns the last status seen, whose `finished` is
        False: the run itself goes on.
        """
        seen = self.status(run_id)
        try:
            if on_change:
                on_change(seen)
            while not seen.finished:
                time.sleep(poll)
                now = self._patient_status(run_id, poll, patience)
                if on_change and now != seen:
                    on_change(now)
                seen = now
        except KeyboardInterrupt:
            pass
        return seen

    def _patient_status(self, run_id: str, pause: float, patience: float) -> RunStatus:
        last_answer = time.monotonic()
        while True:
            try:
                return self.status(run_id)
            except ClusterError as error:
                # The server has answered before, so even an unknown name is the network's passing trouble.
                if not (error.transient or error.status is None):
                    raise
                if time.monotonic() - last_answer + pause > patience:
                    raise ClusterError(
                        f"{error.problem}; no answer for {patience:g} s",
                        f"The run goes on, look with kfp-methods status {run_id}. {error.remedy}",
                        status=error.status,
                        transient=True,
                    ) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    # ---- schedules

    def schedule(
        self,
        pipeline: UploadedVersion,
        *,
        name: str,
        experiment: str,
        arguments: Mapping[str, object],
        cron: str | None = None,
        every: int | None = None,
        replace: bool = False,
        max_concurrency: int = 1,
        no_catchup: bool = True,
        enabled: bool = True,
        service_account: str | None = None,
    ) -> Schedule:
        """Makes a recurring run, either by `cron` (see cluster.cron) or `every` so many seconds.

        A schedule of that name is refused, or with `replace` deleted once the new one is there. At most
        `max_concurrency` (1 to 10) of its runs go on at once. With `no_catchup`, times missed while it was off
        are not made up for. Like `submit`, not repeated where the server may have taken it.
        """
        import kfp_server_api as server

        package.required("name", name, "Give the schedule's name")
        if not 1 <= max_concurrency <= 10:
            raise InputError(Problem("max_concurrency", max_concurrency, "is not within KFP's limits", "Give 1 to 10"))
        trigger = package.trigger(cron, every)
        check(name_problems(service_account=service_account))
        if not replace:
            self.require_free_schedule_name(name)
        earlier = self._schedules_named(name) if replace else []
        job = self._job_fields(pipeline, arguments, None)
        recurring = self._api.call(
            "create a schedule",
            self._api.recurring_runs.recurring_run_service_create_recurring_run,
            server.V2beta1RecurringRun(
                display_name=name,
                experiment_id=self._experiment_id(experiment),
                trigger=trigger,
                max_concurrency=str(max_concurrency),
                no_catchup=no_catchup,
                mode=server.RecurringRunMode.ENABLE if enabled else server.RecurringRunMode.DISABLE,
                service_account=service_account,
                **job,
            ),
            repeatable=False,
        )
        for each in earlier:
            self._delete_schedule(each)
        return answers.schedule(recurring, self.connection.link)

    def require_free_schedule_name(self, name: str) -> None:
        """Raises InputError where a schedule has the name already: both would start runs."""
        if taken := self._schedules_named(name):
            ids = ", ".join(schedule.id for schedule in taken)
            remedy = "Give another name (--schedule-name), or replace it (--replace)"
            raise InputError(Problem("schedule_name", name, f"is a schedule already ({ids})", remedy))

    def _schedules_named(self, name: str) -> list[Schedule]:
        return [schedule for schedule in self.schedules() if schedule.name == name]

    def _delete_schedule(self, schedule: Schedule) -> None:
        delete = self._api.recurring_runs.recurring_run_service_delete_recurring_run
        self._api.call(f"delete the schedule {schedule.name}", delete, schedule.id, repeatable=False)

    def schedules(self) -> list[Schedule]:
        """All recurring runs that the namespace shows, the newest first."""
        listing = self._api.recurring_runs.recurring_run_service_list_recurring_runs
        pages = self._pages("list schedules", listing, "recurring_runs", namespace=self.connection.namespace)
        return [answers.schedule(recurring, self.connection.link) for recurring in pages]

    def unschedule(self, id_or_name: str, *, disable: bool = False) -> Schedule:
        """Deletes a schedule, or with `disable` only stops it; returns it as it was. Its runs stay."""
        found = self._one_schedule(id_or_name)
        if disable:
            stop = self._api.recurring_runs.recurring_run_service_disable_recurring_run
            self._api.call(f"disable the schedule {found.name}", stop, found.id)
        else:
            self._delete_schedule(found)
        return found

    def _one_schedule(self, id_or_name: str) -> Schedule:
        schedules = self.schedules()
        found = [entry for entry in schedules if entry.id == id_or_name]
        found = found or [entry for entry in schedules if entry.name == id_or_name]
        if not found:
            known = ", ".join(sorted({entry.name for entry in schedules})[:10])
            raise ClusterError(
                f"{self.connection.endpoint} has no schedule with the id or name {id_or_name}",
                f"Give one of {known}" if known else "There are none in this namespace",
            )
        if len(found) > 1:
            raise ClusterError(
                f"{len(found)} schedules are named {id_or_name}",
                f"Give the id of one: {', '.join(entry.id for entry in found)}",
            )
        return found[0]

    # ---- what they share

    def _job_fields(
        self, pipeline: UploadedVersion | Path, arguments: Mapping[str, object], enable_caching: bool | None
    ) -> dict[str, Any]:
        """What a run and a recurring run have in common: what is run, and with which arguments."""
        from kfp_server_api import V2beta1PipelineVersionReference, V2beta1RuntimeConfig

        runtime = V2beta1RuntimeConfig(parameters=package.parameters(arguments))
        if isinstance(pipeline, UploadedVersion) and enable_caching is None:
            reference = V2beta1PipelineVersionReference(
                pipeline_id=pipeline.pipeline_id, pipeline_version_id=pipeline.version_id
            )
            return {"runtime_config": runtime, "pipeline_version_reference": reference}
        if isinstance(pipeline, UploadedVersion):
            spec = self._uploaded_spec(pipeline)
        else:
            spec = package.package_spec(pipeline)
        if enable_caching is not None:
            package.set_caching(spec, enable_caching)
        return {"runtime_config": runtime, "pipeline_spec": spec}

    def _uploaded_spec(self, version: UploadedVersion) -> dict[str, Any]:
        answer = self._api.call(
            f"get the pipeline version {version.version_name}",
            self._api.pipelines.pipeline_service_get_pipeline_version,
            version.pipeline_id,
            version.version_id,
        )
        return dict(answer.pipeline_spec)

    def _experiment_id(self, name: str) -> str:
        from kfp_server_api import V2beta1Experiment

        package.required("experiment", name, "Give the experiment's name")
        body = V2beta1Experiment(display_name=name, namespace=self.connection.namespace)
        create = self._api.experiments.experiment_service_create_experiment
        experiment, _ = self._find_or_create(
            lambda: self._find_experiment(name),
            lambda: self._api.call(f"create the experiment {name}", create, body),
        )
        return str(experiment.experiment_id)

    def _find_experiment(self, name: str) -> Any:
        listing = self._api.experiments.experiment_service_list_experiments
        return self._named("list experiments", listing, "experiments", name, namespace=self.connection.namespace)

    @staticmethod
    def _find_or_create(find: Callable[[], Any], create: Callable[[], Any]) -> tuple[Any, bool]:
        """What is there, else what was created, by us (True) or by somebody else in between (False)."""
        if (found := find()) is not None:
            return found, False
        try:
            return create(), True
        except ClusterError as error:
            if error.status == 409 and (found := find()) is not None:
                return found, False
            raise

    def _named(self, doing: str, operation: Callable[..., Any], field: str, name: str, **where: Any) -> Any:
        """The newest entry of that display name, or None."""
        wanted = {"operation": "EQUALS", "key": "display_name", "string_value": name}
        # The server takes URL encoding off the filter once more than off other parameters.
        filtered = quote(json.dumps({"predicates": [wanted]}), safe="")
        return next(self._pages(doing, operation, field, filter=filtered, **where), None)

    def _pages(
        self, doing: str, operation: Callable[..., Any], field: str, page_size: int = _PAGE, **query: Any
    ) -> Iterator[Any]:
        """Every entry of a list, newest first, page after page."""
        query |= {"page_size": page_size, "sort_by": "created_at desc"}
        token = None
        while True:
            answer = self._api.call(doing, operation, page_token=token, **query)
            yield from getattr(answer, field) or ()
            if not (token := answer.next_page_token):
                return
