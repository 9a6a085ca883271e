# SPDX-License-Identifier: Apache-2.0
"""The engine's steps and work beside them, in another thread: one of the two at a time, and the engine waits little.

A cold start is made because a request waits, so the work begins after the first step. It goes on while the engine is idle,
or, if the engine is never idle, between two steps now and then.
"""
from __future__ import annotations

import logging
import math
import threading
import time
from typing import Any, Callable, Optional

log = logging.getLogger("vllm.medusa")

LATE_S = 10.0  # after the start, if no step comes at all
IDLE_S = 0.1  # without a step: nobody is waiting for an answer
PATIENCE_S = 10.0  # of an engine that is never idle; then the work goes on between steps
SHARE = 0.2  # of the time, at most, that steps wait for it
LIMIT_S = 20.0  # then a step goes on, whatever the work does
STUCK_S = 2.0  # then a step may wait for something that interrupted work holds, and the work goes on beside it
FREE_S = 0.5  # for that long


class Stopped(BaseException):
    """The engine ends; no handler of Exception keeps the work alive."""


class Turns:
    """enter() and leave() are called round the engine's steps, by one thread; take(), point() and give() by the work's thread."""

    def __init__(self, limit: Optional[float] = LIMIT_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._limit, self._change = clock, limit, threading.Condition()
        self._stepping = self._working = self._work_waits = self._stopped = False
        self.engine_waits = False  # read without the lock: a point that comes a little later will do
        self._may_interrupt = self._granted = False  # granted: the engine lets the work go first, once
        self._last_step = clock() + LATE_S
        self._first, self._due, self._free_until = True, float("inf"), 0.0
        self._step_began, self._taken, self._at = 0.0, 0.0, 0.0
        self._name: Any = ""
        self.waits, self.longest_wait, self.waited = 0, 0.0, 0.0
        self.longest_part, self._longest = 0.0, ("nothing", "nothing")  # without a point: what a step may have to wait

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
        self.engine_waits = False
        took = self._clock() - began
        self.waits, self.longest_wait, self.waited = self.waits + 1, max(self.longest_wait, took), self.waited + took
        if not in_time:
            log.error("medusa: a step has waited for %.0f s: the take-over is given up, and the engine goes on without it", took)
            self._stopped, self._working, self._granted = True, False, False

    def leave(self) -> None:
        """After a step."""
        with self._change:
            self._stepping, self._last_step = False, self._clock()
            self._change.notify_all()

    def stop(self) -> None:
        """The work ends at its next point."""
        with self._change:
            self._stopped = True
            self._change.notify_all()

    # ---- the work's side ----

    def take(self, may_interrupt: bool = True, idle_s: float = 0.0, patience: Optional[float] = None) -> bool:
        """Waits for a turn: until no step has run for idle_s (at least IDLE_S), or, if the work may interrupt the engine, until
        it has waited for long enough. False when one step runs for `patience` seconds."""
        with self._change:
            self._work_waits, self._may_interrupt = True, may_interrupt
            try:
                while not self._stopped:
                    now = self._clock()
                    idle = self._last_step + max(idle_s, IDLE_S)
                    if self._granted or (now >= idle and not self._stepping and not self.engine_waits):
                        self._working, self._taken, self._at, self._name = True, now, now, "its beginning"
                        return True
                    if patience is not None and self._stepping and now >= self._step_began + patience:
                        return False
                    until = idle
                    if self._stepping or self.engine_waits:
                        until = self._step_began + patience if patience is not None and self._stepping else math.inf
                    self._change.wait(None if until == math.inf else max(until - now, 0.001))
                raise Stopped
            finally:
                self._work_waits = self._granted = False
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
        """The work could be interrupted here: it is, if a step waits. Called often; `name` is a text, or code."""
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
        """What the engine has waited for."""
        names = [getattr(name, "co_qualname", None) or getattr(name, "co_name", name) for name in self._longest]
        return (f"{self.waits} steps have waited for it, the longest {self.longest_wait * 1000:.0f} ms, all of them "
                f"{self.waited * 1000:.0f} ms; its longest part took {self.longest_part * 1000:.0f} ms, from {names[0]} to {names[1]}")
