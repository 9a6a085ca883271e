#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The project's own rules that a pattern can check.
set -u
cd "$(dirname "$0")/../.."
failed=0

# Each of these files opens what is not named by others, or what it must hold under that name:
own_opens=(':!hostcuda/ipc.c' # /proc/PID/fd/N
	':!hostcuda/shared_devices.c'       # what processes use of the devices they share
	':!tools/medusa-inspect.c'  # --from-text, which may be a pipe
	':!tools/family.c' ':!swap/pool_file.c' # /proc/PID/stat
	':!swap/spill_file.c'        # a file without a name, in a folder that its user names
	':!worker/core/host_pool.c' ':!worker/engine/process_facts.c' # /proc/PID
	':!worker/engine/keeper.c' ':!worker/engine/keeper_process.c' # a folder and a lock of its own; /dev/null
	':!worker/engine/template_fork.c' ':!worker/engine/process_spawn.c' # /dev/null
	':!worker/engine/cgroup.c' ':!worker/engine/cgroup_folder.c' # /proc/PID, and files of cgroups
	':!tools/verify_report.c'   # a report of its own
	':!tools/workplace.c' ':!tools/preload.c' ':!tools/folder.c' # folders of their own, and a lock
	':!tools/cache_pack.c' ':!tools/cache_tree.c' ':!tools/cache_write.c' # files below a folder, which no link leads out of
	':!tools/swap_freeze.c' ':!tools/swap_process.c' # files of a cgroup, and of /proc/PID
	':!worker/cluster/content_part.c'    # files of its own store, which it fills
	':!worker/core/engine_log.c' ':!worker/core/log_process.c' ':!worker/core/log_writer.c' # logs that are appended to, in a folder of the daemon's own
	':!tools/options.c')        # standard descriptors that the caller has closed
own_maps=(':!swap/pool_file.c' ':!ranks/rounds.c') # a memfd that is sealed against being cut off

forbid() { # why, pattern, paths...
	local why=$1 pattern=$2 found
	shift 2
	found=$(git grep -nP "$pattern" -- "$@")
	[ -z "$found" ] && return
	echo "$why:"
	echo "$found"
	failed=1
}

inside='(^|[^A-Za-z0-9_."])'
forbid 'inside another process nothing may end it' \
	"$inside(exit|abort|_exit|_Exit|quick_exit|assert)\s*\(" 'capture/*.c' 'restore/*.c' 'ranks/*.c' 'swap/*.c' 'driver/*.c' 'kvprofile/*.c' 'api/*.c' 'base/*.c' 'format/*.c'
forbid 'inside another process nothing may write to its stdout' \
	"$inside(printf|puts|putchar|vprintf)\s*\(|[^A-Za-z0-9_]stdout[^A-Za-z0-9_.]" 'capture/*.c' 'restore/*.c' 'ranks/*.c' 'swap/*.c' 'driver/*.c' 'kvprofile/*.c' 'api/*.c'
forbid 'unbounded string functions' "$inside(strcpy|strcat|sprintf|vsprintf|gets)\s*\(" '*.c' '*.h' ':!tests' ':!bench'
forbid 'arrays grow through base/array.h, which checks for overflow and leaves the old one valid' \
	"$inside(realloc|reallocarray)\s*\(" '*.c' '*.h' ':!base/array.[ch]' ':!tests/faults/inject.c'
forbid 'random numbers are those of base/splitmix.h' '94d049bb133111eb' '*.c' '*.h' '*.cu' ':!base/splitmix.h' ':!tests/test_splitmix.c'
forbid 'the golden ratio of 64 bits is MD_RANDOM_STEP (base/splitmix.h)' '9e3779b97f4a7c15' '*.c' '*.h' ':!base/splitmix.h' ':!tests' \
	':!driver/device_hash*.c' ':!format/codec/columns_pointers.c' # docs/format.md has it there
forbid 'a graph that is no longer ready leaves the statistics in md_restore_graph_unmake' \
	'graphs_restored--' 'restore/*.c' ':!restore/graph_state.c'
forbid 'out of memory is said as "out of memory for ...", with what was to have it' \
	'"([^";]*[^A-Za-z";])?(no memory (for|to) |[Oo]ut of memory(?! for ))' '*.c' ':!tests' ':!bench' ':!base/status.c' \
	':!*names.c'
forbid 'JSON is parsed and printed by json/tree_text.h: jansson itself leaves characters out when memory fails' \
	'\bjson_(load|dump)\w*\s*\(' '*.c' '*.h' ':!json/tree_text.c' ':!tests'
forbid 'what others may call is MD_EXPORT (base/export.h)' 'visibility\("default"\)' '*.c' '*.h' ':!base/export.h'
forbid 'threads are started by base/thread.h, so that none of ours takes a signal of the engine' \
	'\bpthread_create\s*\(' '*.c' '*.h' ':!base/thread.[ch]' ':!tests' ':!bench'
