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
for tool in dpkg-deb dpkg-shlibdeps dpkg-architecture strip; do
	command -v $tool >/dev/null || {
		echo "deb: $tool is not there; on Debian: apt-get install dpkg-dev binutils" >&2
		exit 1
	}
done
architecture=$(dpkg-architecture -qDEB_HOST_ARCH)
folder=usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
packages=(libmedusa libmedusa-dev medusa-tools)

package_of() { # path below the root
	case $1 in
	$folder/pkgconfig/*.pc | usr/include/* | usr/share/man/man3/*) echo libmedusa-dev ;;
	$folder/libmedusa*.so) echo libmedusa ;;
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
	libmedusa)
		cat <<-END
			Section: libs
			Multi-Arch: same
			Description: restores the CUDA graphs of LLM engines at a cold start: libraries
			 An engine's CUDA graphs are captured once, at build time, and restored in each
			 fresh process without warm-up. This package holds the library that engines are
			 linked with, the two that medusa-capture and medusa-restore preload, and the
			 scheduler of a worker node.
		END
		;;
	libmedusa-dev)
		cat <<-END
			Section: libdevel
			Multi-Arch: same
			Depends: libmedusa (= $version)
			Description: restores the CUDA graphs of LLM engines at a cold start: headers
			 Headers, pkg-config files and manual pages for engines that bind their buffers
			 and take restored graphs, and for routers that use the scheduler.
		END
		;;
	medusa-tools)
		cat <<-END
			Section: utils
			Depends: libmedusa (= $version)
			Description: restores the CUDA graphs of LLM engines at a cold start: commands
			 medusa-capture, -analyze, -inspect, -verify, -sign, -restore and -simulate,
			 with manual pages, completion in shells, and sample nodes for the simulator.
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
	for file in "$tree"/libmedusa/"$folder"/*.so "$tree"/medusa-tools/"$folder"/medusa/hostcuda/* "$tree"/medusa-tools/usr/bin/*; do
		strip --strip-unneeded --remove-section=.comment --remove-section=.note "$file"
		[[ $file != *.so && $file != *.so.1 ]] || chmod 644 "$file" # as Debian's libraries are
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
	(cd "$out" && find "debian/$1" -type f \( -name '*.so' -o -path '*/bin/*' \) -exec dpkg-shlibdeps -O {} +) |
		sed -n 's/^shlibs:Depends=//p'
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
	(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$control/md5sums"
	[ "$1" != libmedusa ] || echo 'activate-noawait ldconfig' >"$control/triggers"
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
