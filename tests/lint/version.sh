#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The file VERSION is the one place that states the version; everything else takes it from there.
set -u
cd "$(dirname "$0")/../.."
failed=0
version=$(cat VERSION)

complain() { # what is wrong, the lines
	[ -z "$2" ] && return
	echo "$1:"
	echo "$2"
	failed=1
}

[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || complain 'VERSION holds no three numbers with dots between' "$version"
# Recorded results name the version that they were measured with, the changelog names all; samples of tests are of any.
complain 'the version is stated outside of VERSION: take it from there (docs/packaging.md says how)' \
	"$(git grep -nwF -e "$version" -- ':!VERSION' ':!CHANGELOG.md' ':!tests' ':!bench/results')"
complain 'a version of its own: take it from VERSION (docs/packaging.md says how)' \
	"$(git grep -nE '^((__)?version(__)? *= *["'\'']|VERSION *[:?]?= *[0-9]|#define (MEDUSA|MD)_VERSION)' -- ':!tests')"
complain 'the footer of a manual page is not "medusa @VERSION@"' \
	"$(grep -n '^\.TH ' docs/man/*.[1-9] | grep -v '"medusa @VERSION@"')"
# The changelog begins with the release that VERSION names; once it is out, its date stands there.
released='^## \[?'${version//./\\.}'\]? - (unreleased|[0-9]{4}-[0-9]{2}-[0-9]{2})$'
heading=$(grep -m 1 '^## ' CHANGELOG.md)
[[ $heading =~ $released ]] || complain "CHANGELOG.md does not begin with the release of VERSION, \"## [$version] - unreleased\" or its date" \
	"${heading:-no line begins with \"## \"}"
for link in models/torch/medusa/VERSION models/vllm/medusa_vllm/VERSION; do
	[ "$(readlink $link)" = ../../../VERSION ] || complain "$link is no link to the tree's VERSION" "$(ls -l $link 2>&1)"
done
exit $failed
