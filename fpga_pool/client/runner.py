"""The run of a batch from its creation to its results.

One thread (the caller's) polls the batch and decides; each stream has its own thread.  Broken transfers are not errors
here: streams are opened again, with growing pauses, until the batch has ended.
"""

import queue
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

from fpga_pool.client.api import PoolApi
from fpga_pool.client.filters import BatchOptions, RunSettings
from fpga_pool.client.inputs import Input, job_requests
from fpga_pool.client.lane import Lane, Outcome, Parcel
from fpga_pool.client.outcome import BatchProgress, BatchResult, make_directory
from fpga_pool.client.stream import Phase, Stream, StreamContext, TicketDesk
from fpga_pool.client.transfers import Goal, Transfer, confirm, new_job, outcome_of, progress_of, result_files, urgency
from fpga_pool.drivers.egress.pacing import PacingDriver
from fpga_pool.model.exceptions import FpgaPoolError, InvalidAnswer, InvalidInput, NotFound, ServiceUnavailable
from fpga_pool.model.messages.requests import JobList
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.model.objects.pool import ENDED_BATCHES, Batch, Host, Job, JobState
from fpga_pool.model.objects.tasks import Task
from fpga_pool.transfer.client import ResultInfo, TransferCancelled

#: Expected delay until the pool learns from the agent that the responder has the whole input.
_REPORT_S = 5.0
#: Polls return changes only; at this interval in seconds one returns everything, in case the database was replaced.
_FULL_POLL_S = 30.0
#: A poll of a new batch waits until a job is in one of these states.
_PLANNED = tuple(state for state in JobState if state is not JobState.PENDING)
#: If all results are here, a poll waits for a job in these states: the pool knows of its result, too, or runs it again.
_REPORTED = tuple(state for state in JobState if state not in (JobState.STAGED, JobState.RUNNING, JobState.RESULT_HELD))
#: Polls take at most this share of the time, however large the batch; but the pause between polls has a limit in
#: seconds, because a poll takes very long if the scheduler that should answer it has just died.
_POLL_SHARE, _LONGEST_PAUSE_S = 0.25, 5.0