forbid 'a variable of each thread is _Thread_local, as C11 has it' '\b__thread\b' '*.c' '*.h'
forbid 'write sizeof(x), with parentheses' '\bsizeof\s+(?!\()[^\s]|\bsizeof\s+\(' '*.c' '*.h'
# Libraries of ours are loaded into set-user-ID programs, too.
forbid 'read the environment with secure_getenv: a set-user-ID program must not obey whoever started it' \
	'\bgetenv\s*\(' '*.c' '*.h' ':!tests' ':!bench' ':!models'
forbid 'switches of the environment are read by medusa/_settings.py (vLLM: switches.py), which names what is neither on nor off' \
	'os\.environ\.get\("MEDUSA_[A-Z_]+"[^)]*\)\s*(==|!=|(not )?in\b)' 'models/*.py' ':!models/*/tests'
forbid 'open files through base/file.h, which neither waits nor follows what was prepared' \
	"$inside(open|open64|openat|creat|fopen|fopen64|freopen|mkstemp|mkostemp|mkdtemp|tmpfile)\s*\((?!\"/proc/)" \
	'*.c' '*.h' ':!tests' ':!bench' ':!base/file.c' ':!base/descriptor.[ch]' "${own_opens[@]}"
forbid 'open files through base/file.h: these are for the log, the trace under its lock, a folder, and /proc' \
	'\bmd_descriptor_(open|read_stream)\s*\((?!\"/proc/)' '*.c' ':!tests' ':!base' ':!format/trace/part_file.c' \
	':!capture/session/owner.c' ':!restore/restore_early.c' ':!ranks/meeting.c'
forbid 'read files, do not map them: who cuts one off would end the engine' \
	'\b(mmap|mmap64)\s*\((?!.*MAP_ANONYMOUS)' '*.c' '*.h' ':!tests' ':!bench' ':!hostcuda' "${own_maps[@]}"
forbid 'read files, do not map them: hostcuda maps only memory that it made' '\bMAP_PRIVATE, fd\b' 'hostcuda/*.c'
# The words are in two parts, so that this file does not find itself.
forbid 'unfinished work' '\b(TO''DO|FIX''ME|XX''X|HA''CK)\b' ':!*.txt'
forbid 'a comment that opens with a pronoun: name what it is about' \
	'/\* (It|Its|They|Their|Those|This one|That one)\b' '*.c' '*.h'
forbid 'a banner is one line, which ends the comment' '^/\* ---- (.*-|[^-]*)$' '*.c' '*.h'
forbid 'paths of one machine' '/(work|home|root)/[a-z]' ':!tests/lint/rules.sh'

# One process for all files: three for each file took ten seconds.
bare=$(git ls-files -z '*.c' '*.h' '*.S' '*.cu' '*.cuh' '*.sh' '*.py' '*.def' '*.[1-9]' Makefile | xargs -0r awk '
	FNR == 1 && /^\.so / { fine[FILENAME] } # a link of manual pages is one line
	FNR <= 2 && /SPDX-License-Identifier: Apache-2\.0/ { fine[FILENAME] }
	FNR > 2 { nextfile }
	END { for (i = 1; i < ARGC; i++) if (!(ARGV[i] in fine)) print ARGV[i] ": its first line is no SPDX line" }')
long=$(git ls-files -z '*.c' '*.h' | xargs -0r wc -l | awk '$2 != "total" && $1 > 700 { print $2 " has " $1 " lines: divide it" }')
[ -z "$bare$long" ] || {
	echo "$bare${bare:+${long:+$'\n'}}$long"
	failed=1
}
duplicates=$(git ls-files '*.c' '*.h' ':!models' ':!tests/images' | sed 's|.*/||' | sort | uniq -d)
if [ -n "$duplicates" ]; then
	echo "file names that are not unique: $duplicates"
	failed=1
fi
types=$(git grep -hoP '^(struct|enum|union) \w+(?= \{)' -- '*.h' ':!tests' | sort | uniq -d)
if [ -n "$types" ]; then
	echo "types that headers define twice: $types"
	failed=1
fi
# What tests use of Criterion must be there for the thread sanitizer, too, which is never built here.
missing=$(comm -23 <(git grep -hoP '\bcr_(assert|expect)\w*(?=\()' -- 'tests/*.c' 'tests/*.h' | sort -u) <(sed -n 's/^#define \(cr_[a-z_]*\)(.*/\1/p' tests/threads/criterion/criterion.h 2>/dev/null | sort -u))
if [ -n "$missing" ]; then
	echo "tests/threads/criterion/criterion.h lacks what tests use: $missing"
	failed=1
fi
exit $failed
