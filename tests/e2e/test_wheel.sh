#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `make wheel`: what the wheel holds, installed in a fresh environment without a network; the adapter's tests run with what was installed.
. "$(dirname "$0")/lib.sh"
version=$(cat VERSION)
wheel=$work/wheels/medusa_torch-$version-py3-none-any.whl
plugin=$work/wheels/medusa_vllm-$version-py3-none-any.whl
unset PYTHONPATH
export PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
[ -z "${SAN:-}" ] || export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # Python never gives back all that it takes

section "made"
tree_files() { find models/torch models/vllm -name __pycache__ -prune -o -print | sort; } # other suites import from it
before=$(tree_files)
run wheel make --no-print-directory wheel WHEELS="$work/wheels"
assert_exit wheel 0
assert_equal "what make wheel says" "${wheel##*/}"$'\n'"${plugin##*/}" "$(cat "$work/wheel.out")"
assert_file "$wheel"
assert_file "$plugin"
assert_equal "what it leaves in the tree" "" "$(diff <(echo "$before") <(tree_files))"
run files python3 -m zipfile -l "$wheel"
expected=$(cd models/torch && find medusa -name '*.py' -o -name VERSION | sort)
assert_equal "files" "$expected" "$(awk '{ print $1 }' "$work/files.out" | grep '^medusa/' | sort)"
assert_equal "what Python reads at its start, beside the package" medusa-torch.pth "$(awk '{ print $1 }' "$work/files.out" | grep '\.pth$')"
run again make --no-print-directory wheel WHEELS="$work/again"
assert_same_file "$wheel" "$work/again/${wheel##*/}"
assert_same_file "$plugin" "$work/again/${plugin##*/}"
run plugin_files python3 -m zipfile -l "$plugin"
expected=$(cd models/vllm && find medusa_vllm -name '*.py' -o -name VERSION | sort)
assert_equal "files of the plug-in" "$expected" "$(awk '{ print $1 }' "$work/plugin_files.out" | grep '^medusa_vllm/' | sort)"

assert_equal "what Python reads at its start, beside the plug-in" medusa-vllm.pth "$(awk '{ print $1 }' "$work/plugin_files.out" | grep '\.pth$')"

