#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `make deb`: which files the packages hold, with which rights, what they depend on, and that what they hold runs. `make check-packages`
# installs them in a clean root.
. "$(dirname "$0")/lib.sh"
touch "$work/begun"
for tool in dpkg-deb dpkg-shlibdeps; do
	command -v $tool >/dev/null || { echo "$tool is not there: no Debian packages here"; exit 77; }
done
[ "$MEDUSA_BUILD" = "$PWD/build" ] || { echo "packages are made of the plain build, not of $MEDUSA_BUILD"; exit 77; }

version=$(cat VERSION)
libraries=usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
architecture=$(dpkg-architecture -qDEB_HOST_ARCH)
run deb env DEB_MAINTAINER="Test <test@debian.org>" make --no-print-directory deb DEB="$work/deb"
assert_exit deb 0
assert_equal "what make deb says" "" "$(cat "$work/deb.err")"
so=$(readlink "$MEDUSA_BUILD/lib/libmedusa.so")
so=${so##*.}
packages="libmedusa$so libmedusa-sched$so libmedusa-dev medusa-tools"
for package in $packages; do
	file=$work/deb/${package}_${version}_$architecture.deb
	section "$package"
	assert_file "$file"
	run unpack dpkg-deb -R "$file" "$work/$package"
	assert_exit unpack 0
	dpkg-deb -c "$file" >"$work/$package.list"
	assert_equal "its version" "$version" "$(dpkg-deb -f "$file" Version)"
	assert_equal "its maintainer" "Test <test@debian.org>" "$(dpkg-deb -f "$file" Maintainer)"
	assert_equal "entries that are not root's" "" "$(awk '$2 != "root/root"' "$work/$package.list")"
	assert_equal "entries of strange rights" "" "$(awk '$1 !~ /^(drwxr-xr-x|-rw-r--r--|lrwxrwxrwx)$/ && $6 !~ /^.\/usr\/bin\/medusa-/' "$work/$package.list")"
	run sums env -C "$work/$package" md5sum --quiet -c DEBIAN/md5sums
	assert_exit sums 0
	for document in copyright changelog.gz; do assert_file "$work/$package/usr/share/doc/$package/$document"; done
	assert_contains <(zcat "$work/$package/usr/share/doc/$package/changelog.gz") "medusa ($version)"
done

section "each installed file is in one package"
run install make --no-print-directory install DESTDIR="$work/root" PREFIX=/usr LIBDIR="/$libraries"
assert_exit install 0
find "$work/root" \( -type f -o -type l \) -printf '%P\n' | sed 's|zsh/site-functions|zsh/vendor-completions|; s|^usr/share/man/.*|&.gz|' | sort >"$work/installed"
(cd "$work" && find $packages \( -type f -o -type l \) -path '*/usr/*' ! -path '*/usr/share/doc/*' -printf '%P\n') | sort >"$work/packed"
assert_equal "the difference between what is installed and what is packed" "" "$(diff "$work/installed" "$work/packed")"
files() { # package: its files but documents, without those of a folder
	(cd "$work/$1" && find usr \( -type f -o -type l \) ! -path 'usr/share/doc/*' | grep -vE "^($2)/" | sort)
}
for name in libmedusa libmedusa-sched; do
	assert_equal "files of $name$so" "$(printf "$libraries/$name.so.%s\n" "$so" "$version")" "$(files $name$so -)"
	assert_equal "link in $name$so" "$name.so.$version" "$(readlink "$work/$name$so/$libraries/$name.so.$so")"
	assert_equal "link in libmedusa-dev" "$name.so.$so" "$(readlink "$work/libmedusa-dev/$libraries/$name.so")"
	assert_equal "shlibs of $name$so" "$name $so $name$so (>= $version)" "$(cat "$work/$name$so/DEBIAN/shlibs")"
	assert_equal "symbols of $name$so" "$(grep -c @ "tests/lint/exports-$name.txt")" "$(grep -c '^ medusa_.*@' "$work/$name$so/DEBIAN/symbols")"
done
assert_contains "$work/libmedusa$so/DEBIAN/symbols" " medusa_graph_get@MEDUSA_0.2 0.2"
assert_equal "strange files of libmedusa-dev" "$(printf "$libraries/libmedusa%s.so\n" -sched "")" \
	"$(files libmedusa-dev "usr/include/medusa|$libraries/pkgconfig|usr/share/man/man3")"
assert_equal "strange files of medusa-tools" "$(printf "$libraries/libmedusa-%s.so\n" capture restore swap)" "$(files medusa-tools "usr/bin|$libraries/medusa/hostcuda|usr/share/(man/man[1578]|medusa|bash-completion|zsh/vendor-completions|fish)")"

section "libraries and commands"
objects=("$work"/libmedusa*"$so/$libraries"/*."$version" "$work/medusa-tools/$libraries"/*.so)
for library in "${objects[@]}"; do
	soname=${library##*/}
	assert_equal "soname of $soname" "[${soname/%.so.$version/.so.$so}]" "$(readelf -d "$library" | sed -n 's/.*(SONAME).*: //p')"
	assert_equal "rights of ${library##*/}" 644 "$(stat -c %a "$library")"
done
for program in "$work"/medusa-tools/usr/bin/*; do
	assert_equal "rights of ${program##*/}" 755 "$(stat -c %a "$program")"
	run version env -i "$program" --version
	assert_equal "its version" "${program##*/} $version" "$(cat "$work/version.out")"