class BatchRunner:
    """Runs one batch; either `run` or `submit` may be called, once."""

    def __init__(
        self,
        api: PoolApi,
        inputs: Sequence[Input],
        *,
        output_dir: Path,
        batch_uuid: str = "",
        name: str = "",
        options: BatchOptions | None = None,
        settings: RunSettings | None = None,
        ssl_context: ssl.SSLContext | None = None,
        on_progress: Callable[[BatchProgress], None] = lambda _: None,
    ) -> None:
        self.batch_uuid = batch_uuid or str(uuid4())
        self._api = api
        self._inputs = inputs
        self._output_dir = output_dir
        self._name = name
        self._options = options or {}
        self._settings = settings or RunSettings()
        self._on_progress = on_progress
        self._context = StreamContext(
            desk=TicketDesk(api, self.batch_uuid), egress=PacingDriver(), ssl_context=ssl_context
        )
        self._transfers: list[Transfer] = []
        self._hosts: Mapping[str, Host] = {}
        #: Streams that have ended, with their outcomes.
        self._done: queue.SimpleQueue[Sequence[tuple[Stream | Parcel, Outcome | None]]] = queue.SimpleQueue()
        self._transfer_of: dict[str, Transfer] = {}
        #: Lanes for small jobs, one for each host.
        self._lanes = api.lanes
        self._used_lanes: set[Lane] = set()
        self._next_poll_s = 0.0
        self._pause_s = self._settings.fast_poll_s
        self._heard_s = self._polled_s = 0.0
        #: Version of the jobs in the last poll; "" = the next poll returns all of them.
        self._seen = ""
        #: The jobs in the answer to the creation, which is used as the first poll.
        self._first: JobList | None = None
        #: The batch in the answer to the last poll, if it was included.
        self._batch: Batch | None = None
        self._cancelled = False
        self._goal = Goal.RESULTS

    def run(self) -> BatchResult:
        """Create the batch and return when it has ended and its results are here.

        Raises
        ------
        InvalidInput
            If the pool does not accept the batch.
        ServiceUnavailable
            If the API does not answer, or the batch does not end, within the limits of the settings.

        """
        batch = self._follow()
        return BatchResult(batch, tuple(outcome_of(transfer) for transfer in self._transfers), self._output_dir)

    def submit(self) -> Batch:
        """Create the batch and return when the pool holds its inputs; the results stay there until they are fetched.

        Raises the same errors as `run`, and InvalidInput if an input cannot be read; the batch is cancelled then.
        """
        self._goal = Goal.INPUTS
        batch = self._follow()
        if problem := next((transfer.problem for transfer in self._transfers if transfer.problem), ""):
            raise InvalidInput(f"batch {batch.uuid} was cancelled: {problem}")
        return batch

    def _follow(self) -> Batch:
        """Create the batch and return it when the goal is reached."""
        deadline_s = time.monotonic() + self._settings.timeout_s
        self._create()
        self._transfer_of = {transfer.job.uuid: transfer for transfer in self._transfers}
        workers = ThreadPoolExecutor(self._settings.max_streams, thread_name_prefix="stream")
        try:
            while (batch := self._ended_batch()) is None:
                self._open_streams(workers)
                self._on_progress(progress_of(self.batch_uuid, self._transfers))
                self._wait()
                if time.monotonic() > deadline_s:
                    raise ServiceUnavailable(
                        f"batch {self.batch_uuid} did not end within {self._settings.timeout_s:g} s; it continues in "
                        "the pool"
                    )
        finally:
            moving = [transfer.stream for transfer in self._transfers if transfer.stream is not None]
            for stream in moving:
                stream.cancel()
            for lane in self._used_lanes:
                lane.settle()
            workers.shutdown()
        self._on_progress(progress_of(self.batch_uuid, self._transfers))
        return batch

    def _create(self) -> None:
        """Create the batch; its uuid is chosen here, so that it is known even if the answer is lost."""
        make_directory(self._output_dir)
        requests = job_requests(self._inputs)
        work, first = self._submit(requests)
        self._heard_s = time.monotonic()
        sinks = result_files(self._output_dir, self._inputs)
        self._transfers = [
            Transfer(source=source, sink=sink, job=new_job(work, index, request), goal=self._goal)
            for index, (source, sink, request) in enumerate(zip(self._inputs, sinks, requests, strict=True))
        ]
        if first is not None and first.jobs:
            self._context.desk.keep(first.tickets)
            self._first = first

    def _submit(self, requests: Sequence[JobRequest]) -> tuple[Batch | Task, JobList | None]:
        """Create the work; return it, and its jobs as far as they are in the answer."""
        settings = self._settings
        small = self._goal is Goal.RESULTS and any(one.input_bytes <= settings.small_bytes for one in requests)
        found = self._api.begin_batch(
            requests,
            wait_s=settings.slow_poll_s if small else 0.0,
            name=self._name,
            uuid=self.batch_uuid,
            patience_s=settings.patience_s,
            **self._options,
        )
        if found.batch is None:
            raise InvalidAnswer("the API's response is invalid: batch: expected the batch, found null")
        return found.batch, found

    # Polling

    def _ended_batch(self) -> Batch | None:
        """Poll the batch if a poll is due; return it once it has ended and nothing is left to do."""
        if time.monotonic() < self._next_poll_s:
            return None
        begin_s = time.monotonic()
        moved, wait_s = False, self._patience_s()
        try:
            moved = self._poll(wait_s)
            self._heard_s = time.monotonic()
            if all(transfer.settled for transfer in self._transfers):
                return self._end()
        except (NotFound, InvalidAnswer):
            raise  # repeating the poll does not help
        except FpgaPoolError as error:
            # The pool may be restarting; it will know the batch afterwards.
            self._seen = ""
            if time.monotonic() - self._heard_s > self._settings.patience_s:
                raise ServiceUnavailable(f"lost contact with batch {self.batch_uuid}: {error}") from error
        finally:
            now_s = time.monotonic()
            fast_s, slow_s = self._settings.fast_poll_s, self._settings.slow_poll_s
            self._pause_s = fast_s if moved else min(1.25 * self._pause_s, slow_s)
            if self._all_moving:
                self._pause_s = slow_s  # their streams determine the next step
            took_s = 0.0 if wait_s else now_s - begin_s
            self._next_poll_s = now_s + max(self._pause_s, min(took_s / _POLL_SHARE, _LONGEST_PAUSE_S))
        return None

    def _patience_s(self) -> float:
        """Return for how long the next poll may wait for a change; 0 if there is anything else to do."""
        unplanned = all(transfer.job.state is JobState.PENDING for transfer in self._transfers)
        moving = any(transfer.stream is not None for transfer in self._transfers)
        return self._settings.slow_poll_s if not moving and (unplanned or self._all_here) else 0.0

    def _poll(self, wait_s: float) -> bool:
        """Poll the jobs and record their states; return whether something has changed or is being transferred."""
        asked_s = time.monotonic()
        if self._first is not None:
            found, self._first, self._polled_s = self._first, None, asked_s
            return self._note(found)
        if asked_s - self._polled_s > _FULL_POLL_S:
            self._seen, self._polled_s = "", asked_s
        new = not self._seen and all(transfer.job.attempt == 0 for transfer in self._transfers)
        states: Sequence[JobState] = _PLANNED if new else ()
        if self._all_here and any(transfer.awaits_report for transfer in self._transfers):
            states = _REPORTED
        elif self._all_here:
            self._seen = ""  # to include the jobs that earlier polls have left out
        found = self._api.job_list(
            self.batch_uuid, states, changed_after=self._seen, wait_s=wait_s, with_batch=self._all_here
        )
        return self._note(found)

    def _note(self, found: JobList) -> bool:
        """Record jobs that have changed; return whether something has changed or is being transferred."""
        self._seen, self._batch = found.seen, found.batch
        self._context.clock.note(found.at, time.monotonic())
        moved = any(transfer.stream is not None for transfer in self._transfers)
        changed = {job.uuid: job for job in found.jobs}
        for transfer in self._transfers:
            job = changed.get(transfer.job.uuid, transfer.job)
            moved |= job.state != transfer.job.state or job.attempt != transfer.job.attempt
            self._update(transfer, job)
        needed = {transfer.job.host for transfer in self._transfers if transfer.job.host}
        if not self._hosts.keys() >= needed:
            self._hosts = self._api.known_hosts(needed)
        return moved

    def _update(self, transfer: Transfer, job: Job) -> None:
        retimed = job.transfer != transfer.job.transfer and job.state is JobState.WAITING_INPUT
        transfer.update(job)
        stream = transfer.stream
        displaced = job.state in (JobState.PENDING, JobState.FAILED, JobState.CANCELLED)
        if stream is not None and (displaced or job.attempt != stream.job.attempt):
            stream.cancel()
        elif isinstance(stream, Stream) and retimed and job.dispatched_at is not None:
            stream.retime(job.transfer, job.dispatched_at)
        if transfer.result is not None and job.result_sha256 not in ("", transfer.result.sha256):
            transfer.result = None
            self._pause(transfer, "the fetched result does not match the recorded checksum")

    def _end(self) -> Batch | None:
        """Return the batch if it has ended or may be left; cancel it if one of its jobs cannot continue."""
        batch = self._batch or self._api.batch(self.batch_uuid)
        if batch.state in ENDED_BATCHES or self._may_leave():
            return confirm(self._api, batch, self._transfers)
        if self._has_problem and not self._cancelled:
            self._api.cancel(self.batch_uuid)
            self._cancelled = True
        return None

    def _may_leave(self) -> bool:
        """Return whether the batch may continue without this client, once nothing is left to do here."""
        return self._goal is Goal.INPUTS and not self._has_problem

    @property
    def _has_problem(self) -> bool:
        return any(transfer.problem for transfer in self._transfers)

    # Transfers

    def _open_streams(self, workers: ThreadPoolExecutor) -> None:
        """Open the streams that are due."""
        streams = [transfer.stream for transfer in self._transfers if isinstance(transfer.stream, Stream)]
        wanting = sorted((t for t in self._transfers if self._wants_stream(t)), key=urgency)
        small_bytes = self._settings.small_bytes
        # A lane also fetches the results, so jobs whose results stay in the pool get streams.
        small = [one for one in wanting if one.moving_bytes <= small_bytes and not one.stays]
        self._fill_lanes(small)
        wanting = [one for one in wanting if one.moving_bytes > small_bytes or one.stays]
        free = self._settings.max_streams - len(streams)
        for transfer in wanting[:free]:
            self._open_stream(workers, transfer)
        self._make_room(streams, sum(transfer.job.state is JobState.WAITING_INPUT for transfer in wanting) - free)
        if (small or wanting) and self._all_moving:
            self._next_poll_s = time.monotonic() + self._settings.slow_poll_s

    def _make_room(self, streams: Sequence[Stream], wanted: int) -> None:
        """Cancel streams that only wait for their job, to make room for inputs; their results are fetched later."""
        waiting = [stream for stream in streams if stream.phase is Phase.WAITING]
        waiting.sort(key=lambda stream: stream.job.start_s or 0.0, reverse=True)
        for stream in waiting[: max(wanted, 0)]:
            stream.cancel()

    def _wants_stream(self, transfer: Transfer) -> bool:
        job, now_s = transfer.job, time.monotonic()
        if transfer.stream is not None or transfer.result is not None or not transfer.fresh:
            return False
        if transfer.problem or now_s < transfer.not_before_s or job.host not in self._hosts:
            return False
        if job.state is JobState.WAITING_INPUT:
            ahead_s = self._context.clock.monotonic_s(transfer.begin_at) - now_s
            needed = (
                self._goal is not Goal.HELD
                and not job.cancel_requested
                and not job.predecessors
                and now_s >= transfer.staged_until_s
            )
            return needed and ahead_s <= self._settings.open_ahead_s
        return job.state is JobState.RESULT_HELD and not transfer.stays

    def _open_stream(self, workers: ThreadPoolExecutor, transfer: Transfer) -> None:
        job = transfer.job
        stream = Stream(
            *(self._context, job, self._hosts[job.host], transfer.source, transfer.sink),
            wants_result=not transfer.stays,
        )
        transfer.stream = stream
        future = workers.submit(stream.send if job.state is JobState.WAITING_INPUT else stream.fetch)
        future.add_done_callback(lambda ended: self._done.put([(stream, ended.exception() or ended.result())]))

    def _fill_lanes(self, transfers: Sequence[Transfer]) -> None:
        """Give small jobs to the lanes of their hosts."""
        by_host: dict[str, list[Parcel]] = {}
        for transfer in transfers:
            parcel = Parcel(transfer.job, transfer.source, transfer.sink, self._context, self._done.put)
            transfer.stream = parcel
            by_host.setdefault(transfer.job.host, []).append(parcel)
        self._used_lanes.update(self._lanes.add(self._hosts[name], parcels) for name, parcels in by_host.items())

    def _wait(self) -> None:
        """Wait until a stream has ended, the next poll is due, or a stream may have become due."""
        until_poll_s = self._next_poll_s - time.monotonic()
        try:
            # Between two polls of a large batch streams become due, too.
            ended = self._done.get(timeout=min(max(until_poll_s, 0.0), self._settings.fast_poll_s))
            while True:
                for stream, outcome in ended:
                    self._collect(stream, outcome)
                ended = self._done.get_nowait()
        except queue.Empty:
            pass

    def _collect(self, stream: Stream | Parcel, outcome: Outcome | None) -> None:
        """Record the outcome of a stream."""
        transfer = self._transfer_of[stream.job.uuid]
        former_attempt = stream.job.attempt != transfer.job.attempt
        if stream.phase in (Phase.WAITING, Phase.RECEIVING) and not former_attempt:
            transfer.staged_until_s = time.monotonic() + _REPORT_S
        transfer.stream, transfer.fresh = None, False
        match outcome:
            case ResultInfo():
                transfer.receive(outcome, stream.job.attempt)
            case TransferCancelled() | None:
                pass
            case InvalidInput():
                transfer.problem = str(outcome)
            case OSError():
                transfer.problem = outcome.strerror or str(outcome)
            case InvalidAnswer():
                raise outcome
            case FpgaPoolError():
                self._pause(transfer, str(outcome))
                # Its host may have restarted with another port.
                self._hosts = {}
                self._api.forget_hosts()
            case _:
                raise outcome
        if self._all_here:
            self._next_poll_s = time.monotonic()
        elif not isinstance(outcome, ResultInfo):
            self._next_poll_s = min(self._next_poll_s, time.monotonic() + self._settings.fast_poll_s)

    @property
    def _all_here(self) -> bool:
        return all(transfer.here for transfer in self._transfers)

    @property
    def _all_moving(self) -> bool:
        """Whether there are jobs without a result, and all of them have a stream."""
        streams = [transfer.stream for transfer in self._transfers if transfer.result is None]
        return bool(streams) and None not in streams

    def _pause(self, transfer: Transfer, trouble: str) -> None:
        settings = self._settings
        pause_s = min(settings.first_pause_s * 2**transfer.failures, settings.longest_pause_s)
        transfer.failures = min(transfer.failures + 1, 32)
        transfer.not_before_s = time.monotonic() + pause_s
        transfer.trouble = trouble
