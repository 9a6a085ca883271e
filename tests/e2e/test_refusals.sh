#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What cannot be proven right is refused with its reason, and the engine runs as it always did.
. "$(dirname "$0")/lib.sh"

edited() { # name, sed program: $work/NAME.medusa is the artifact with its text twin edited; it must really differ
	sed "$2" "$work/twin.out" >"$work/$1.txt"
	checks=$((checks + 1))
	! cmp -s "$work/twin.out" "$work/$1.txt" || fail "an edited text twin $1.txt" "no change by '$2'"
	run "edit_$1" medusa-inspect --from-text "$work/$1.txt" -o "$work/$1.medusa"
	assert_exit "edit_$1" 0
}

changed_start() { # name, reason, more arguments of the engine: another configuration than the artifact's
	local name=$1 reason=$2
	shift 2
	run_live "live_$name" "$@"
	run_restored "$name" "$work/whole.medusa" "$@"
	assert_refused_quietly "live_$name" "$name" "$reason"
}

# The engine asked for graphs that the artifact does not hold: nothing was refused, the reason goes to the engine.
assert_refused_quietly() { # expected run, run, reason
	assert_exit "$2" 0
	assert_same_output "$1" "$2"
	assert_restored "$2" 0 "$(number "$1" graphs_live)"
	assert_contains "$work/$2.json" "$3"
	assert_count "$work/$2.err" "the artifact has no graph" 1
}

section "the artifact"
run_live live
capture whole
assert_exit whole 0
run twin medusa-inspect --text "$work/whole.medusa"
run_restored restored "$work/whole.medusa"
assert_restored restored $graphs 0

section "another machine"
while IFS='|' read -r name program reason; do
	edited "$name" "$program"
	run_restored "$name" "$work/$name.medusa"
	assert_refused_whole live "$name" "$reason"
	assert_contains "$work/$name.json" '"from_profile": false'
done <<'END'
device_name|s/device_name="hostcuda"/device_name="NVIDIA H200"/|device name: artifact has NVIDIA H200, this machine hostcuda
driver|s/driver_version=13000/driver_version=12040/|driver version: artifact has 12040, this machine 13000
compute|s/compute_major=9/compute_major=10/|compute capability (major): artifact has 10, this machine 9
multiprocessors|s/multiprocessors=[0-9]*/multiprocessors=132/|multiprocessors: artifact has 132
memory|s/device_memory=8589934592/device_memory=8589934591/|device memory in bytes: artifact has 8589934591, this machine 8589934592
END
HOSTCUDA_MEM=6G run_live live_6g
HOSTCUDA_MEM=6G run_restored restored_6g "$work/whole.medusa"
assert_refused_whole live_6g restored_6g "device memory in bytes: artifact has 8589934592, this machine 6442450944"

section "another library: same names, other content"
cp -a "$MEDUSA_BUILD/models/llama" "$work/engine"
mkdir -p "$work/lib" && cp -a "$MEDUSA_BUILD"/lib/*.so* "$work/lib"
engine_before=("${engine[@]}")
export LD_LIBRARY_PATH=$work/engine:$work/lib:$LD_LIBRARY_PATH
engine[0]=$work/engine/llama-engine
capture copied
assert_exit copied 0
run_live live_copied
run_restored restored_copied "$work/copied.medusa"
assert_restored restored_copied $graphs 0
# One byte of the image that this device uses, in its notes: the kernels compute the same, but this is not proven.
python3 - "$work/engine/libllama-gemm.so" "$MEDUSA_BUILD/models/llama/gemm_kernels.host.so" <<'END'
import sys
library, image = bytearray(open(sys.argv[1], "rb").read()), open(sys.argv[2], "rb").read()
at = library.index(image) + image.index(b"GNU\0", image.index(b"GNU\0") - 16) + 4
library[at] ^= 1
open(sys.argv[1] + ".new", "wb").write(library)
END
cp --remove-destination "$work/engine/libllama-gemm.so.new" "$work/engine/libllama-gemm.so"
run_live live_relinked
assert_same_output live_copied live_relinked
run_restored relinked "$work/copied.medusa"
assert_refused live_relinked relinked "gemm_rows"
assert_contains "$work/relinked.err" "libllama-gemm.so"
rm "$work/engine/libllama-gemm.so.new"
engine=("${engine_before[@]}")

section "an image of the artifact that is not what its hash says"
edited image_hash '/^image .*stored=1/s/hash=[0-9a-f]*/hash=00000000000000000000000000000000/'
resolve=stored run_restored image_hash "$work/image_hash.medusa"
assert_refused live image_hash "stored image fails its hash check"

