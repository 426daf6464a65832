"""Runs the programs of cp-tools from Python and reads their records.

    from cp_filters import ask, run

    print(ask("What is in this log?", model="anthropic/claude-opus-4-5"))
    for record in run(["cp-llm", "--rows"], ({"messages": [{"role": "user", "content": text}]} for text in texts)):
        print(record["data"]["content"])
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import threading
from importlib import metadata
from typing import IO, Any, Iterable, Iterator, Mapping, Sequence

__all__ = ["Error", "ask", "run"]


class Error(Exception):
    """A failure that a program reported.

    ``code`` is a code such as ``E_RATE_LIMITED``, ``retryable`` is true if the same call can succeed later, ``details`` has the hint and
    other members, and ``status`` is the exit status of the program, or ``None`` for one row of many.
    """

    def __init__(
        self, code: str, message: str, retryable: bool = False, details: Mapping[str, Any] | None = None, status: int | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retryable = retryable
        self.details = dict(details or {})
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return Error, (self.code, self.message, self.retryable, self.details, self.status)

    @classmethod
    def of(cls, record: Mapping[str, Any], status: int | None = None) -> Error:
        """Return the error in a record whose ``ok`` is false."""
        error = record.get("error") or {}
        return cls(
            error.get("code", "E_UNKNOWN"), error.get("message", ""), error.get("retryable", False), error.get("details"), status
        )


@functools.lru_cache(maxsize=None)
def _path(name: str) -> str:
    """Return the path of a program: the installed one of this distribution, or one on PATH."""
    try:
        files = metadata.files("cp-filters") or []
    except metadata.PackageNotFoundError:
        files = []
    installed = (str(file.locate()) for file in files if file.name == name and file.parent.name == "bin")
    return next(filter(os.path.exists, installed), None) or shutil.which(name) or name


def _write(rows: Iterable[Mapping[str, Any]], pipe: IO[bytes], failures: list[BaseException]) -> None:
    """Write rows to a program. The program reports why it stopped reading, so a broken pipe is not an error."""
    try:
        with pipe:
            for row in rows:
                pipe.write(json.dumps(row).encode() + b"\n")
                pipe.flush()
    except BrokenPipeError:
        pass
    except BaseException as failure:
        failures.append(failure)


def run(args: Sequence[str | os.PathLike[str]], rows: Iterable[Mapping[str, Any]] | None = None) -> Iterator[dict[str, Any]]:
    """Run a program and yield its records as they arrive.

    Rows are written to its standard input, one object a line, while its output is read; a generator of any length is never kept in memory.
    The closing summary is not yielded. A row that failed is yielded as a record whose ``ok`` is false, and does not end the iterator; any
    other failure raises `Error` after the last record. A program whose iterator is closed is terminated.
    """
    name = os.fspath(args[0])
    environment = {key: value for key, value in os.environ.items() if key != "CP_FORMAT"}
    command = [name if os.sep in name else _path(name), *map(os.fspath, args[1:])]
    stdin = subprocess.DEVNULL if rows is None else subprocess.PIPE
    process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    failures: list[BaseException] = []
    if rows is not None:
        threading.Thread(target=_write, args=(rows, process.stdin, failures), daemon=True).start()
    closing: dict[str, Any] = {}
    failed_rows = 0
    try:
        for line in process.stdout:
            try:
                record = json.loads(line)
            except ValueError:
                raise Error("E_VALIDATION", f"{name} wrote a line that is not a record: {line[:80]!r}") from None
            if "meta" in record:
                closing = record
            else:
                failed_rows += not record["ok"]
                yield record
        status = process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        process.stdout.close()
    if failures:
        raise failures[0]
    if not closing:
        raise Error("E_UNKNOWN", f"{name} ended before its closing record", status=status)
    if not closing["ok"]:
        error = Error.of(closing, status)
        if error.code == "E_PARTIAL" and failed_rows:
            return
        raise error
    if closing.get("type") != "summary":
        yield closing


def ask(text: str, *, model: str | None = None, system: str | None = None, backend: str | None = None, options: Sequence[str] = ()) -> str:
    """Send one prompt to a model and return its answer.

    ``options`` are further options of ``cp-llm``. Raises `Error` if the request fails.
    """
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": text})
    named = [word for flag, value in (("--model", model), ("--backend", backend)) if value is not None for word in (flag, value)]
    # The list ends with the program, after its ledger is written.
    for record in list(run(["cp-llm", "--rows", *named, *options], [{"messages": messages}])):
        if not record["ok"]:
            raise Error.of(record)
        if record.get("type") == "message":
            return str(record["data"]["content"])
    raise Error("E_UNKNOWN", "cp-llm ended without an answer")
