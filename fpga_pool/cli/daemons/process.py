"""The life cycle of a service process: configuration, start, signals, metrics, stop.

A service is a single process.  The launchers of oslo.service fork a worker, but a worker that cannot start is forked
again for ever, systemd is notified (READY) before the worker has started, and a signal to the process that systemd
knows does not reach the worker.  We use only the options, systemd notification and threading backend of oslo.service.
"""

import contextlib
import ctypes
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from importlib.metadata import version
from types import FrameType
from typing import Any, NoReturn

from oslo_config import cfg
from oslo_log import log
from oslo_log.formatters import ContextFormatter
from oslo_reports import opts as report_options
from oslo_reports.generators.conf import ConfigReportGenerator
from oslo_reports.guru_meditation_report import TextGuruMeditation
from oslo_reports.models.with_default_views import ModelWithDefaultViews
from oslo_service import opts as service_options
from oslo_service import systemd

from fpga_pool.api.http.server import HttpServer, closed_to_pages, is_loopback
from fpga_pool.cli.roles import DESCRIPTIONS
from fpga_pool.conf.catalogue import present_directory
from fpga_pool.conf.opts import check_names, check_values, read_files, register_opts, wrong_values_named
from fpga_pool.metrics.instruments import Instruments
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput
from fpga_pool.rpc.tracing import enable_profiler, register_profiler
from fpga_pool.rpc.transport import MessagingError, transport

LOG = logging.getLogger(__name__)

#: Exit statuses: stopped on request; could not start, or not stop gracefully; wrong configuration.
OK, FAILED, WRONG_USAGE = 0, 1, 2

#: Time limit for stopping the messaging: oslo.messaging takes up to 5 s to notice that it should stop listening.
MESSAGES_END_S = 15.0
#: Number of scrapes of the metrics that are served at the same time; further ones wait, which limits their load.
_THREADS = 2
#: Interval in seconds at which the metrics server wakes an idle process.
_TICK_S = 1.0

#: The value in glibc's <malloc.h>.
_M_ARENA_MAX = -8
#: Heaps of a process.  Glibc's default, eight per processor, suits threads that allocate at the same time.
_HEAPS = 2

#: A service as a context manager: it is started on entry, and stopped on exit.  It yields its name for the log.
Service = Callable[[cfg.ConfigOpts], AbstractContextManager[str]]


class Ended(BaseException):
    """The process was asked to stop; raised in the main thread, at whatever point it is."""


def run(program: str, service: Service, argv: Sequence[str] | None = None, *, plans: bool = False) -> int:
    """Run a service until SIGTERM or SIGINT; return the exit status.

    `plans` says whether it loads scheduling policies, and therefore has their options.
    """
    signals = Signals()
    limit_heaps()
    try:
        # oslo.messaging finds some of its options in the global configuration only.
        conf = configure(cfg.CONF, program, sys.argv[1:] if argv is None else argv, plans=plans)
        signals.end_within(conf.graceful_shutdown_timeout)
        report_on_request(conf, program)
        with wrong_values_named(conf), service(conf) as name:
            check_values(conf)  # including those of libraries, which are registered by now
            freeze_long_lived_objects()
            systemd.notify_once()
            LOG.info("%s is ready", name)
            signals.serve(lambda: reload(conf))
        LOG.info("%s has ended", name)
    except Ended:
        LOG.info("%s was stopped before it had started", program)
    except (cfg.Error, ValueError, InvalidInput) as error:
        return complain(program, error, WRONG_USAGE)
    except (FpgaPoolError, MessagingError, OSError) as error:
        return _leave(complain(program, error, FAILED))
    return _leave(OK)


