#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ranks_launcher.sh RANKS CMD [ARG...]: starts CMD once for each rank, with the variables that torchrun sets, and passes SIGTERM
# on. When one rank fails, it ends the others and fails, too. RANK in a word of CMD is the rank.
#   LAUNCHER_BY=mpi      the variables of Open MPI
#   LAUNCHER_SKIP=N      rank N is not started
#   LAUNCHER_AT_N=WORDS  assignments, for rank N alone
#   LAUNCHER_LETS=1      the other ranks go on when one fails
#   LAUNCHER_BEFORE=CMD  is run first, and is no rank
set -u
ranks=$1
shift
pids=()
end() {
	for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null; done
}
trap 'end; wait; exit 143' TERM INT
[ -z "${LAUNCHER_BEFORE:-}" ] || bash -c "$LAUNCHER_BEFORE" || exit 9
for ((rank = 0; rank < ranks; rank++)); do
	[ "${LAUNCHER_SKIP:-}" != $rank ] || continue
	case ${LAUNCHER_BY:-torchrun} in
	torchrun)
		said=(RANK=$rank WORLD_SIZE="$ranks" LOCAL_RANK=$rank LOCAL_WORLD_SIZE="$ranks" MASTER_ADDR=127.0.0.1 MASTER_PORT=29500
			TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0)
		;;
	mpi) said=(OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE="$ranks" OMPI_COMM_WORLD_LOCAL_SIZE="$ranks" PMIX_NAMESPACE=job-1) ;;
	esac
	at=LAUNCHER_AT_$rank
	# shellcheck disable=SC2206 # words
	said+=(${!at:-})
	env "${said[@]}" "${@//RANK/$rank}" &
	pids+=($!)
done
result=0
for ((left = ${#pids[@]}; left > 0; left--)); do
	wait -n
	code=$?
	[ $code = 0 ] || [ $result != 0 ] || result=$code
	[ $code = 0 ] || [ -n "${LAUNCHER_LETS:-}" ] || end
done
exit $result
