#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Each folder includes only itself and what stands before it: base < ranks < {capture, restore}; base < driver < format < kvprofile < api < {capture, analyze,
# restore, swap < backbone} < tools; base < scheduler < simulator < worker < tools; base < {http, jansson} < worker; backbone < worker. hostcuda and models stand outside; tests and bench may include everything.
set -u
cd "$(dirname "$0")/../.."
failed=0

check() { # folder, the folders it may include
	local folder=$1 file line included
	shift
	while IFS= read -r line; do
		file=${line%%:*}
		included=${line#*\"}
		included=${included%%\"*}
		case " $* $folder " in
		*" ${included%%/*} "*) ;;
		*)
			echo "$file includes $included: $folder may include only $*"
			failed=1
			;;
		esac
	done < <(git grep -E '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' -- "$folder/*.c" "$folder/*.h")
}

check base
check driver base
check format base driver
check kvprofile base driver format medusa
check api base driver format kvprofile medusa
check ranks base
check capture base ranks driver format kvprofile api medusa
for engine_side in analyze swap; do
	check $engine_side base driver format kvprofile api medusa
done
check restore base ranks driver format kvprofile api medusa
check backbone base driver api swap medusa
check scheduler base medusa
check simulator base driver format kvprofile scheduler medusa
check http base
check json base
check worker base backbone format http json scheduler simulator swap medusa
check tools base ranks http json scheduler simulator worker driver format kvprofile api capture analyze restore swap backbone medusa
check include medusa scheduler.h # beside the header that includes it
check hostcuda base driver
check models base driver format http json medusa hostcuda
exit $failed
