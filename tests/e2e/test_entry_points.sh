#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every function of cuda.h that is given addresses of device memory, or launches a kernel, is hooked by the recorder, or
# is listed here with the reason why it need not be.
. "$(dirname "$0")/lib.sh"

header=$(find -L /usr/local/cuda/include/cuda.h build/cuda/nvidia/cu13/include/cuda.h -maxdepth 0 2>/dev/null | head -n 1)
section "functions of ${header:-cuda.h} that may touch memory"
cat >"$work/walk.py" <<'END'
import re, sys

ASKS = "asks, and touches nothing"
HARMLESS = {
    "cuExternalMemoryGetMappedBuffer": "gives an address",
    "cuGraphAddMemFreeNode": "a graph with such a node is refused",
    "cuGraphMemFreeNodeGetParams": ASKS,
    "cuGraphMemcpyNodeGetParams": ASKS,
    "cuGraphMemsetNodeGetParams": ASKS,
    "cuGraphicsResourceGetMappedPointer": "gives an address",
    "cuLibraryGetManaged": "gives an address",
    "cuMemAdvise": "contents stay",
    "cuMemGetAccess": ASKS,
    "cuMemGetHandleForAddressRange": "gives a handle",
    "cuMemPrefetchAsync": "contents stay",
    "cuMemPrefetchBatchAsync": "contents stay",
    "cuMemRangeGetAttribute": ASKS,
    "cuMemRangeGetAttributes": ASKS,
    "cuStreamAttachMemAsync": "contents stay",
    "cuTexRefGetAddress": ASKS,
    "cuTexRefSetAddress": "for texture references, which no kernel has that CUDA 12 or newer has compiled",
    "cuTexRefSetAddress2D": "the same",
}
GIVEN = r"CUdeviceptr|CUDA_MEMCPY|CUDA_MEMSET|CUmemDecompress|CUstreamBatchMemOp|CUDA_LAUNCH|dptr|kernelParams"

header = re.sub(r"/\*.*?\*/", "", open(sys.argv[1]).read(), flags=re.S)
found = re.findall(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(([^;{]*?)\)\s*;", header)
renamed = dict(re.findall(r"#\s*define\s+(cu\w+)\s+(cu\w+)\s*$", header, re.M))
per_thread = {}
for base, kind, symbol in re.findall(r"#\s*define\s+(cu\w+)\s+__CUDA_API_(PTDS|PTSZ)\((\w+)\)", header):
    renamed[base] = symbol
    per_thread[base] = f"{symbol}_{kind.lower()}"
table = re.findall(r"^CU_ENTRY(?:_TS)?\((\w+), \w+, \d+, \w+, (\w+),", open("driver/cuda_api.def").read(), re.M)
hooked = {symbol for symbol, hook in table if hook in ("CAPTURE", "BOTH", "CORE")}
known = {symbol for symbol, _ in table}

# The names that a program is built with; what the header lists besides is an older version or a stream's variant of them.
bases = {name for name, given in found if re.search(GIVEN, given) or name.startswith("cuLaunch")}
bases = {re.sub(r"(_v\d+)?(_ptds|_ptsz)?$", "", name) for name in bases}
assert len(bases) > 90, f"only {len(bases)} functions were read"
for base in sorted(bases):
    wanted = {renamed.get(base, base), per_thread.get(base, renamed.get(base, base))}
    missing = sorted(wanted - hooked)
    if base in HARMLESS:
        if not missing:
            print(f"{base} is hooked, and listed as harmless")
    elif missing:
        print(f"{base}: no hook for {' and '.join(missing)}, and no reason why there is none")
for base in sorted(HARMLESS.keys() - bases):
    print(f"{base} is listed, and {sys.argv[1]} has no such function")
# Of what is hooked, older versions of the same layout are, too.
for name, given in found:
    base = re.sub(r"(_v\d+)?(_ptds|_ptsz)?$", "", name)
    if base in bases and base not in HARMLESS and name in known and name not in hooked:
        print(f"{name} is in the table without a hook")
END
checks=$((checks + 1))
python3 "$work/walk.py" "$header" >"$work/walk.out" 2>&1 && [ ! -s "$work/walk.out" ] ||
	fail "no function that nobody has looked at" "$(excerpt "$work/walk.out")"
finish
