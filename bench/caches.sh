#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures what unpacking the caches of an artifact takes, beside copying the same files, and what they cost who does not
# want them. FOLDER: where files are written (default: memory, /dev/shm). ROUNDS: 9.
set -eu
cd "$(dirname "$0")/.."
MEDUSA_DEVICE=host
. tests/e2e/device.sh
export PATH=$PWD/$build/bin:$PATH
folder=$(mktemp -d "${FOLDER:-/dev/shm}/medusa-bench.XXXXXX")
trap 'rm -rf "$folder"' EXIT
rounds=${ROUNDS:-9}
engine=("$build/models/llama/llama-engine" --recipe models/recipes/tiny.yaml --batches 1,2,4 --tokens 4 --quiet)
unset TRITON_CACHE_DIR
export HOME=$folder/home
cache=$HOME/.triton/cache
mkdir -p "$cache"

# As compilers leave it: many small files, some large ones; a third of the bytes does not compress, the rest halves.
python3 - "$cache" <<'END'
import os, random, sys
random.seed(1)
for i in range(4000):
    folder = os.path.join(sys.argv[1], "k%04d" % (i % 800))
    os.makedirs(folder, exist_ok=True)
    size = 20000000 if i % 1000 == 7 else random.randrange(80000)
    words = [random.randbytes(8) for _ in range(64)]
    with open(os.path.join(folder, "%d.cubin" % i), "wb") as out:
        out.write(b"".join(random.choices(words, k=size // 8)) if i % 3 else random.randbytes(size))
END
medusa-capture -o "$folder/plain.medusa" --single -- "${engine[@]}" >/dev/null 2>&1
medusa-capture -o "$folder/caches.medusa" --single --with-cache "$cache" -- "${engine[@]}" >/dev/null 2>&1
files=$(find "$cache" -type f | wc -l) bytes=$(find "$cache" -type f -printf '%s\n' | awk '{ s += $1 } END { print s }')
stored=$(medusa-inspect --json "$folder/caches.medusa" | python3 -c 'import json, sys
print([s["stored"] for s in json.load(sys.stdin)["sections"] if s["name"] == "cache_data"][0])')

seconds() { # FILE COMMAND...
	local file=$1 start=$EPOCHREALTIME
	shift
	"$@" >/dev/null 2>&1
	python3 -c "print($EPOCHREALTIME - $start)" >>"$file"
}
for _ in $(seq "$rounds"); do
	rm -rf "$folder/to" "$folder/copy"
	seconds "$folder/unpack" medusa-restore "$folder/caches.medusa" --cache-dir TRITON_CACHE_DIR="$folder/to" -- true
	seconds "$folder/again" medusa-restore "$folder/caches.medusa" --cache-dir TRITON_CACHE_DIR="$folder/to" -- true
	seconds "$folder/copied" cp -r "$cache" "$folder/copy"
	for _ in 1 2 3; do
		seconds "$folder/without" medusa-restore "$folder/plain.medusa" -- true
		seconds "$folder/refused" medusa-restore "$folder/caches.medusa" --no-caches -- true
	done
done
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
row() { python3 -c "s = $(median "$folder/$2"); b = $3; print('| $1 | %.3f s | %s |' % (s, '%.0f MB/s' % (b / s / 1e6) if b else ''))"; }
echo "$files files with $bytes bytes, $stored in the artifact; written into ${FOLDER:-/dev/shm}; medians of $rounds"
echo
echo "| what | time | rate |"
echo "|---|---:|---:|"
row "unpacked by medusa-restore, and \`true\` started" unpack "$bytes"
row "the same files copied by \`cp -r\`" copied "$bytes"
row "all there already: compared with their hashes" again "$bytes"
row "\`true\` started with an artifact without caches" without 0
row "\`true\` started with \`--no-caches\`" refused 0
echo
echo "Opening an artifact and reading its graphs, as a cold start does (medians of 200):"
echo
"$build/bench/open_times" 200 "$folder/plain.medusa" "$folder/caches.medusa" | sed "s|$folder/||; s|^|    |"
