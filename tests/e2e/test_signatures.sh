#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Signed artifacts at a cold start: whom the policy trusts is restored, all else is refused by file and key, and runs live.
. "$(dirname "$0")/lib.sh"
unset MEDUSA_TRUSTED_KEYS

section "keys"
run build medusa-sign keygen -o "$work/build.key"
assert_exit build 0
run other medusa-sign keygen -o "$work/other.key"
assert_equal "mode of the secret key" 600 "$(stat -c %a "$work/build.key")"
assert_same_file "$work/build.out" "$work/build.key.pub"
assert_lacks "$work/build.key" "$(cut -d: -f2 "$work/build.key.pub")"
run twice medusa-sign keygen -o "$work/build.key"
assert_exit twice 3
assert_contains "$work/twice.err" "$work/build.key: is there already"
build=$(cat "$work/build.key.pub") other=$(cat "$work/other.key.pub")
{ echo "# who may build for us"; echo "$build the build machine"; } >"$work/trusted"

section "an artifact, signed"
run_live live
capture plain
assert_exit plain 0
run sign medusa-sign sign "$work/plain.medusa" --key "$work/build.key" -o "$work/signed.medusa"
assert_exit sign 0
run check medusa-sign check "$work/signed.medusa"
assert_exit check 0
assert_contains "$work/check.out" "signed by $build"
run trusted medusa-sign check "$work/signed.medusa" --trusted "$work/trusted"
assert_exit trusted 0
run unsigned medusa-sign check "$work/plain.medusa"
assert_exit unsigned 1
assert_contains "$work/unsigned.err" "not signed"
run stranger medusa-sign check "$work/signed.medusa" --trusted "$work/other.key.pub"
assert_exit stranger 1
assert_contains "$work/stranger.err" "signed by $build, which is not in $work/other.key.pub"
MEDUSA_TRUSTED_KEYS=$work/other.key.pub run stranger medusa-sign check "$work/signed.medusa"
assert_exit stranger 1
run secret medusa-sign sign "$work/plain.medusa" --key "$work/build.key.pub"
assert_exit secret 3
assert_contains "$work/secret.err" "this is the public key"

section "signed in place: owner, mode and links stay"
in_place() { # name: plain.medusa is copied there, signed through a link to it, and looked at
	cp "$work/plain.medusa" "$work/$1.medusa"
	chmod 640 "$work/$1.medusa"
	[ "$(id -u)" != 0 ] || chown 12:34 "$work/$1.medusa"
	owned=$(stat -c '%a %u %g' "$work/$1.medusa")
	mkdir -p "$work/links"
	ln -sf "../$1.medusa" "$work/links/$1"
}
in_place whole
run whole medusa-sign sign "$work/links/whole" --key "$work/build.key"
assert_exit whole 0
assert_equal "the link" "../whole.medusa" "$(readlink "$work/links/whole")"
assert_equal "mode and owner" "$owned" "$(stat -c '%a %u %g' "$work/whole.medusa")"
assert_same_file "$work/signed.medusa" "$work/whole.medusa"
in_place other
run other_file medusa-sign sign "$work/plain.medusa" --key "$work/build.key" -o "$work/links/other"
assert_exit other_file 0
assert_equal "mode and owner" "$owned" "$(stat -c '%a %u %g' "$work/other.medusa")"
assert_same_file "$work/signed.medusa" "$work/other.medusa"
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	in_place foreign # in a folder where others may make files
	mkdir -m 777 "$work/open"
	mv "$work/foreign.medusa" "$work/open/foreign.medusa"
	chmod 644 "$work/open/foreign.medusa" "$work/build.key"
	chmod 755 "$work"
	run foreign setpriv --reuid=56 --regid=56 --clear-groups "$(command -v medusa-sign)" sign "$work/open/foreign.medusa" --key "$work/build.key"
	chmod 600 "$work/build.key"
	assert_exit foreign 4
	assert_contains "$work/foreign.err" "cannot get the owner 12:34"
	assert_same_file "$work/plain.medusa" "$work/open/foreign.medusa"
fi
run device medusa-sign sign "$work/plain.medusa" --key "$work/build.key" -o /dev/null
assert_exit device 4
assert_contains "$work/device.err" "/dev/null: exists and is not a regular file"
assert_equal "/dev/null" "character special file" "$(stat -c %F /dev/null)"

section "a key that comes in pieces through a pipe"
cp "$work/plain.medusa" "$work/piped.medusa"
run piped bash -c '(for ((i = 0; i < ${#2}; i += 7)); do printf %s "${2:i:7}"; sleep 0.01; done) | medusa-sign sign "$1" --key /dev/stdin' \
	bash "$work/piped.medusa" "$(cat "$work/build.key")"
assert_exit piped 0
assert_same_file "$work/signed.medusa" "$work/piped.medusa"

