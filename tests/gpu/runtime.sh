#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The CUDA runtime itself, static and shared, and two copies in one process, in a program that binds nothing.
set -u
cd "$(dirname "$0")/../.."
. tests/e2e/device.sh
nvcc=${NVCC:-$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)}
out=$build/tests/gpu/runtime
mkdir -p "$out"
compile() { # output, more flags...
	local to=$1
	shift
	"$nvcc" -O2 -Iinclude -gencode "arch=compute_${GPU_ARCH:-90},code=sm_${GPU_ARCH:-90}" -o "$out/$to" tests/gpu/runtime_subject.cu "$@" || exit 1
}
# What was built elsewhere and carried here is used as it is, with its copy of the runtime.
compile_all() {
	local program=(-DOWN_BIAS=0.5f "-L$build/lib" -lmedusa -Xlinker '-rpath=$ORIGIN/../../../lib' -ldl) library=(-DOWN_BIAS=2.5f -DAS_LIBRARY -shared -Xcompiler -fPIC)
	compile static.bin -cudart static "${program[@]}"
	compile shared.bin -cudart shared "${program[@]}"
	compile static.so -cudart static "${library[@]}"
	compile shared.so -cudart shared "${library[@]}"
	cp -L "$(dirname "$(dirname "$nvcc")")"/lib64/libcudart.so.[0-9]* "$out" 2>/dev/null
	printf '%s\n' "$source" >"$out/made-from"
}
source=$(cat include/medusa/medusa.h tests/gpu/runtime_subject.cu tests/gpu/runtime.sh | sha256sum)
if [ "$(cat "$out/made-from" 2>/dev/null)" != "$source" ]; then
	[ -n "$nvcc" ] || { echo "skipped runtime: no nvcc on this machine"; exit 77; }
	rm -f "$out/made-from"
	compile_all
fi
if [ "$MEDUSA_DEVICE" != gpu ]; then
	echo "skipped runtime: built, but there is no NVIDIA GPU with a driver on this machine"
	exit 77
fi
export PATH=$PWD/$build/bin:$PATH LD_LIBRARY_PATH=$PWD/$out${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
failed=0
for program in static shared; do
	for library in "" static.so shared.so; do
		name=$program-with-${library:-nothing}
		subject=("$out/$program.bin" "${library:+$out/$library}")
		timeout 60 "${subject[@]}" >"$out/$name.live" 2>"$out/$name.log" &&
			timeout 60 medusa-capture -o "$out/$name.medusa" -- "${subject[@]}" >>"$out/$name.log" 2>&1 &&
			timeout 60 medusa-restore "$out/$name.medusa" -- "${subject[@]}" >"$out/$name.restored" 2>"$out/$name.err" &&
			cmp "$out/$name.live" "$out/$name.restored" && [ "$(grep -c '^graph [123] restored' "$out/$name.err")" = 3 ] &&
			printf '  pass  runtime/%s\n' "$name" && continue
		failed=$((failed + 1))
		printf '  FAIL  runtime/%s\n' "$name"
		tail -n 8 "$out/$name.log" "$out/$name.err"
	done
done
echo "runtime: $((6 - failed)) of 6 ways captured and restored"
[ $failed = 0 ]