done
assert_equal "debugging symbols and run paths into a build" "" \
	"$(readelf -SdW "${objects[@]}" "$work"/medusa-tools/usr/bin/* | grep -E '\.debug_info|R(UN)?PATH' | grep -v 'ORIGIN\]')"
for package in libmedusa$so libmedusa-sched$so medusa-tools; do
	assert_equal "trigger of $package" "activate-noawait ldconfig" "$(cat "$work/$package/DEBIAN/triggers")"
done

section "what they depend on"
depends() { dpkg-deb -f "$work/deb/$1_${version}_$architecture.deb" Depends; }
for package in libmedusa$so libmedusa-sched$so medusa-tools; do
	needed=$(readelf -d $(find "$work/$package/usr" -type f \( -name '*.so' -o -name '*.so.*' -o -path '*/bin/*' \)) | sed -n 's/.*(NEEDED).*\[\(lib[a-z]*\).*/\1/p' | sort -u)
	for library in $needed; do
		case $library in
		libc | libm | libdl | libpthread) library=libc ;;
		libcrypto) library=libssl ;; # one package has both
		esac
		assert_equal "$package's dependency on $library" 1 "$(depends $package | grep -cE "(^| )$library[-0-9]")"
	done
done
for name in libmedusa libmedusa-sched; do
	assert_equal "$name in the dependencies of libmedusa-dev" 1 "$(depends libmedusa-dev | grep -cF "$name$so (= $version)")"
done
assert_equal "commands that are older than the library" "libmedusa (<< 0.2), medusa-tools (<< $version)" \
	"$(dpkg-deb -f "$work/deb/libmedusa${so}_${version}_$architecture.deb" Breaks)"

section "what a package depends on that is built with these"
mkdir -p "$work/other/debian/other/usr/bin" "$work/other/dpkg/info"
printf 'Source: other\n\nPackage: other\nArchitecture: any\n' >"$work/other/debian/control"
printf '#include <medusa/medusa.h>\nint main(void) { return medusa_mode(); }\n' >"$work/other/other.c"
run other gcc -I"$work/libmedusa-dev/usr/include" -o "$work/other/debian/other/usr/bin/other" "$work/other/other.c" \
	-L"$work/libmedusa-dev/$libraries" -Wl,-rpath-link,"$work/libmedusa$so/$libraries" "$work/libmedusa$so/$libraries/libmedusa.so.$so"
assert_exit other 0
# As debian/shlibs.local would: the package is not installed here.
run depends env -C "$work/other" dpkg-shlibdeps -O -S"$work/libmedusa$so" debian/other/usr/bin/other
assert_exit depends 0
assert_contains "$work/depends.out" "libmedusa$so (>= 0.2)"

section "made twice, they are equal"
run again env DEB_MAINTAINER="Test <test@debian.org>" make --no-print-directory deb DEB="$work/again"
for file in "$work"/deb/*.deb; do assert_same_file "$file" "$work/again/${file##*/}"; done

section "a file that belongs to no package"
mkdir -p "$work/stranger/usr/strange" "$work/stranger/$libraries"
ln -s "libmedusa.so.$so" "$work/stranger/$libraries/libmedusa.so"
echo x >"$work/stranger/usr/strange/file"
run strange packaging/deb.sh "$work/stranger" "$work/strange"
assert_exit strange 1
assert_contains "$work/strange.err" "usr/strange/file belongs to no package"

if command -v lintian >/dev/null; then
	section "lintian"
	run lintian lintian --allow-root --fail-on error "$work"/deb/*.deb
	assert_exit lintian 0
	assert_equal "errors" "" "$(grep '^E:' "$work/lintian.out")"
else
	echo "no lintian here: skipped what it knows"
fi

section "commands find the libraries of the package"
PATH=$work/medusa-tools/usr/bin:$PATH
run_live live
capture packed
assert_exit packed 0
run_restored restored "$work/packed.medusa"
assert_same_output live restored
assert_restored restored $graphs 0
run preloaded medusa-restore "$work/packed.medusa" -- sh -c 'echo "$LD_PRELOAD"'
assert_contains "$work/preloaded.out" "$work/medusa-tools/$libraries/libmedusa-restore.so"
assert_equal "commands of the tree that were linked anew" "" "$(find "$MEDUSA_BUILD/bin" -type f -newer "$work/begun")"
finish
