#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what the build needs: deps.sh [--fuzz] [--cluster] [--check] BUILD. With --check only says what is missing
# (exit 1 if anything is), with --fuzz what `make fuzz` needs too, with --cluster what `make demo-cluster` does. MEDUSA_DEPS=auto installs, =never only says what to install and
# fails; without it, deps.sh asks on a terminal, and installs where there is none (a container, a pipeline: CI is set).
set -u
check=0 fuzz=0 cluster=0
[ "${1:-}" = --fuzz ] && { fuzz=1; shift; }
[ "${1:-}" = --cluster ] && { cluster=1; shift; }
[ "${1:-}" = --check ] && { check=1; shift; }
build=${1:-build}

packages=""
need_package() { # pkg-config name or header, Debian package
	case $1 in
	*.h) echo "#include <$1>" | ${CC:-gcc} -E -x c - >/dev/null 2>&1 && return ;;
	*) pkg-config --exists "$1" 2>/dev/null && return ;;
	esac
	packages="$packages $2"
}
command -v pkg-config >/dev/null 2>&1 || packages="$packages pkg-config"
${CC:-gcc} --version >/dev/null 2>&1 || packages="$packages gcc libc6-dev" # CC may have arguments, or be "ccache gcc"
need_package libelf libelf-dev
need_package libdw libdw-dev
need_package libzstd libzstd-dev
need_package msgpack libmsgpack-dev
need_package criterion libcriterion-dev
need_package xxhash.h libxxhash-dev
need_package sodium.h libsodium-dev
need_package yaml-0.1 libyaml-dev
need_package jansson libjansson-dev
need_package libpcre2-8 libpcre2-dev
need_package libevent_openssl libevent-dev
need_package openssl libssl-dev
need_package sqlite3 libsqlite3-dev
need_package http_parser.h libhttp-parser-dev
command -v clang-format >/dev/null 2>&1 || packages="$packages clang-format"
command -v mandoc >/dev/null 2>&1 || packages="$packages mandoc"
command -v abidiff >/dev/null 2>&1 || packages="$packages abigail-tools" # compares the interface with the last release, in lint
# For make deb, where there are Debian packages at all.
! command -v dpkg >/dev/null 2>&1 || command -v dpkg-shlibdeps >/dev/null 2>&1 || packages="$packages dpkg-dev"
command -v git >/dev/null 2>&1 || packages="$packages git" # lint rules, and their test
command -v python3 >/dev/null 2>&1 || packages="$packages python3"
# The runtime of clang holds libFuzzer and the sanitizers; one that links is the one that is meant.
if [ $fuzz = 1 ]; then
	echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }' |
		"$(command -v clang-14 || echo clang)" -fsanitize=fuzzer,address -x c - -o /dev/null 2>/dev/null ||
		packages="$packages clang-14 libclang-rt-14-dev"
fi
if [ $cluster = 1 ]; then
	command -v etcd >/dev/null 2>&1 || packages="$packages etcd-server"
	command -v etcdctl >/dev/null 2>&1 || packages="$packages etcd-client"
fi

cuda=""
for header in "${CUDA_HOME:-/usr/local/cuda}/include/cuda.h" "$build/cuda/nvidia/cu13/include/cuda.h"; do
	[ -f "$header" ] && cuda=$header
done
# For the CUDA headers, the demo's model and make wheel.
python3 -m pip --version >/dev/null 2>&1 || packages="$packages python3-pip"

if [ $check = 1 ]; then
	[ -n "$packages" ] && echo "missing packages:$packages"
	[ -z "$cuda" ] && echo "missing CUDA headers"
	[ -z "$packages" ] && [ -n "$cuda" ]
	exit
fi

[ -n "$packages" ] || [ -z "$cuda" ] || exit 0
headers="the CUDA headers (PyPI package nvidia-cuda-runtime, into $build/cuda)"

refuse() { # nothing is installed: what to do
	[ -z "$packages" ] || echo "deps: to install what is missing: apt-get install$packages" >&2
	[ -n "$cuda" ] || echo "deps: to have the CUDA headers: install a CUDA 13 toolkit, set CUDA_HOME, or allow to fetch $headers" >&2
	echo "deps: or let this command install it: MEDUSA_DEPS=auto" >&2
	exit 1
}

ask() { # on a terminal, once for everything
	[ -z "$packages" ] || echo "deps: these Debian packages are missing:$packages"
	[ -n "$cuda" ] || echo "deps: missing, too: $headers"
	printf 'deps: install all this now? [Y/n] '
	read -r answer || answer=n
	case $answer in "" | [Yy]*) ;; *) refuse ;; esac
}

case ${MEDUSA_DEPS:-} in
auto) ;;
never) refuse ;;
"") [ -n "${CI:-}" ] || [ ! -t 0 ] || ask ;;
*)
	echo "deps: MEDUSA_DEPS is \"$MEDUSA_DEPS\"; it may be auto or never" >&2
	exit 2
	;;
esac

if [ -n "$packages" ]; then
	echo "deps: installing$packages"
	as_root=""
	[ "$(id -u)" = 0 ] || as_root=sudo
	command -v apt-get >/dev/null 2>&1 || {
		echo "deps: this system has no apt-get; install the equivalents of:$packages" >&2
		exit 1
	}
	$as_root apt-get update -qq &&
		DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $packages >/dev/null ||
		{ echo "deps: apt-get could not install:$packages" >&2; exit 1; }
fi
if [ -z "$cuda" ]; then
	echo "deps: no CUDA toolkit found; fetching the CUDA headers (PyPI package nvidia-cuda-runtime)"
	mkdir -p "$build/cuda" "$build/download" &&
		python3 -m pip download -q --disable-pip-version-check --no-deps -d "$build/download" 'nvidia-cuda-runtime>=13.0,<14' &&
		python3 -m zipfile -e "$build"/download/nvidia_cuda_runtime-*.whl "$build/cuda" ||
		{ echo "deps: could not get the CUDA headers; install a CUDA 13 toolkit, or set CUDA_HOME" >&2; exit 1; }
fi