def configure(conf: cfg.ConfigOpts, program: str, argv: Sequence[str], *, plans: bool) -> cfg.ConfigOpts:
    """Read files and command line into `conf`, check every name and value, and set up logging."""
    register_opts(conf, policies=plans)
    service_options.register_service_opts(conf)
    log.register_options(conf)
    report_options.set_defaults(conf)
    register_profiler(conf)
    read = partial(read_files, conf, program, argv, DESCRIPTIONS.get(program))
    read()
    check_names(conf, policies=plans)
    check_values(conf)
    enable_profiler(conf, program, read)
    check_values(conf)
    begin_to_log(conf)
    if conf.log_options:
        conf.log_opt_values(LOG, logging.DEBUG)
    return conf


def report_on_request(conf: cfg.ConfigOpts, program: str) -> None:
    """Write a report on SIGUSR2, or when the watched file changes."""
    if conf is not cfg.CONF:  # reports always contain cfg.CONF
        TextGuruMeditation.register_section("Configuration of the Pool", ConfigReportGenerator(conf))
    group = conf.oslo_reports
    if group.log_dir:
        present_directory("[oslo_reports] log_dir", group.log_dir)
    try:
        TextGuruMeditation.setup_autorun(_Version, program, conf=conf)
    except OSError as error:
        path = group.file_event_handler
        raise InvalidInput(f"[oslo_reports] file_event_handler: {path} cannot be watched: {error.strerror}") from None


class _Version:
    """The version of the program in reports, with the methods of pbr's version objects."""

    @staticmethod
    def vendor_string() -> str:
        return "OpenStack community"

    @staticmethod
    def product_string() -> str:
        return "fpga_pool"

    @staticmethod
    def version_string_with_package() -> str:
        return version("fpga_pool")


def begin_to_log(conf: cfg.ConfigOpts) -> None:
    """Set up logging as configured; InvalidInput names the option that is wrong."""
    try:
        log.setup(conf, "fpga_pool", version("fpga_pool"))
    except log.LogConfigError as error:
        raise InvalidInput(f"[DEFAULT] log_config_append: {error.log_config}: {error.err_msg}") from None
    except ValueError as error:
        raise InvalidInput(f"[DEFAULT] default_log_levels: {error}") from None
    except OSError as error:
        raise InvalidInput(f"[DEFAULT] log_file: {error.filename} cannot be written: {error.strerror}") from None
    for handler in logging.getLogger().handlers:
        if type(handler.formatter) is ContextFormatter:
            named = {"project": "fpga_pool", "version": version("fpga_pool")}
            handler.setFormatter(_Once(datefmt=conf.log_date_format, config=conf, **named))


class _Once(ContextFormatter):
    """A formatter that names the exception of a warning once: oslo.log also adds it to messages that contain it."""

    def format(self, record: logging.LogRecord) -> str:
        text: str = super().format(record)
        message, summary = record.getMessage(), record.__dict__.get("error_summary", "")
        said = summary.partition(": ")[2]
        return text.replace(f"{message}: {summary}", message, 1) if said and said in message else text


