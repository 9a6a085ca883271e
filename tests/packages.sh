#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Debian packages in a clean root: installed with what they depend on, tried, removed, and nothing is left. `make check-packages`;
# needs root, debootstrap and a Debian mirror. The bare root is kept under build/download.
. "$(dirname "$0")/e2e/lib.sh"
suite=${DEB_SUITE:-bookworm} mirror=${DEB_MIRROR:-http://deb.debian.org/debian}
bare=$PWD/build/download/root-$suite.tar.gz
root=$work/clean
run_limit=900
trap 'rm -rf --one-file-system "$work"' EXIT

need() { echo "check-packages: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || need "only root can enter another root: sudo make check-packages"
command -v debootstrap >/dev/null || need "debootstrap is not there: apt-get install debootstrap"

if [ ! -f "$bare" ]; then
	echo "making a bare root of Debian $suite (once)"
	run bootstrap debootstrap --variant=minbase "$suite" "$work/bare" "$mirror"
	[ $code = 0 ] || need "debootstrap failed: $(tail -n 3 "$work/bootstrap.out" "$work/bootstrap.err")"
	mkdir -p "${bare%/*}"
	tar -C "$work/bare" --one-file-system -czf "$bare.part" . && mv "$bare.part" "$bare"
	rm -rf "$work/bare"
fi
mkdir "$root"
tar -C "$root" -xzf "$bare"
# A name server, and nothing starts in there.
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
for settings in /etc/apt/apt.conf.d/*[Pp]roxy*; do [ ! -f "$settings" ] || cp "$settings" "$root/etc/apt/apt.conf.d/"; done
within() { # name of the run, command...: in the clean root, with processes of its own
	local name=$1
	shift
	run "$name" unshare --mount --pid --fork --mount-proc="$root/proc" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root \
		LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive LD_LIBRARY_PATH=/opt/try/lib/hostcuda HOSTCUDA_THREADS=4 chroot "$root" "$@"
}
everything() { # what there is, but for the books of apt, dpkg and the loader
	(cd "$root" && find . -xdev ! -path './proc/*' ! -path './var/lib/dpkg/*' ! -path './var/lib/apt/*' ! -path './var/log/*' \
		! -path './var/cache/*' ! -path './etc/ld.so.cache' ! -path './opt/*' | sort)
}

section "dependencies"
mkdir -p "$root/opt/packages" "$root/opt/try/models" "$root/opt/try/lib"
cp build/deb/*.deb "$root/opt/packages/"
needed=$(for file in build/deb/*.deb; do dpkg-deb -f "$file" Depends; done | tr ',' '\n' | sed 's/^ *//; s/ .*//' | grep -v '^libmedusa' | sort -u)
within update apt-get update -qq
assert_exit update 0
within dependencies apt-get install -y -qq --no-install-recommends $needed
assert_exit dependencies 0
everything >"$work/before"

section "installed"
within install sh -c 'exec dpkg --install /opt/packages/*.deb' # with exactly these dependencies
assert_exit install 0
within audit dpkg --audit
assert_equal "what dpkg complains of" "" "$(cat "$work/audit.out")"
within verify dpkg --verify libmedusa0 libmedusa-sched0 libmedusa-dev medusa-tools
assert_equal "files that differ from their package" "" "$(grep -v '/usr/share/\(doc\|man\)/' "$work/verify.out")"
within loader sh -c '/sbin/ldconfig -p | grep libmedusa.so.0'
assert_exit loader 0

section "tried: an engine is captured, proven and restored"
cp -r build/models/llama "$root/opt/try/models/"
cp -r build/lib/hostcuda "$root/opt/try/lib/"
cp models/recipes/tiny.yaml "$root/opt/try/"
# The engine is no part of a package; what it is linked with besides comes along.
for library in libelf.so.1 libdw.so.1; do
	! readelf -d build/models/llama/llama-engine build/lib/hostcuda/libcuda.so.1 | grep -q "\[$library\]" ||
		cp -L "$(${CC:-gcc} -print-file-name="$library")" "$root/opt/try/lib/hostcuda/"
done
engine_in_root=(/opt/try/models/llama/llama-engine --recipe /opt/try/tiny.yaml --batches 1,2,4 --max-kv-bytes 1000000 --tokens 6 --quiet)
within live "${engine_in_root[@]}"
assert_exit live 0
within capture medusa-capture -o /opt/try/tiny.medusa -- "${engine_in_root[@]}"
assert_exit capture 0
within proven medusa-verify /opt/try/tiny.medusa -- "${engine_in_root[@]}"
assert_exit proven 0
within restored medusa-restore /opt/try/tiny.medusa -- "${engine_in_root[@]}" --report /opt/try/report.json
assert_exit restored 0
assert_same_file "$work/live.out" "$work/restored.out"
cp "$root/opt/try/report.json" "$work/restored.json"
assert_restored restored $graphs 0
within simulate medusa-simulate --node /usr/share/medusa/nodes/torpor-v100.yaml --functions /usr/share/medusa/functions/torpor-models.yaml \
	--trace torpor --count 8 --duration 1min --quiet
assert_exit simulate 0

section "a program compiled against it, with this machine's compiler"
printf '#include <medusa/medusa.h>\nint main(void) { return medusa_mode(); }\n' >"$work/program.c"
export PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/pkgconfig
run compile gcc $(PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 pkg-config --cflags medusa) -o "$root/opt/try/program" \
	"$work/program.c" $(PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 pkg-config --libs medusa)
assert_exit compile 0
within program /opt/try/program
assert_exit program 0

section "removed, and nothing is left"
within remove dpkg --purge medusa-tools libmedusa-dev libmedusa-sched0 libmedusa0
assert_exit remove 0
everything >"$work/after"
assert_equal "what is there besides, or no more" "" "$(diff "$work/before" "$work/after")"
within gone /opt/try/program
assert_equal "a program without the library" 127 "$code"
finish
