#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Debian packages out of what `make install` put into a folder: deb.sh STAGE OUT, called by `make deb`.
# Which file belongs to which package is said here, once; a file that belongs to none is an error.
set -eu
cd "$(dirname "$0")/.."
stage=$1 out=$2 tree=$2/debian # where dpkg-shlibdeps expects packages that are being made
version=$(cat VERSION)
maintainer=${DEB_MAINTAINER:-Medusa maintainers <medusa@localhost.localdomain>}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y VERSION)}
for tool in dpkg-deb dpkg-shlibdeps dpkg-gensymbols dpkg-architecture strip objdump; do
	command -v $tool >/dev/null || {
		echo "deb: $tool is not there; on Debian: apt-get install dpkg-dev binutils" >&2
		exit 1
	}
done
architecture=$(dpkg-architecture -qDEB_HOST_ARCH)
folder=usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
link=$(readlink "$stage/$folder/libmedusa.so") || {
	echo "deb: $stage/$folder/libmedusa.so is no link: fill $stage by make install, as make deb does" >&2
	exit 1
}
so=${link##*.} # the number in the sonames
packages=("libmedusa$so" "libmedusa-sched$so" libmedusa-dev medusa-tools)

package_of() { # path below the root
	case $1 in
	$folder/pkgconfig/*.pc | usr/include/* | usr/share/man/man3/*) echo libmedusa-dev ;;
	$folder/libmedusa.so | $folder/libmedusa-sched.so) echo libmedusa-dev ;; # links, which only a linker follows
	$folder/libmedusa.so.$so*) echo "libmedusa$so" ;;
	$folder/libmedusa-sched.so.$so*) echo "libmedusa-sched$so" ;;
	$folder/libmedusa-capture.so | $folder/libmedusa-restore.so | $folder/libmedusa-swap.so) echo medusa-tools ;;
	$folder/medusa/hostcuda/*) echo medusa-tools ;; # a driver that the commands put before engines where there is no GPU
	usr/bin/* | usr/share/man/* | usr/share/medusa/* | usr/share/bash-completion/* | usr/share/zsh/* | usr/share/fish/*) echo medusa-tools ;;
	*)
		echo "deb: $1 belongs to no package: packaging/deb.sh must name one" >&2
		return 1
		;;
	esac
}

describe() { # package: section, architecture rules, what it depends on besides libraries, and a description
	case $1 in
	"libmedusa$so") # the commands' libraries define what this one does: never fewer functions
		cat <<-END
			Section: libs
			Multi-Arch: same
			Breaks: libmedusa (<< 0.2), medusa-tools (<< $version)
			Replaces: libmedusa (<< 0.2)
			Description: restores the CUDA graphs of LLM engines at a cold start: library
			 An engine's CUDA graphs are captured once, at build time, and restored in each
			 fresh process without warm-up. This package holds the library that engines are
			 linked with; medusa-tools holds the commands.
		END
		;;
	"libmedusa-sched$so")
		cat <<-END
			Section: libs
			Multi-Arch: same
			Breaks: libmedusa (<< 0.2)
			Replaces: libmedusa (<< 0.2)
			Description: schedules the functions of a GPU worker node: library
			 Decides which function of a worker node runs when, on which GPU, and with whose
			 memory: events in, actions out. It needs no GPU and no CUDA.
		END
		;;
	libmedusa-dev)
		cat <<-END
			Section: libdevel
			Multi-Arch: same
			Depends: libmedusa$so (= $version), libmedusa-sched$so (= $version)
			Breaks: libmedusa (<< 0.2)
			Replaces: libmedusa (<< 0.2)
			Description: restores the CUDA graphs of LLM engines at a cold start: headers
			 Headers, links for a linker, pkg-config files and manual pages for engines that
			 bind their buffers and take restored graphs, and for routers that use the
			 scheduler.
		END
		;;
	medusa-tools)
		cat <<-END
			Section: utils
			Breaks: libmedusa (<< 0.2)
			Replaces: libmedusa (<< 0.2)
			Description: restores the CUDA graphs of LLM engines at a cold start: commands
			 medusa-capture, -analyze, -inspect, -verify, -sign, -restore and -simulate,
			 with the libraries that they preload, manual pages, completion in shells, and
			 sample nodes for the simulator.
		END
		;;
	esac
}

divide() { # every file of the stage into the folder of its package
	local path package
	(cd "$stage" && find . \( -type f -o -type l \) -printf '%P\n' | sort) >"$out/files"
	while IFS= read -r path; do
		package=$(package_of "$path")
		install -d -m 755 "$tree/$package/${path%/*}"
		cp -P --preserve=mode "$stage/$path" "$tree/$package/$path"
	done <"$out/files"
	# Debian's zsh looks there.
	mv "$tree/medusa-tools/usr/share/zsh/site-functions" "$tree/medusa-tools/usr/share/zsh/vendor-completions"
}

shrink() { # debugging symbols stay in the build folder
	local file
	find "$tree" -type f \( -name '*.so' -o -name '*.so.*' -o -path '*/bin/*' \) | while IFS= read -r file; do
		strip --strip-unneeded --remove-section=.comment --remove-section=.note "$file"
		[[ $file == */bin/* ]] || chmod 644 "$file" # as Debian's libraries are
	done
	find "$tree" -path '*/usr/share/man/*' -type f -exec gzip -9n {} +
	find "$tree" -path '*/usr/share/man/*' -type l | while IFS= read -r file; do
		ln -s "$(readlink "$file").gz" "$file.gz" && rm "$file"
	done
}

add_documents() { # package
	local doc=$tree/$1/usr/share/doc/$1
	install -d -m 755 "$doc"
	cat >"$doc/copyright" <<-END
		Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
		Upstream-Name: medusa

		Files: *
		Copyright: 2026 The Medusa authors
		License: Apache-2.0
		 On Debian systems, the whole text of the Apache License, version 2.0, is in
		 /usr/share/common-licenses/Apache-2.0.
	END
	printf 'medusa (%s) unstable; urgency=medium\n\n  * Version %s.\n\n -- %s  %s\n' "$version" "$version" "$maintainer" \
		"$(date -R -u -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
	chmod 644 "$doc"/*
}

shared_libraries() { # package; the packages whose libraries its programs need, with their versions
	printf 'Source: medusa\n\nPackage: %s\nArchitecture: any\n' "$1" >"$tree/control"
	(cd "$out" && find "debian/$1" -type f \( -name '*.so' -o -name '*.so.*' -o -path '*/bin/*' \) -exec dpkg-shlibdeps -O {} +) |
		sed -n 's/^shlibs:Depends=//p'
}

# What packages that are linked with a library depend on: a function came with the release that names its version node.
write_symbols() { # package, file of the library
	local soname
	soname=$(objdump -p "$2" | sed -n 's/^ *SONAME *//p')
	{
		printf '%s %s #MINVER#\n* Build-Depends-Package: libmedusa-dev\n' "$soname" "$1"
		objdump -p "$2" | sed -n 's/^[0-9]* 0x00 0x[0-9a-f]* \(MEDUSA_.*_\|MEDUSA_\)\([0-9][0-9.]*\)$/ (symver)\1\2 \2/p'
	} >"$out/symbols"
	env -u LD_LIBRARY_PATH dpkg-gensymbols -c4 -q -p"$1" -v"$version" -P"$tree/$1" -I"$out/symbols" -O"$tree/$1/DEBIAN/symbols"
	rm "$out/symbols"
	printf '%s %s %s (>= %s)\n' "${soname%.so.*}" "${soname##*.}" "$1" "$version" >"$tree/$1/DEBIAN/shlibs"
}

write_control() { # package
	local root=$tree/$1 control=$tree/$1/DEBIAN libraries depends
	mkdir -m 755 "$control"
	libraries=$([ "$1" = libmedusa-dev ] || shared_libraries "$1")
	[ "$1" = libmedusa-dev ] || [ -n "$libraries" ] || { echo "deb: dpkg-shlibdeps found no dependency of $1" >&2; return 1; }
	depends=$(describe "$1" | sed -n 's/^Depends: //p')
	{
		printf 'Package: %s\nSource: medusa\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' "$1" "$version" "$architecture" "$maintainer"
		printf 'Installed-Size: %s\nPriority: optional\n' "$(du -sk --apparent-size "$root/usr" | cut -f 1)"
		printf 'Depends: %s\n' "$depends${depends:+${libraries:+, }}$libraries"
		describe "$1" | grep -v '^Depends: '
	} >"$control/control"
	case $1 in libmedusa*[0-9]) write_symbols "$1" "$root/$folder/${1%"$so"}.so.$version" ;; esac
	(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$control/md5sums"
	[ "$1" = libmedusa-dev ] || echo 'activate-noawait ldconfig' >"$control/triggers"
	chmod 644 "$control"/*
}

rm -rf "$out"
mkdir -p "$tree"
umask 022
divide
shrink
for package in "${packages[@]}"; do
	add_documents "$package"
	write_control "$package"
	find "$tree/$package" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference -d "@$SOURCE_DATE_EPOCH" {} +
	dpkg-deb --build --root-owner-group -Zxz "$tree/$package" "$out" >/dev/null
done
rm -r "$tree" "$out/files"
(cd "$out" && printf '%s\n' *.deb)