section "the text twin of a signed artifact"
run text medusa-inspect --text "$work/signed.medusa"
run back medusa-inspect --from-text "$work/text.out" -o "$work/back.medusa"
assert_exit back 0
assert_same_file "$work/signed.medusa" "$work/back.medusa"
sed 's/multiprocessors=[0-9]*/multiprocessors=132/' "$work/text.out" >"$work/edited.txt"
run edited medusa-inspect --from-text "$work/edited.txt" -o "$work/edited.medusa"
assert_exit edited 3
assert_contains "$work/edited.err" "the signature of $build does not match what is written"
assert_no_file "$work/edited.medusa"

section "without a policy"
run_restored no_policy "$work/signed.medusa"
assert_same_output live no_policy
assert_restored no_policy $graphs 0
# Set means set: a deployment whose variable came out empty must not be one without a policy.
for of in plain signed; do
	MEDUSA_TRUSTED_KEYS= run_restored "empty_$of" "$work/$of.medusa"
	assert_refused_whole live "empty_$of" "MEDUSA_TRUSTED_KEYS is set but empty, so no key is trusted"
done
MEDUSA_TRUSTED_KEYS= run empty_check medusa-sign check "$work/signed.medusa"
assert_exit empty_check 2
assert_contains "$work/empty_check.err" "the list of trusted keys has an empty name"

section "with one"
export MEDUSA_TRUSTED_KEYS=$work/trusted
run_restored signed "$work/signed.medusa"
assert_same_output live signed
assert_restored signed $graphs 0
run_restored plain "$work/plain.medusa"
assert_refused_whole live plain "$work/plain.medusa: not signed, and only keys in $work/trusted are trusted"
run foreign medusa-sign sign "$work/signed.medusa" --key "$work/other.key" -o "$work/foreign.medusa"
assert_exit foreign 0
run_restored foreign "$work/foreign.medusa"
assert_refused_whole live foreign "$work/foreign.medusa: signed by $other, which is not in $work/trusted"
run verify medusa-verify "$work/signed.medusa" -- "${engine[@]}"
assert_exit verify 0
run verify medusa-verify "$work/plain.medusa" -- "${engine[@]}"
assert_exit verify 1
capture under_policy # what it makes is its own: nobody can have signed it yet
assert_exit under_policy 0
run proof medusa-inspect --json "$work/under_policy.medusa"
assert_count "$work/proof.out" '"proof": "replay"' $graphs

section "a list of keys that is no such list"
for list in "$work/nowhere" "$work/build.key" "$work"; do
	MEDUSA_TRUSTED_KEYS=$list run_restored bad_list "$work/signed.medusa"
	assert_refused_whole live bad_list "MEDUSA_TRUSTED_KEYS: $list: "
done

section "flipped bits"
python3 - "$work/signed.medusa" "$work" <<'END'
import struct, sys
data = open(sys.argv[1], "rb").read()
count, = struct.unpack_from("<I", data, 32)
table, = struct.unpack_from("<Q", data, 40)
places = {"header": 20, "table": table + 30}
for row in range(table, table + 64 * count, 64):
    name = data[row:row + 16].rstrip(b"\0").decode()
    offset, stored = struct.unpack_from("<QQ", data, row + 16)
    places[name] = offset + stored // 2
    if name == "signature":
        places.update(key=offset + 9, value=offset + 41, count=offset + 4)
for name, at in places.items():
    bad = bytearray(data)
    bad[at] ^= 4
    open(f"{sys.argv[2]}/flipped_{name}.medusa", "wb").write(bad)
END
assert_equal "flipped files" 17 "$(ls "$work"/flipped_*.medusa | wc -l)"
for file in "$work"/flipped_*.medusa; do
	name=$(basename "$file" .medusa)
	section "$name"
	if [ "$name" = flipped_image_data ]; then
		resolve=stored run_restored "$name" "$file"
		assert_refused live "$name" "image "
	else
		run_restored "$name" "$file"
		assert_refused_whole live "$name" "$file: "
	fi
	run check medusa-sign check "$file"
	assert_exit check 3
done

section "bytes that an attacker put there, with every checksum made right"
python3 - "$work/signed.medusa" "$work/forged.medusa" <<'END' || { echo "(libxxhash is not there: forgery not tried)"; finish; }
import ctypes, ctypes.util, struct, sys
xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
xxhash.XXH3_64bits.restype = ctypes.c_uint64
checksum = lambda b: struct.pack("<Q", xxhash.XXH3_64bits(bytes(b), ctypes.c_size_t(len(b))))
data = bytearray(open(sys.argv[1], "rb").read())
count, = struct.unpack_from("<I", data, 32)
table, = struct.unpack_from("<Q", data, 40)
for row in range(table, table + 64 * count, 64):
    if data[row:row + 16].rstrip(b"\0") == b"kernels":
        offset, stored = struct.unpack_from("<QQ", data, row + 16)
        data[offset + stored // 2] ^= 1
        data[row + 40:row + 48] = checksum(data[offset:offset + stored])
data[56:64] = checksum(data[:56] + data[table:table + 64 * count])
open(sys.argv[2], "wb").write(data)
END
run_restored forged "$work/forged.medusa"
assert_refused_whole live forged "wrong: the file differs from what $build signed"
finish