section "installed in a fresh environment, without a network"
run venv python3 -m venv --without-pip "$work/venv"
assert_exit venv 0
fresh=$work/venv/bin/python
run install env PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 python3 -m pip --python "$fresh" install --no-index --no-deps "$wheel"
assert_exit install 0
run version env -C "$work" "$fresh" -c 'import importlib.metadata, medusa; print(medusa.__version__, importlib.metadata.version("medusa-torch"), medusa.__file__)'
assert_exit version 0
packages=$("$fresh" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
assert_equal "version, twice, and place" "$version $version $packages/medusa/__init__.py" "$(cat "$work/version.out")"

section "what Python reads at its start"
hooks='import sys; print(sorted({type(finder).__module__ for finder in sys.meta_path} & {"medusa._imports"}), "medusa" in sys.modules)'
run plain env -C "$work" "$fresh" -c "$hooks"
assert_equal "without a Medusa library nothing is loaded" "[] False" "$(cat "$work/plain.out")"
run preloaded env -C "$work" LD_PRELOAD=libmedusa-restore.so "$fresh" -c "$hooks"
assert_equal "with one it waits for transformers' server" "['medusa._imports'] True" "$(cat "$work/preloaded.out")"

section "without PyTorch"
run no_torch env -C "$work" "$fresh" -c 'import medusa.torch'
assert_exit no_torch 1
assert_contains "$work/no_torch.err" "ImportError: medusa.torch needs PyTorch, and this Python has no module torch: install PyTorch"
mkdir "$work/broken"
echo 'import no_such_module_of_pytorch' >"$work/broken/torch.py"
run broken env -C "$work" PYTHONPATH="$work/broken" "$fresh" -c 'import medusa.torch'
assert_exit broken 1
assert_contains "$work/broken.err" "ModuleNotFoundError: No module named 'no_such_module_of_pytorch'"
assert_lacks "$work/broken.err" "needs PyTorch"

section "the adapter's tests, with what was installed"
cp -r models/torch/tests models/torch/examples "$work/"
run place env -C "$work" PYTHONPATH="$packages" python3 -c 'import medusa; print(medusa.__file__)'
assert_equal "the module under test" "$packages/medusa/__init__.py" "$(cat "$work/place.out")"
PYTHONPATH=$packages run unittest python3 -m unittest discover --verbose --start-directory "$work/tests"
assert_exit unittest 0
grep -o '^.* \.\.\. skipped .*' "$work/unittest.err"
assert_lacks "$work/unittest.err" "Ran 0 tests"
[ $failures = 0 ] || grep -A 30 '^\(FAIL\|ERROR\): ' "$work/unittest.err"

section "the plug-in for vLLM"
run plugin env PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 python3 -m pip --python "$fresh" install --no-index "$plugin"
assert_exit plugin 0
run command "$work/venv/bin/medusa-vllm-template" --help
assert_exit command 0
assert_contains "$work/command.out" "medusa-vllm-template run --socket PATH"
run entry env -C "$work" "$fresh" -c 'from importlib.metadata import entry_points
points = entry_points()
points = points.select(group="vllm.general_plugins") if hasattr(points, "select") else points["vllm.general_plugins"]
for point in points: print(point.name, point.value, point.load()())'
assert_equal "vLLM finds it, and without a Medusa library it does nothing" "medusa medusa_vllm:register None" "$(cat "$work/entry.out")"
mkdir -p "$work/models/torch" "$work/models/vllm"
cp -r models/vllm/tests "$work/models/vllm/"
ln -s "$work/tests" "$work/models/torch/tests"
# Whole processes are for test_vllm_plugin.
MEDUSA_BUILD='' PYTHONPATH=$packages run plugin_unittest python3 -m unittest discover --verbose --start-directory "$work/models/vllm/tests"
assert_exit plugin_unittest 0

# Older setuptools make editable installations with the help of the package wheel alone, and pip gets that from an index.
if python3 -c 'import importlib.util as u, setuptools, sys; sys.exit(not (u.find_spec("wheel") or int(setuptools.__version__.split(".")[0]) >= 71))'; then
	section "installed with -e" # the packages stay in the tree, and Python reads their .pth files all the same
	"$fresh" -m venv --without-pip "$work/editable"
	editable=$work/editable/bin/python
	for name in torch vllm; do
		cp -rL "models/$name" "$work/tree_$name"
		mkdir "$work/wheel_$name"
		run editable_$name env -C "$work/tree_$name" python3 -c 'import setuptools.build_meta, sys; setuptools.build_meta.build_editable(sys.argv[1])' "$work/wheel_$name"
		assert_exit editable_$name 0
		run install_$name env PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 python3 -m pip --python "$editable" install --no-index "$work/wheel_$name"/*.whl
		assert_exit install_$name 0
	done
	places='import medusa, medusa_vllm, sys; from medusa_vllm import _start; print(medusa.__file__, medusa_vllm.__file__, _start.begun, sorted({f._log for f in sys.meta_path if type(f).__module__ == "medusa._imports"}))'
	run places env -C "$work" "$editable" -c "$places"
	assert_equal "the tree's, and not begun" "$work/tree_torch/medusa/__init__.py $work/tree_vllm/medusa_vllm/__init__.py [] []" "$(cat "$work/places.out")"
	run places env -C "$work" LD_PRELOAD=libmedusa-restore.so "$editable" -c "$places"
	assert_equal "both have begun" "$work/tree_torch/medusa/__init__.py $work/tree_vllm/medusa_vllm/__init__.py [True] ['medusa.torch', 'vllm.medusa']" "$(cat "$work/places.out")"
	run removed python3 -m pip --python "$editable" uninstall -y medusa-torch medusa-vllm
	assert_equal "what is left of -e" "" "$(find "$work/editable/lib" -iname '*medusa*')"
else
	echo "installed with -e ... skipped: this Python's setuptools needs the package wheel for that"
fi

section "the plug-in alone, without the adapter"
"$fresh" -m venv --without-pip "$work/alone"
run alone env PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 python3 -m pip --python "$work/alone/bin/python" install --no-index "$plugin"
assert_exit alone 0
run unregistered env -C "$work" "$work/alone/bin/python" -c 'import medusa_vllm; medusa_vllm.register()'
assert_equal "nothing is said without a Medusa library" "" "$(cat "$work/unregistered.err")"
run registered env -C "$work" "$(preload restore)" MEDUSA_ARTIFACT="$work/none.medusa" "$work/alone/bin/python" -c 'import medusa_vllm; medusa_vllm.register()'
assert_exit registered 0
assert_contains "$work/registered.err" "medusa: vLLM is left as it is: the package medusa-torch is not installed: pip install ./models/torch ./models/vllm"

section "uninstalled"
run uninstall python3 -m pip --python "$fresh" uninstall -y medusa-torch medusa-vllm
assert_exit uninstall 0
assert_equal "what is left" "" "$(find "$packages" -iname '*medusa*')"
finish
