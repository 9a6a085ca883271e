# SPDX-License-Identifier: Apache-2.0
"""An engine in Python without PyTorch: ctypes on the driver and on medusa/_api.py; prints one line of JSON for each graph.

Its graphs add `input` to `state`, batch times, and once more into memory of their own, whose double is the output.
"""
import ctypes
import json
import random
import sys
import time

from medusa import _api, _driver, swap

COUNT = 64
BYTES = 4 * COUNT
BATCHES = (1, 2)

cuda = _driver.library()


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name}: {_driver.error_name(code)}")


def begin():
    """A context, a stream and the kernels."""
    device, context, stream, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuStreamCreate", ctypes.byref(stream), 1)
    with open(sys.argv[1], "rb") as file:
        call("cuModuleLoadData", ctypes.byref(module), file.read())
    add = ctypes.c_void_p()
    call("cuModuleGetFunction", ctypes.byref(add), module, b"add")
    return stream, add


def allocate(size=BYTES):
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    call("cuMemsetD32_v2", address, 0, ctypes.c_size_t(size // 4))
    return address.value


def put(address, values):
    call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), (ctypes.c_float * COUNT)(*values), ctypes.c_size_t(BYTES))


def read(address):
    values = (ctypes.c_float * COUNT)()
    call("cuMemcpyDtoH_v2", values, ctypes.c_uint64(address), ctypes.c_size_t(BYTES))
    return list(values)


def launch(function, stream, *parameters):
    pointers = (ctypes.c_void_p * len(parameters))(*(ctypes.addressof(p) for p in parameters))
    call("cuLaunchKernel", function, 1, 1, 1, COUNT, 1, 1, 0, stream, pointers, None)


def capture(stream, add, state, inputs, batch):
    """A graph and where its output lies: in memory that nobody has bound."""
    between, output = allocate(), allocate()
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    word, count = ctypes.c_uint64, ctypes.c_int32(COUNT)
    call("cuStreamBeginCapture_v2", stream, 1)
    for _ in range(batch):
        launch(add, stream, word(state), word(state), word(inputs), count)
    launch(add, stream, word(between), word(state), word(inputs), count)
    launch(add, stream, word(output), word(between), word(between), count)
    call("cuStreamEndCapture", stream, ctypes.byref(graph))
    call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
    return executable, output


def take(stream, add, state, inputs, batch):
    """What an adapter does, in small: the graph, its output, its note, and why it is live."""
    try:
        executable = ctypes.c_void_p(_api.graph_get("decode", batch))
        address, size = _api.graph_output_get("decode", batch, 0)
        return executable, address, json.loads(_api.graph_note_get("decode", batch)), f"{size} bytes", True
    except _api.Error as error:
        why = str(error)
    executable, output = capture(stream, add, state, inputs, batch)
    note = {"batch": batch, "shape": [COUNT]}
    by_handle = executable.value if batch > 1 else 0  # 0: what this thread has instantiated last
    _api.graph_output(by_handle, 0, output, BYTES)
    _api.graph_note(by_handle, json.dumps(note).encode())
    if "refuse" in sys.argv and batch == 2:
        _api.graph_refuse(by_handle, "the test says so")
    _api.graph_label(by_handle, "decode", batch)
    return executable, output, note, why, False


def sleep_once():
    """Under medusa-swap run: the memory goes, and comes back, graphs and their memory included."""
    end = time.monotonic() + 20
    while not swap.status()["swappable"]:
        if time.monotonic() > end:
            sys.exit("medusa-swap run knows of no memory")
        time.sleep(0.01)
    went, there = swap.out()["bytes"], swap.status()["processes_out"]
    print(json.dumps({"went": went, "processes_out": there, "came": swap.in_(verify=True)["bytes"]}))


def main():
    stream, add = begin()
    fact = next((argument[5:] for argument in sys.argv if argument.startswith("fact=")), "as it was")
    try:
        _api.fingerprint_add("code", fact)
    except _api.Error:  # if the artifact is open by now, it is refused at once, else when graphs are asked for
        pass
    state, inputs = allocate(), allocate()
    _api.bind("state", state, BYTES, _api.STATE)
    _api.bind("input", inputs, BYTES, _api.INPUT)
    _api.graph_want("decode", BATCHES[::-1])
    steps = [take(stream, add, state, inputs, batch) for batch in BATCHES]
    _api.graph_scratch(inputs, BYTES)  # it is bound, and stays so
    _api.mark("ready")
    if "sleeps" in sys.argv:
        sleep_once()
    launch_graph = _driver.launcher()
    for batch, (executable, output, note, why, restored) in zip(BATCHES, steps):
        numbers = random.Random(batch)
        before = [numbers.randrange(1000) for _ in range(COUNT)]
        added = [numbers.randrange(1000) for _ in range(COUNT)]
        put(state, before)
        put(inputs, added)
        call("cuStreamSynchronize", stream)
        code = launch_graph(executable, stream)
        call("cuStreamSynchronize", stream)
        after = [a + batch * b for a, b in zip(before, added)]
        doubled = [2 * (a + b) for a, b in zip(after, added)]
        equal = code == 0 and read(state) == after and read(output) == doubled
        print(json.dumps({"batch": batch, "restored": restored, "equal": equal, "note": note, "why": why}))
    print(json.dumps({"mode": _api.mode(), "stats": _api.stats()}))
    _api.release()


main()