section "a kernel that is not there, or has another layout"
edited no_kernel 's/name="llama_silu_mul"/name="llama_silu_gone"/'
run_restored no_kernel "$work/no_kernel.medusa"
assert_refused live no_kernel "llama_silu_gone"
edited layout '/name="llama_embed"/,/^kernel/s/param offset=16 size=8/param offset=16 size=4/'
run_restored layout "$work/layout.medusa"
assert_refused live layout "kernel llama_embed: parameter 2 of the loaded kernel has 8 bytes at offset 16, the artifact's has 4 at offset 16"

section "bindings"
edited no_binding 's/binding name="tokens"/binding name="tokenz"/'
run_restored no_binding "$work/no_binding.medusa"
assert_refused live no_binding 'binding "tokenz" (512 bytes) was not made'
# Its allocation must have the same size, or the file says two things.
slots=$(grep '^binding ' "$work/twin.out" | grep -n 'name="slots"' | cut -d: -f1)
edited binding_size "s/binding name=\"slots\" size=512/binding name=\"slots\" size=1024/
	/^alloc class=1 .*binding=$((slots - 1)) /s/ size=512/ size=1024/"
run_restored binding_size "$work/binding_size.medusa"
assert_refused live binding_size 'binding "slots": artifact has 1024 bytes, the engine 512'
run_live live_kv --kv-blocks 64
run_restored kv "$work/whole.medusa" --kv-blocks 64
assert_refused live_kv kv 'binding "kv": artifact has 999424 bytes, the engine 524288'

section "another configuration of the engine"
sed 's/layers: 2/layers: 3/' models/recipes/tiny.yaml >"$work/deeper.yaml"
sed 's/intermediate_size: 160/intermediate_size: 192/' models/recipes/tiny.yaml >"$work/wider.yaml"
changed_start deeper "the artifact has no graph" --recipe "$work/deeper.yaml"
changed_start wider "the artifact has no graph" --recipe "$work/wider.yaml"
changed_start context "the artifact has no graph" --max-context 64
changed_start batches "the artifact has no graph" --batches 1,2,8
assert_equal "live graphs of batches 1, 2, 8" 3 "$(number batches graphs_live)"

section "a batch size more than the artifact has, below the largest"
run_live live_more --batches 1,2,3,4
run_restored more "$work/whole.medusa" --batches 1,2,3,4
assert_exit more 0
assert_same_output live_more more
assert_restored more 3 1
assert_count "$work/more.err" "the artifact has no graph" 1

section "an artifact that is cut off"
size=$(stat -c %s "$work/whole.medusa")
damaged() { # name, what medusa-inspect must say, what the restore must say
	run "inspect_$1" medusa-inspect "$work/$1.medusa"
	assert_exit "inspect_$1" 3
	assert_contains "$work/inspect_$1.err" "$2"
	assert_count "$work/inspect_$1.err" "$work/$1.medusa" 1
	run_restored "$1" "$work/$1.medusa"
	assert_refused_whole live "$1" "${3:-$work/$1.medusa: }"
}
# Bytes of an image are read by who needs them: a process that has the image loaded does not, and is right without.
damaged_image() { # name
	run "inspect_$1" medusa-inspect "$work/$1.medusa"
	assert_exit "inspect_$1" 3
	assert_contains "$work/inspect_$1.err" 'section "image_data" at offset'
	resolve=stored run_restored "$1" "$work/$1.medusa"
	assert_refused live "$1" 'section "image_data": image '
}
read -r images_start images_end < <(python3 - "$work/whole.medusa" <<'END'
import struct, sys
data = open(sys.argv[1], "rb").read()
count, = struct.unpack_from("<I", data, 32)
table, = struct.unpack_from("<Q", data, 40)
for row in range(table, table + 64 * count, 64):
    if data[row:row + 16].rstrip(b"\0") == b"image_data":
        offset, stored = struct.unpack_from("<QQ", data, row + 16)
        print(offset, offset + stored)
END
)
step=$(((size - 700) / 24))
for bytes in 0 1 7 8 12 40 63 64 65 100 400 700 $(seq 701 "$step" $((size - 1))) $((size - 1)); do
	head -c "$bytes" "$work/whole.medusa" >"$work/cut.medusa"
	section "an artifact cut off after $bytes of $size bytes"
	damaged cut "cut.medusa: header at offset "