def limit_heaps() -> None:
    """Let the threads share few heaps, so that they reuse memory that others have freed; no effect without glibc."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _HEAPS)


def freeze_long_lived_objects() -> None:
    """Exclude objects that live as long as the process from garbage collection: modules, tables, configuration.

    A full collection that visits them all would stop every thread meanwhile, and delay every job.
    """
    gc.collect()
    gc.freeze()


def add_to_reports(title: str, values: Callable[[], Mapping[str, object]]) -> None:
    """Add a section to the reports that SIGUSR2 requests."""
    TextGuruMeditation.register_section(title, lambda: ModelWithDefaultViews(dict(values())))


def reload(conf: cfg.ConfigOpts) -> None:
    """Read the files again: options that may change at run time take effect, and the log names changes that do not."""
    try:
        check_names(conf, policies=False)
        conf.mutate_config_files()
    except (cfg.Error, ValueError, InvalidInput, OSError) as error:
        LOG.error("the configuration was not reloaded: %s", error)  # noqa: TRY400
    else:
        LOG.info("the configuration was reloaded")


def wakes_of_signals() -> socket.socket:
    """Return a socket that receives the number of each signal, which wakes the main thread whichever is interrupted."""
    arrived, arriving = socket.socketpair()
    arriving.setblocking(False)
    signal.set_wakeup_fd(arriving.detach(), warn_on_full_buffer=False)
    return arrived


class Signals:
    """Signal handling: SIGTERM and SIGINT stop the process, a second one immediately; SIGHUP reloads the configuration.

    SIGUSR2 writes a report, see `report_on_request`.
    """

    def __init__(self) -> None:
        self._ending = False
        self._limit_s: float | None = None
        self._arrived = wakes_of_signals()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)

    def end_within(self, limit_s: float) -> None:
        """Limit the time of a graceful stop, in seconds; 0 = no limit, as in oslo.service."""
        self._limit_s = limit_s or None

    def serve(self, on_hangup: Callable[[], None]) -> None:
        """Handle signals until one of them stops the process."""
        with contextlib.suppress(Ended):
            while True:
                if signal.SIGHUP in self._arrived.recv(64):
                    on_hangup()

    def _end(self, number: int, _frame: FrameType | None) -> None:
        if self._ending:
            give_up(f"a second {signal.Signals(number).name}")
        self._ending = True
        if self._limit_s is not None:
            limit = threading.Timer(self._limit_s, give_up, [f"did not stop within {self._limit_s:g} s"])
            limit.daemon = True
            limit.start()
        raise Ended


def give_up(reason: str) -> NoReturn:
    """Exit immediately; everything that was acknowledged is on disk."""
    LOG.warning("stopped immediately: %s", reason)
    os._exit(FAILED)


def attempt(steps: Iterable[Callable[[], object]]) -> None:
    """Run every step of a stop, even if others fail."""
    for step in steps:
        try:
            step()
        except Exception:
            LOG.exception("a component did not stop cleanly")


def end_messages(steps: Iterable[Callable[[], object]]) -> None:
    """Run the steps that stop the messaging, for a limited time: oslo.messaging would wait for a broker to do so."""
    ending = threading.Thread(target=attempt, args=[steps], name="end-messages", daemon=True)
    ending.start()
    ending.join(MESSAGES_END_S)
    if ending.is_alive():
        LOG.warning("the message broker does not answer: its connections are not closed")


def _leave(status: int) -> int:
    """Return the status, or exit with it if non-daemon threads are left: one in a library may wait for the broker."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        logging.shutdown()
        os._exit(status)
    return status


def complain(program: str, error: Exception, status: int) -> int:
    """Print in one line why the process cannot run, and return the status."""
    print(f"{program}: {(str(error).strip() or type(error).__name__).splitlines()[0]}", file=sys.stderr, flush=True)
    return status


# ---- Parts of every service


def connected(conf: cfg.ConfigOpts) -> Any:
    """Return the messaging transport.

    InvalidInput names an option of it that is wrong; the library would retry for ever instead.
    """
    made = transport(conf)
    check_values(conf)
    return made


def instruments(conf: cfg.ConfigOpts) -> Instruments:
    """Return the instruments that count the events of this process."""
    return Instruments(conf.metrics.max_projects)


def serve_metrics(conf: cfg.ConfigOpts, process: str, made: Instruments, ends: ExitStack) -> None:
    """Serve metrics until `ends` is closed, if they are enabled; OSError names the option of a port in use."""
    if not conf.metrics.enabled:
        return
    option = f"{process}_port"
    metrics = made.application()
    server = HttpServer(
        closed_to_pages(metrics) if is_loopback(conf.metrics.host) else metrics,
        conf.metrics.host,
        conf.metrics[option],
        name="metrics",
        port_option=f"[metrics] {option}",
        threads=_THREADS,
        tick_s=_TICK_S,
    )
    server.start()
    ends.callback(attempt, [server.stop])
