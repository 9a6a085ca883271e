#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Packs this tree, built, for a machine with a GPU that cannot build it: no headers, no network.
#
#	make all tests && tests/gpu/pack.sh FOLDER
#
# FOLDER/medusa.tar.xz has the tracked files of HEAD, what was built (stripped) with the shared libraries that it needs and that are not
# glibc's, and site/ with the Python packages of models/. There, with Python 3.12 or later alone:
#
#	python3 -c 'import tarfile; tarfile.open("medusa.tar.xz").extractall("medusa", filter="tar")'
#	cd medusa && export COMMIT=$(cat COMMIT) PYTHONPATH=$PWD/site && tests/gpu/run.sh
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
folder=${1:?a folder for medusa.tar.xz is wanted: tests/gpu/pack.sh FOLDER}
command -v patchelf >/dev/null || { echo "tests/gpu/pack.sh: patchelf is not installed" >&2; exit 4; }
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/medusa
mkdir "$tree"
git archive HEAD | tar -x -C "$tree"
git rev-parse --short=8 HEAD >"$tree/COMMIT"
for part in bin lib models tests/subjects tests/images tests/gpu/runtime tests/doors tests/faults; do
	[ -e "$build/$part" ] || continue
	mkdir -p "$(dirname "$tree/build/$part")"
	cp -a "$build/$part" "$tree/build/$part"
done
find "$tree/build" -name '*.[ad]' -delete

elfs() { # in a folder, not the images
	find "$1" -type f | while read -r file; do
		[ "$(head -c 4 "$file" | tail -c 3)" != ELF ] || [[ $file == *.cubin ]] || echo "$file"
	done
}
# Libraries of ours find theirs beside themselves; those of this machine are given the same.
elfs "$tree/build" | while read -r file; do
	ldd "$file" 2>/dev/null | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p'
done | sort -u | while read -r library; do
	case ${library##*/} in
	ld-linux* | libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | libresolv.so* | libutil.so* | libgcc_s.so* | libstdc++.so* | \
		libcuda.so* | libcudart.so* | libnvidia* | libmedusa*) continue ;;
	esac
	cp -L "$library" "$tree/build/lib/"
	patchelf --set-rpath "\$ORIGIN" "$tree/build/lib/${library##*/}" # else it looks for its own elsewhere
done
elfs "$tree/build/bin" | while read -r file; do
	patchelf --set-rpath "\$ORIGIN/../lib" "$file"
done
elfs "$tree/build" | xargs strip --strip-unneeded 2>/dev/null || true # device images have nothing to strip
for package in models/torch models/vllm; do
	python3 -m pip install -q --no-deps --no-compile --target "$tree/site" "$tree/$package" >&2
	rm -rf "$tree/$package/build" "$tree/$package"/*.egg-info
done
# A wheel's scripts name this machine's Python.
rm -rf "$tree/site/bin"
tar -C "$tree" -c . | xz -6 -T2 >"$folder/medusa.tar.xz"
du -h "$folder/medusa.tar.xz"
