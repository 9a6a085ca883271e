# SPDX-License-Identifier: Apache-2.0
"""The engine's graphs: restored where they can be, else captured live, and recorded when there is a recorder."""
from __future__ import annotations

import json
import logging
import os
import threading
import weakref
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from .. import _api
from . import adopted, difference, doubt, facts, rng, scratch, verify
from .bindings import Bindings
from .live import Captured, Recorder
from .outputs import Outputs, Unsupported, rebuild
from .owner import Owner, take_owner
from .steps import LiveStep, RestoredStep, Step

log = logging.getLogger("medusa.torch")

NOTE_VERSION = 1
WAIT_NS = 200_000_000  # a wait in C is cut into these, so that Ctrl-C gets through
_BROKEN_NOTE = (ValueError, KeyError, TypeError, IndexError, AttributeError)
_first_engine: Optional[str] = None  # the name of the Graphs whose facts stand for the whole artifact
_open: "weakref.WeakSet[Graphs]" = weakref.WeakSet()  # those that have told the C side names
_open_lock = threading.Lock()


class Graphs:
    """The graphs of one engine. Everything that they use and that the engine owns is in `bind`, by name.

    path       the artifact; another one than this process restores is not used. None: whichever it is.
    bind       modules, tensors, caches, dictionaries and lists of these; roles by Constant, State, Input, Output,
               Scratch.
    name       stands before labels and bindings, for a second engine in one process. While one Graphs is open,
               another one with its name, or with one of its bindings' names, captures all its graphs live.
    pool       graph memory pool for live captures; its own by default.
    warmup     forwards before a live capture.
    want       batch sizes in the order in which they are needed, of kind "decode"; or a dictionary by kind.
    trigger    runs the model's first layer once, for artifacts without images.
    randomize  (kind, batch, generator): fills the inputs with valid random values; used while graphs are recorded (by
               ready(), or where a graph is made after it) and verified (where a graph is made). State is put back,
               unless it is too large.
    eager_tolerance  how far live graphs may lie from eager in medusa-verify: 0.1, or "64ulp"; any distance by default.
    fingerprint  what else must be equal for a restored graph to be right, by name.
    packages   packages whose versions are in `fingerprint`, so that their code need not be looked at.
    is_setting  (name, value): whether an attribute of a module decides what it computes; all plain ones by default.
    remark     JSON that each recorded graph keeps; a restored one has it as Step.remark.
    """

    def __init__(
        self,
        path: Union[str, "os.PathLike[str]", None] = None,
        bind: Optional[Mapping[str, Any]] = None,
        *,
        name: str = "",
        pool: Any = None,
        warmup: int = 2,
        want: Union[Sequence[int], Mapping[str, Sequence[int]], None] = None,
        trigger: Optional[Callable[[], Any]] = None,
        randomize: Optional[verify.Randomize] = None,
        fingerprint: Optional[Mapping[str, str]] = None,
        packages: Sequence[str] = (),
        eager_tolerance: Union[float, str, None] = None,
        is_setting: Optional[Callable[[str, Any], bool]] = None,
        remark: Any = None,
    ) -> None:
        self._remark = remark
        self._eager_tolerance = difference.tolerance_of(eager_tolerance)
        self._device = torch.cuda.current_device()
        torch.cuda.current_stream(self._device).query()  # makes the context current in this thread
        self._name, self._randomize = name, randomize
        self._lock = threading.RLock()
        self._steps: Dict[Tuple[str, int], Step] = {}
        self._untested: Dict[Tuple[str, int], LiveStep] = {}  # in a capture: tested when all graphs are made
        self._is_ready = self._closed = False
        self._on_ready: List[Callable[[], Any]] = []
        self._scratch: List[Tuple[int, int]] = []  # address and bytes of blocks that only graphs use
        self._more_scratch: List[Tuple[int, int]] = []  # the same, in pools that are not this object's
        self._logged: set = set()
        self._mode = _api.mode()
        self._why_live = self._check_path(path)
        self._trigger: Optional[_api.Callback] = None
        self._owner: Optional[Owner] = None
        self._recorder = Recorder(self._device, pool, warmup, self._mode in ("capture", "verify"))
        self._bindings = Bindings(bind or {}, name, self._device)
        self._packages = tuple(packages)
        self._facts = facts.engine_facts(self._bindings, fingerprint, is_setting, packages) if self._mode != "none" else {}
        if self._mode != "none" and not self._why_live and self._has_its_names():
            self._why_live = self._introduce(want, trigger)

    # ---- beginning ----

    def _has_its_names(self) -> bool:
        """Takes its names, unless another one that is open has them: binding these again would move its memory."""
        with _open_lock:
            for other in _open:
                if other._name == self._name:
                    self._stand_aside(f"there is another Graphs with name={self._name!r}, which is not closed")
                    return False
                shared = other._bindings.names.keys() & self._bindings.names.keys()
                if shared:
                    self._stand_aside(f"another Graphs has bound {min(shared)} and is not closed")
                    return False
            _open.add(self)
        return True

    def _stand_aside(self, why: str) -> None:
        """All works, live, and the C side hears nothing of it."""
        self._why_live, self._mode = why, "none"
        log.warning("all graphs of this Graphs are captured live: %s", why)

    def _check_path(self, path: Union[str, "os.PathLike[str]", None]) -> str:
        restored = os.environ.get("MEDUSA_ARTIFACT")
        if self._mode != "restore" or path is None or not restored:
            return ""
        if os.path.realpath(path) == os.path.realpath(restored):
            return ""
        return f"this process restores {restored}, not {os.fspath(path)}"

    def _introduce(
        self, want: Union[Sequence[int], Mapping[str, Sequence[int]], None], trigger: Optional[Callable[[], Any]]
    ) -> str:
        """Says everything that must be known before graphs are asked for; why nothing can be restored, or ""."""
        global _first_engine
        if self._mode == "restore":
            self._owner = take_owner()
        facts.say_process()
        if _first_engine is None:
            _first_engine = self._name
            for fact, value in self._facts.items():
                facts.say(fact, value)
        try:
            if trigger is not None:
                self._trigger = _api.Callback(trigger)
                _api.trigger(f"{self._name or 'engine'}", self._trigger)
            for kind, batches in (want if isinstance(want, Mapping) else {"decode": want or ()}).items():
                if batches:
                    _api.graph_want(self._label(kind), [int(batch) for batch in batches])
            self._bindings.tell()
            if self._mode == "restore":
                rng.bind_own(self._device)
        except _api.Error as error:
            return str(error)
        return ""

    def _label(self, kind: str) -> str:
        return f"{self._name}.{kind}" if self._name else kind

    # ---- graphs ----

    @property
    def why_live(self) -> str:
        """Why no graph can be restored; "" if no reason is known before a graph is asked for."""
        return self._why_live

    def get(self, kind: str, batch: int, fn: Callable[[], Any], prepare: Optional[Callable[[], None]] = None) -> Step:
        """The graph of fn() at this batch size: restored if it can be, else warmed up and captured live, as before.

        prepare() is called between the warm-up and a live capture, outside of the graph.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("medusa: these graphs have been closed")
            torch.cuda.current_stream(self._device).query()
            self._look_for_moved()
            known = self._steps.get((kind, batch))
            if known is not None:
                return known
            step = self._make(kind, batch, fn, prepare)
            self._steps[kind, batch] = step
            return step

    def _make(self, kind: str, batch: int, fn: Callable[[], Any], prepare: Optional[Callable[[], None]]) -> Step:
        why = self._why_live
        if self._mode == "restore" and not why:
            try:
                return self._restore(self._label(kind), batch, fn)
            except (_api.Error, Unsupported) as error:
                why = str(error)
                self._log_once(logging.INFO if isinstance(error, _api.Error) else logging.WARNING, kind, batch, why)
        elif self._mode == "restore":
            self._log_once(logging.WARNING, kind, batch, why)
        return self._live(kind, batch, fn, why, prepare)

    def _log_once(self, level: int, kind: str, batch: int, why: str) -> None:
        if why not in self._logged:
            log.log(level, "graph %s/%d is captured live: %s", self._label(kind), batch, why)
        self._logged.add(why)

    def _look_for_moved(self) -> None:
        """A graph must never hold the address of what was freed; what moves once is not trusted again."""
        moved = self._bindings.moved()
        if not moved:
            return
        self._why_live = f"{moved} is not where it was bound"
        self._bindings.look_again()
        self._steps.clear()

    # ---- restored ----

    def _restore(self, label: str, batch: int, fn: Callable[[], Any]) -> Step:
        graph = self._wait(label, batch)
        try:
            note = json.loads(_api.graph_note_get(label, batch) or b"null")
            self._check_note(note, fn)
            outputs = rebuild(
                note["outputs"],
                self._bindings,
                lambda index: _api.graph_output_get(label, batch, index),
                self._owner,
            )
            step = RestoredStep(graph, outputs, self._device, int(note["increment"]), self._owner)
            step.remark = note.get("remark")
        except _BROKEN_NOTE as error:
            raise Unsupported(f"the note of graph {label}/{batch} can't be read: {error!r}") from None
        except RuntimeError as error:
            raise Unsupported(f"the outputs of graph {label}/{batch} can't be made: {error}") from None
        if _api.ranks_meet():  # another rank may lack the note or the outputs: it does not ask again, and all capture live
            self._wait(label, batch)
        return step

    def _wait(self, label: str, batch: int) -> int:
        # To the other ranks, a wait that ends is a no, and a graph is not asked for again after it.
        wait_ns = _api.FOREVER if _api.ranks_meet() else WAIT_NS
        while True:
            try:
                return _api.graph_get(label, batch, wait_ns)
            except _api.Error as error:
                if error.code != _api.TIMEOUT:
                    raise
            finally:
                self._pass_on_trigger()

    def _pass_on_trigger(self) -> None:
        """What ends a program is passed on; of what merely failed, the kernels that it did load are used."""
        raised = self._trigger.take() if self._trigger else None
        if raised is not None and not isinstance(raised, Exception):
            raise raised
        if raised is not None:
            log.warning("the trigger failed: %r", raised)

    def _check_note(self, note: Any, fn: Callable[[], Any]) -> None:
        if not isinstance(note, dict) or note.get("version") != NOTE_VERSION:
            raise Unsupported("the graph was not recorded by this version of the adapter")
        for fact in sorted(note["facts"].keys() | self._facts.keys()):
            then, now = note["facts"].get(fact), self._facts.get(fact)
            if then != now:
                raise Unsupported(f"{fact}: artifact has {then}, this process {now}")
        if note["function"] != facts.function_hash(fn, self._packages):
            raise Unsupported("the source of the graph's function has changed, or the values that it was given")
        for name, layout in note["layouts"].items():
            bound = self._bindings.names.get(name)
            if bound is not None and bound.layout != layout:
                raise Unsupported(f"binding {name}: artifact has {layout}, this process {bound.layout}")

    # ---- live ----

    def _live(
        self, kind: str, batch: int, fn: Callable[[], Any], why: str, prepare: Optional[Callable[[], None]] = None
    ) -> Step:
        recording = self._mode in ("capture", "verify")
        refusals = []

        def before_capture(draws: bool) -> None:
            if prepare is not None:
                prepare()
            if recording:
                self._tell_late()
            if recording and draws:
                refusals.append(rng.bind_found(self._device))

        captured = self._recorder.run(fn, before_capture)
        self._state_scratch()
        step = LiveStep(captured, why)
        if recording:
            refusals.append(self._why_live)
            self._record(kind, batch, fn, captured, step, next((text for text in refusals if text), ""))
        elif self._mode == "restore":
            self._say_live(self._label(kind), batch, captured)
        return step

    def _state_scratch(self) -> None:
        if self._mode == "capture":
            self._scratch = scratch.state(self._device, self._all_pools())
            scratch.state_blocks(self._all_more_scratch())

    def add_scratch(self, blocks: Iterable[Tuple[int, int]]) -> None:
        """States that only graphs use this memory (address, bytes), which the engine has in pools of its own, and binds to no name."""
        if self._mode == "capture":
            self._more_scratch += blocks
            self.restate_scratch()

    def restate_scratch(self) -> None:
        """Call this after each capture that the engine makes by itself into another pool, because a capture ends all statements."""
        scratch.state_blocks([*self._scratch, *self._all_more_scratch()])

    def _all_pools(self) -> List[Any]:
        """The pools of all engines on this device: a capture ends all statements, also those of other engines in this process."""
        with _open_lock:
            return [pool for graphs in _open if graphs._device == self._device for pool in graphs._recorder.own_pools]

    def _all_more_scratch(self) -> List[Tuple[int, int]]:
        with _open_lock:
            return [block for graphs in _open if graphs._device == self._device for block in graphs._more_scratch]

    @staticmethod
    def _say_live(label: str, batch: int, captured: Captured) -> None:
        """Graphs that hand values on are restored together or not at all: the C side must know which one is not."""
        try:
            _api.graph_label(captured.handle, label, batch)
        except _api.Error as error:
            log.error("values that graphs pass to each other may be lost: %s", error)

    def _tell_late(self) -> None:
        """What the warm-up has made is bound too, for the record; a restore, which runs none, will miss it by name."""
        try:
            late = self._bindings.tell_new()
        except _api.Error as error:
            self._why_live = str(error)
            return
        if late:
            log.warning("%s was made by the first forward; only what is there before Graphs can be restored", late[0])

    def _record(
        self, kind: str, batch: int, fn: Callable[[], Any], captured: Captured, step: LiveStep, refusal: str
    ) -> None:
        label, graph = self._label(kind), captured.handle
        try:
            note = self._describe(graph, fn, captured)
        except Unsupported as error:
            note, refusal = None, refusal or str(error)
        try:
            if captured.draws:
                step.increment = rng.increment_of(self._device, captured.graph.replay)
            else:
                step.watch_first(lambda replay: self._watch_random(graph, label, batch, replay))
            if note is not None and not refusal:
                refusal = self._put_note(graph, note, step.increment)
            if refusal:
                self._refuse(graph, label, batch, refusal)
            _api.graph_label(graph, label, batch)
            if self._randomize is not None and not refusal:
                if self._mode == "verify":
                    self._verify(kind, batch, fn, step, graph)
                else:
                    self._untested[kind, batch] = step
                    if self._is_ready:
                        self._test_all()
        except _api.Error as error:
            log.warning("graph %s/%d is not recorded: %s", label, batch, error)

    def _describe(self, graph: int, fn: Callable[[], Any], captured: Captured) -> dict:
        outputs = Outputs(captured.value, self._bindings)
        for index, (address, size) in enumerate(outputs.regions):
            _api.graph_output(graph, index, address, size)
        return {
            "version": NOTE_VERSION,
            "outputs": outputs.packed,
            "facts": self._facts,
            "function": facts.function_hash(fn, self._packages),
            "layouts": {bound.name: bound.layout for bound in self._bindings if bound.role != _api.CONSTANT},
            **({"remark": self._remark} if self._remark is not None else {}),
        }

    def _put_note(self, graph: int, note: dict, increment: int) -> str:
        note["increment"] = increment
        data = json.dumps(note, separators=(",", ":")).encode()
        if len(data) > _api.NOTE_MAX:
            return f"its outputs and inputs take {len(data)} bytes to describe, more than {_api.NOTE_MAX}"
        _api.graph_note(graph, data)
        return ""

    def _refuse(self, graph: int, label: str, batch: int, why: str) -> None:
        log.warning("graph %s/%d will not be restored: %s", label, batch, why)
        _api.graph_refuse(graph, why)

    def _watch_random(self, graph: int, label: str, batch: int, replay: Callable[[], None]) -> None:
        """A graph that draws random numbers although its warm-up drew none must not be restored."""
        before = rng.offset(self._device)
        replay()
        if rng.offset(self._device) != before:
            try:
                self._refuse(graph, label, batch, "it draws random numbers (RNG), which its warm-up did not")
            except _api.Error as error:
                log.warning("graph %s/%d: %s", label, batch, error)

    def _test_all(self) -> None:
        """Replays graphs that the engine has not launched. A capture tests a graph at its first launch, on inputs that must be valid.

        Graphs that the engine has launched itself were tested then. No graph is launched before the last one is made,
        because kernels that run before the first launch (warm-up forwards) do not count: a cold start does not run them.
        """
        untested, self._untested = self._untested, {}
        for (kind, batch), step in untested.items():
            if not step.replayed and self._steps.get((kind, batch), step) is step:
                self._replay_random(kind, batch, step)

    def _replay_random(self, kind: str, batch: int, step: LiveStep) -> None:
        randomize = self._randomize
        assert randomize is not None
        verify.replay(
            step, lambda numbers: randomize(kind, batch, numbers), self._bindings, self._device, f"{self._label(kind)}/{batch}"
        )

    def _verify(self, kind: str, batch: int, fn: Callable[[], Any], step: LiveStep, graph: int) -> None:
        randomize = self._randomize
        assert randomize is not None
        label = self._label(kind)
        found = verify.compare(
            step,
            lambda: self._recorder.on_stream(fn),
            lambda numbers: randomize(kind, batch, numbers),
            self._bindings,
            self._device,
            f"{label}/{batch}",
            self._eager_tolerance,
        )
        if found.wrong:
            self._refuse(graph, label, batch, f"on random inputs a replay differs from eager: {found.wrong}")
            return
        if found.different:
            log.warning("graph %s/%d: on random inputs live replays differ from eager: %s; what is restored is compared with "
                        "live replays", label, batch, found.different)
        if found.nondeterministic:
            log.warning("graph %s/%d is nondeterministic: %s", label, batch, found.nondeterministic)
            doubt.report(label, batch, found.nondeterministic)

    # ---- graphs that the engine captures by itself ----

    def bind(self, name: str, value: Any) -> None:
        """Binds one more entry, for graphs that have not been asked for yet."""
        with self._lock:
            self._bindings.add(name, value)

    def pack(self, value: Any, other: Optional[adopted.Pack] = None) -> dict:
        """A nested value as JSON, whose tensors lie in bindings; other(part) packs parts of other kinds."""
        return adopted.pack(value, self._bindings, other)

    def unpack(self, packed: dict, other: Optional[Callable[[dict], Any]] = None) -> Any:
        """The value in this process; other(packed) makes parts of other kinds, or returns NotImplemented."""
        return adopted.rebuild(packed, self._bindings, other)

    def adopt(self, kind: str, batch: int, graph: torch.cuda.CUDAGraph, value: Any, more: Any, refusal: str = "") -> str:
        """Records a graph that the engine has captured by itself, with values in bindings alone. Returns why it will not be restored, or "".

        value   the tensors that the graph fills, nested. `more` is JSON, which take() returns. The engine launches the graph by
        itself, on inputs that vary, when all graphs are made.
        """
        label, handle = self._label(kind), Captured(graph, value).handle
        refusal = refusal or self._why_live
        try:
            if not refusal:
                _api.graph_note(handle, adopted.note(value, more, self._bindings, self._facts))
        except Unsupported as error:
            refusal = str(error)
        if refusal:
            _api.graph_refuse(handle, refusal)
        _api.graph_label(handle, label, batch)
        return refusal

    def refuse(self, graph: torch.cuda.CUDAGraph, why: str) -> None:
        """Says that an adopted graph must not be restored."""
        _api.graph_refuse(Captured(graph, None).handle, why)

    def take(self, kinds: Sequence[str], batch: int, timeout_ns: Callable[[], int] = lambda: _api.FOREVER) -> List[Tuple[Step, Any]]:
        """Restored graphs that adopt() has recorded, each with its `more`. Raises _api.Error or Unsupported with the reason."""
        with self._lock:
            if self._mode != "restore" or self._closed:
                raise Unsupported("nothing is being restored")
            self._look_for_moved()
            if self._why_live:
                raise Unsupported(self._why_live)
            return [self._take(self._label(kind), batch, timeout_ns()) for kind in kinds]

    def _take(self, label: str, batch: int, timeout_ns: int) -> Tuple[Step, Any]:
        graph = _api.graph_get(label, batch, timeout_ns)
        try:
            note = adopted.read(_api.graph_note_get(label, batch), self._facts)
            outputs = self.unpack(note["outputs"])
            return RestoredStep(graph, outputs, self._device, 0, self._owner), note["more"]
        except (*_BROKEN_NOTE, RuntimeError) as error:
            raise Unsupported(f"the note of graph {label}/{batch} can't be read: {error!r}") from None

    # ---- the rest ----

    def available(self, kind: str, batch: int) -> bool:
        """Whether get() would restore at once."""
        return not self._why_live and _api.graph_ready(self._label(kind), batch)

    def on_ready(self, call: Callable[[], Any]) -> None:
        """Has ready() call call(), which launches graphs that the engine has captured by itself, on random inputs."""
        self._on_ready.append(call)

    def ready(self) -> None:
        """Everything is captured or restored: a recording proves its graphs here, while their outputs are alive."""
        torch.cuda.current_stream(self._device).query()
        self._state_scratch()
        self._is_ready = True
        self._test_all()
        calls, self._on_ready = self._on_ready, []
        for call in calls:
            call()
        try:
            _api.mark("ready")
        except _api.Error as error:
            log.warning("ready: %s", error)

    def complete(self) -> None:
        """Calls ready(), and ends a capture or verification, which need not see more, and with it the program.

        By then every graph has been replayed on random inputs, for which `randomize` is needed.
        """
        self.ready()
        if self._randomize is None:
            log.warning("complete(): Graphs has no randomize=, so no graph was tested on other inputs; the recording goes on")
            return
        try:
            _api.mark("complete")
        except _api.Error as error:
            log.warning("complete: %s", error)

    def stats(self) -> Dict[str, int]:
        """What has been restored and what it took (struct medusa_stats); {} outside of a restore."""
        return _api.stats()

    def close(self) -> None:
        """Drops the graphs; memory is given back with the last output. Nothing may still be launching them."""
        with self._lock:
            self._closed = True
            with _open_lock:
                _open.discard(self)
            for step in self._steps.values():
                step.close()
            self._steps.clear()
            self._owner = None

    def __enter__(self) -> "Graphs":
        return self

    def __exit__(self, *what: object) -> None:
        self.close()
