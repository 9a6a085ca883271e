# SPDX-License-Identifier: Apache-2.0
"""The engine's steps, and work in another thread, take turns: only one of them runs at a time, and the engine waits little.

The work begins after the first step, because a cold start is made when a request waits. It goes on while the engine is
idle, or, if the engine is never idle, now and then between two steps.
"""
from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from typing import Any, Callable, Iterator, Optional

log = logging.getLogger("vllm.medusa")

LATE_S = 10.0  # the work begins so long after the start if no step comes at all
IDLE_S = 0.1  # the engine counts as idle so long after a step
PATIENCE_S = 10.0  # if the engine is never idle, the work waits so long until it goes on between steps
SHARE = 0.2  # at most this part of the time do steps wait for the work
LIMIT_S = 20.0  # a step waits so long, and then goes on whatever the work does, unless the work uses the engine's own buffers
STUCK_S = 2.0  # a step that runs for so long may wait for something that the interrupted work holds: the work goes on beside it
FREE_S = 0.5  # how long the work goes on beside such a step


class Stopped(BaseException):
    """Raised in the work when it has to end. A BaseException, so that no handler of Exception keeps the work alive."""


class Turns:
    """The engine's thread calls enter() and leave() around each step; the work's thread calls take(), point() and give()."""

    def __init__(self, limit: Optional[float] = LIMIT_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._limit, self._change = clock, limit, threading.Condition()
        self._stepping = self._working = self._work_waits = self._stopped = self._asleep = False
        self._whole = False  # the work uses the engine's own buffers
        self.abandoned = False  # a step has not waited for the work, which may still be running
        self.engine_waits = False  # read without the lock, because a later point also serves
        self._may_interrupt = self._granted = False  # granted: the engine lets the work go first, once
        self._last_step = clock() + LATE_S
        self._first, self._due, self._free_until = True, float("inf"), 0.0
        self._step_began, self._taken, self._at = 0.0, 0.0, 0.0
        self._name: Any = ""
        self.waits, self.longest_wait, self.waited = 0, 0.0, 0.0
        self.longest_part, self._longest = 0.0, ("nothing", "nothing")  # the longest time between two points

    # ---- the engine's side ----

    def enter(self) -> None:
        """Before a step; the second call of one step (sampling) does nothing."""
        with self._change:
            if self._stepping:
                return
            if self._first:
                self._first, self._due = False, self._clock() + PATIENCE_S
            self._granted = self._work_waits and self._may_interrupt and self._clock() >= self._due
            if self._working or self._granted:
                self._wait_for_work()
            self._stepping, self._step_began = True, self._clock()
            self._change.notify_all()

    def _wait_for_work(self) -> None:
        began = self._clock()
        self.engine_waits = True
        self._change.notify_all()
        in_time = self._change.wait_for(lambda: not self._working and not self._granted, self._limit)
        if not in_time and self._whole:
            log.error("medusa: a step has waited for the take-over for %.0f s, and waits on: the take-over uses the buffers of steps", self._clock() - began)
            self._change.wait_for(lambda: not self._whole or not self._working and not self._granted)
            in_time = self._change.wait_for(lambda: not self._working and not self._granted, self._limit)
        self.engine_waits = False
        took = self._clock() - began
        self.waits, self.longest_wait, self.waited = self.waits + 1, max(self.longest_wait, took), self.waited + took
        if not in_time:
            log.error("medusa: a step has waited for the take-over for %.0f s: the take-over is given up, and the engine goes on without it", took)
            self._stopped, self._working, self._granted, self.abandoned = True, False, False, True

    def leave(self) -> None:
        """After a step."""
        with self._change:
            self._stepping, self._last_step = self._asleep, self._clock()
            self._change.notify_all()

    def sleep(self) -> None:
        """In place of leave(): no work until wake()."""
        with self._change:
            self._asleep = True

    def wake(self) -> None:
        with self._change:
            self._asleep = False
        self.leave()

    def stop(self) -> None:
        """Makes the work end at its next point."""
        with self._change:
            self._stopped = True
            self._change.notify_all()

    def abandon(self) -> None:
        """As stop(), for an engine that cannot take turns any more: also if the lock cannot be had."""
        self._stopped = True
        if self._change.acquire(timeout=1):
            try:
                self._change.notify_all()  # the work may wait for its turn
            finally:
                self._change.release()

    # ---- the work's side ----

    def take(self, may_interrupt: bool = True, idle_s: float = 0.0, patience: Optional[float] = None) -> bool:
        """Waits for a turn: until no step has run for idle_s (at least IDLE_S), or, if the work may go between steps, until it
        has waited for long enough. False if one step runs for `patience` seconds."""
        with self._change:
            self._work_waits, self._may_interrupt = True, may_interrupt
            try:
                while not self._stopped:
                    now = self._clock()
                    idle = self._last_step + max(idle_s, IDLE_S)
                    if self._granted or (now >= idle and not self._stepping and not self.engine_waits):
                        self._working, self._taken, self._at, self._name = True, now, now, "its beginning"
                        return True
                    most = None if self._asleep else patience
                    if most is not None and self._stepping and now >= self._step_began + most:
                        return False
                    until = idle
                    if self._stepping or self.engine_waits:
                        until = self._step_began + most if most is not None and self._stepping else math.inf
                    self._change.wait(None if until == math.inf else max(until - now, 0.001))
                raise Stopped
            finally:
                self._work_waits = self._granted = False
                self._change.notify_all()

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """A part of the work that uses the engine's own buffers: no step runs beside it, however long it takes."""
        with self._change:
            if self._stopped:
                raise Stopped
            self._whole = True
        try:
            yield
        finally:
            with self._change:
                self._whole = False
                self._change.notify_all()

    def give(self, name: Any = "its end") -> None:
        with self._change:
            if self._working:
                now = self._worked(name)
                self._due = max(self._due, now + (now - self._taken) * (1 / SHARE - 1))
                self._working = False
                self._change.notify_all()

    def _worked(self, name: Any) -> float:
        now = self._clock()
        if self._working and now - self._at > self.longest_part:
            self.longest_part, self._longest = now - self._at, (self._name, name)
        self._at, self._name = now, name
        return now

    def point(self, name: Any, may_pause: Optional[Callable[[], bool]] = None) -> None:
        """The work lets a waiting step run here. Called often; `name` is a text, or code."""
        if self._stopped:
            raise Stopped
        if self.engine_waits or not self._working:
            if self._clock() < self._free_until or (may_pause is not None and not may_pause()):
                return
            self.give(name)
            if not self.take(patience=STUCK_S):
                self._free_until = self._clock() + FREE_S
        else:
            self._worked(name)

    def told(self) -> str:
        """How long the engine has waited, and the longest part of the work that could not be interrupted."""
        names = [getattr(name, "co_qualname", None) or getattr(name, "co_name", name) for name in self._longest]
        return (f"{self.waits} steps have waited for it, {self.waited * 1000:.0f} ms in all and {self.longest_wait * 1000:.0f} ms at most; its "
                f"longest uninterrupted part took {self.longest_part * 1000:.0f} ms, from {names[0]} to {names[1]}")