done
section "an artifact with bytes behind its end"
{ cat "$work/whole.medusa"; echo more; } >"$work/longer.medusa"
damaged longer "byte"

section "an artifact with flipped bits"
flip() { # offset
	python3 - "$work/whole.medusa" "$work/flipped.medusa" "$1" <<'END'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[int(sys.argv[3])] ^= 0x10
open(sys.argv[2], "wb").write(data)
END
}
for at in 0 5 8 12 16 32 36 40 48 56 64 80 90 112 200 500 703 $(seq 704 $((step + 1)) $((size - 1))) $((size - 1)); do
	section "an artifact with byte $at flipped"
	flip "$at"
	if [ "$at" -ge "$images_start" ] && [ "$at" -lt "$images_end" ]; then damaged_image flipped; else damaged flipped ""; fi
done
section "a flipped byte's section and offset are named"
python3 - "$work/whole.medusa" "$work" <<'END'
import struct, sys
data = open(sys.argv[1], "rb").read()
count, = struct.unpack_from("<I", data, 32)
table, = struct.unpack_from("<Q", data, 40)
for i in range(count):
    row = table + 64 * i
    name = data[row:row + 16].rstrip(b"\0").decode()
    offset, stored = struct.unpack_from("<QQ", data, row + 16)
    bad = bytearray(data)
    bad[offset + stored // 2] ^= 1
    open(f"{sys.argv[2]}/section_{name}.medusa", "wb").write(bad)
END
assert_equal "damaged sections" 11 "$(ls "$work"/section_*.medusa | wc -l)"
for file in "$work"/section_*.medusa; do
	name=$(basename "$file" .medusa)
	case $name in
	section_image_data) damaged_image "$name" ;;
	section_contents | section_graphs | section_pointers) damaged "$name" "${name#section_}" "graphs: $file: " ;; # the stage that reads them
	*) damaged "$name" "${name#section_}" "open: $file: " ;;
	esac
	checks=$((checks + 1))
	grep -Eq 'offset [0-9]+|at [0-9]+|byte [0-9]+' "$work/inspect_$name.err" || fail "an offset in the message" "$(excerpt "$work/inspect_$name.err")"
done

section "an artifact of a newer version"
newer() { # name, offset, value: the u32 there, with the checksum of the header made right
	python3 - "$work/whole.medusa" "$work/$1.medusa" "$2" "$3" "$(command -v xxhsum || true)" <<'END'
import ctypes, ctypes.util, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
struct.pack_into("<I", data, int(sys.argv[3]), int(sys.argv[4]))
table, = struct.unpack_from("<Q", data, 40)
count, = struct.unpack_from("<I", data, 32)
xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
xxhash.XXH3_64bits.restype = ctypes.c_uint64
covered = bytes(data[:56] + data[table:table + 64 * count])
struct.pack_into("<Q", data, 56, xxhash.XXH3_64bits(covered, ctypes.c_size_t(len(covered))))
open(sys.argv[2], "wb").write(data)
END
}
if newer version 12 99 2>/dev/null; then
	damaged version "version"
	newer feature 16 2048
	damaged feature "feature"
	newer younger 8 99
	run_restored younger "$work/younger.medusa"
	assert_restored younger $graphs 0
else
	echo "(libxxhash is not there: header of a newer version not tried)"
fi

section "no artifact, or none at all behind the name"
run_restored absent "$work/absent.medusa"
assert_exit absent 3
assert_contains "$work/absent.err" "absent.medusa"
run_restored folder "$work"
assert_exit folder 3
MEDUSA_ARTIFACT=/nonexistent LD_PRELOAD=$MEDUSA_BUILD/lib/libmedusa-restore.so run_live preloaded
assert_refused_whole live preloaded "/nonexistent"
LD_PRELOAD=$MEDUSA_BUILD/lib/libmedusa-restore.so run_live unset
assert_refused_whole live unset "MEDUSA_ARTIFACT is not set"
run_live failing --tokens nonsense
expected=$code
run_restored failing "$work/whole.medusa" --tokens nonsense
assert_exit failing "$expected"
finish
