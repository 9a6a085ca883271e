# SPDX-License-Identifier: Apache-2.0
"""The engine's steps and work beside them, in another thread: one of the two at a time, and the engine waits little.

Nothing of vLLM's, Dynamo's or Inductor's state is used by two threads at once this way. The work goes on while the engine is
idle. If the engine is never idle, the work gets a part of the time, between two steps.
"""
from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Optional

log = logging.getLogger("vllm.medusa")

START_S = 0.5  # the engine's own start is not done yet
IDLE_S = 0.1  # without a step: nobody is waiting for an answer
PATIENCE_S = 3.0  # then the work goes on between steps, too
SHARE = 0.2  # of the time, at most, that steps wait for it
LIMIT_S = 20.0  # then a step goes on, whatever the work does


class Stopped(BaseException):
    """The engine ends; no handler of Exception keeps the work alive."""


class Turns:
    """enter() and leave() are called round the engine's steps, by one thread; take(), point() and give() by the work's thread."""

    def __init__(self, limit: Optional[float] = LIMIT_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._limit, self._change = clock, limit, threading.Condition()
        self._stepping = self._working = self._work_waits = self._engine_waits = self._stopped = False
        self._may_interrupt = self._granted = False  # granted: the engine lets the work go first, once
        self._last_step = self._taken = clock() + START_S
        self._due = self._last_step + PATIENCE_S
        self.waits, self.longest_wait, self.waited = 0, 0.0, 0.0

    # ---- the engine's side ----

    def enter(self) -> None:
        """Before a step; the second call of one step (sampling) does nothing."""
        with self._change:
            if self._stepping:
                return
            self._granted = self._work_waits and self._may_interrupt and self._clock() >= self._due
            if self._working or self._granted:
                self._wait_for_work()
            self._stepping = True

    def _wait_for_work(self) -> None:
        began = self._clock()
        self._engine_waits = True
        self._change.notify_all()
        in_time = self._change.wait_for(lambda: not self._working and not self._granted, self._limit)
        self._engine_waits = False
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

    def take(self, may_interrupt: bool = True) -> None:
        """Waits for a turn: until the engine is idle or, if the work may interrupt it, until it has waited for long enough."""
        with self._change:
            self._work_waits, self._may_interrupt = True, may_interrupt
            try:
                while not self._stopped:
                    now = self._clock()
                    idle = self._last_step + IDLE_S
                    if self._granted or (now >= idle and not self._stepping and not self._engine_waits):
                        self._working, self._taken = True, now
                        return
                    self._change.wait(None if self._stepping or self._engine_waits else max(idle - now, 0.001))
                raise Stopped
            finally:
                self._work_waits = self._granted = False
                self._change.notify_all()

    def give(self) -> None:
        with self._change:
            if self._working:
                now = self._clock()
                self._due = max(self._due, now + (now - self._taken) * (1 / SHARE - 1))
                self._working = False
                self._change.notify_all()

    def point(self) -> None:
        """The work could be interrupted here: it is, if a step waits."""
        with self._change:
            if self._stopped:
                raise Stopped
            waits = self._engine_waits
        if waits:
            self.give()
            self.take()
