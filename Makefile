# SPDX-License-Identifier: Apache-2.0
# The whole build. Switches: V=1 (show commands), SAN=1 (address and undefined-behaviour sanitizers), TSAN=1 (thread
# sanitizer), COVERAGE=1.

BUILD := build
ifdef SAN
BUILD := build/san
endif
ifdef TSAN
BUILD := build/tsan
endif
ifdef COVERAGE
BUILD := build/coverage
endif

# The one place that states it; everything else takes it from there (docs/packaging.md).
VERSION := $(shell cat VERSION)
# The number in the names of the libraries that users link with: programs of one number run with each other's libraries.
SOVERSION := 0
PREFIX ?= /usr/local
# Where libraries go; /usr/lib/x86_64-linux-gnu, say. The commands that are installed know it as seen from their own folder.
LIBDIR ?= $(PREFIX)/lib
LIBDIR_FROM_BINDIR := $(shell realpath -m --relative-to='$(PREFIX)/bin' '$(LIBDIR)')
CC ?= gcc
NVCC ?= $(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
PYTHON ?= python3
CUDA_HOME ?= $(firstword $(wildcard /usr/local/cuda))
CUDA_INCLUDE := $(dir $(firstword $(wildcard $(CUDA_HOME)/include/cuda.h) $(wildcard build/cuda/nvidia/cu13/include/cuda.h)))
GPU_ARCH ?= 90

PACKAGES := libelf libdw libzstd msgpack
WORKER_PACKAGES := jansson yaml-0.1 libpcre2-8 libevent libevent_openssl openssl sqlite3
PACKAGE_CFLAGS := $(shell pkg-config --cflags $(PACKAGES) $(WORKER_PACKAGES) 2>/dev/null)
WORKER_LIBS := -Wl,--as-needed $(shell pkg-config --libs $(WORKER_PACKAGES) 2>/dev/null) -lhttp_parser
JANSSON_LIBS := $(shell pkg-config --libs jansson 2>/dev/null)
SERVE_LIBS := $(shell pkg-config --libs jansson libevent 2>/dev/null) -lhttp_parser
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wundef -Wvla
CPPFLAGS += -D_GNU_SOURCE -DMD_VERSION='"$(VERSION)"' -I. -Iinclude -isystem $(CUDA_INCLUDE) $(PACKAGE_CFLAGS)
CFLAGS ?= -O2 -g
CFLAGS += -std=gnu11 -fPIC -fvisibility=hidden -fno-semantic-interposition $(WARNINGS)
LDFLAGS += -Wl,--no-undefined -Wl,-z,relro
# libsodium is linked in: an engine's machine need not have it, and an engine that has its own does not meet ours.
LDLIBS := -lzstd -lmsgpackc -lelf -ldw -l:libsodium.a -lpthread -ldl -lm
ifdef WERROR
CFLAGS += -Werror
endif
ifdef SAN
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CFLAGS += $(SANITIZE) -DMD_SANITIZED=1
LDFLAGS += $(SANITIZE)
LDFLAGS := $(filter-out -Wl$(comma)--no-undefined,$(LDFLAGS))
endif
ifdef TSAN
SANITIZE := -fsanitize=thread
# gcc warns that the sanitizer does not know fences. The gate's one orders no memory for others, only a store before a load
# (tests/test_swap_gate.c).
CFLAGS += $(SANITIZE) -DMD_SANITIZED=1 -Wno-tsan
LDFLAGS += $(SANITIZE)
LDFLAGS := $(filter-out -Wl$(comma)--no-undefined,$(LDFLAGS))
endif
# For libFuzzer, by `make fuzz`; comparisons of the code under test guide it, so that is built again.
ifdef FUZZ
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CFLAGS += $(SANITIZE) -fsanitize=fuzzer-no-link -DMD_SANITIZED=1
LDFLAGS := $(SANITIZE)
endif
ifdef COVERAGE
# Threads and processes count together.
CFLAGS += --coverage -fprofile-update=atomic -O0
LDFLAGS += --coverage
endif

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-7s %s\n' $(1) $(patsubst $(BUILD)/%,%,$@))

# ---- sources: a folder is a layer, with the folders in it ------------------------------------------------------
objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
sources = $(sort $(wildcard $(addsuffix /*.c,$(1))))
layers = $(sort $(wildcard $(addsuffix /*.c,$(1)) $(addsuffix /*/*.c,$(1))))

SHARE := backbone/share.c backbone/share_list.c backbone/share_lease.c backbone/share_keeper.c backbone/share_watch.c
ENGINE_API := api/api_names.c api/swap_api.c swap/swap_client.c $(SHARE) # defined in what an engine is linked with or preloaded with, and nowhere else
# What speaks with medusa-swap run; the functions of swap.h need it, in each library.
SWAP_CLIENT := swap/ask.c swap/swap_place.c swap/wire.c backbone/share_wire.c
BUNDLE := ranks/rank.c ranks/rank_bundle.c # which rank a process is, and what is its own in a bundle: for captures, restores and commands
CORE := $(filter-out driver/interpose.c api/null_api.c $(ENGINE_API),$(call layers,base driver format kvprofile api)) $(SWAP_CLIENT) $(BUNDLE)
MEETING := $(filter-out $(BUNDLE),$(call sources,ranks)) # how ranks come together, in captures and restores
CAPTURE := $(call layers,capture) $(MEETING) driver/interpose.c $(ENGINE_API)
RESTORE := $(call layers,restore) $(MEETING) driver/interpose.c $(ENGINE_API)
SWAP := $(filter-out $(ENGINE_API) $(SWAP_CLIENT),$(call layers,swap)) backbone/equal.c
BACKBONE := $(filter-out $(ENGINE_API) $(SWAP_CLIENT) backbone/equal.c,$(call sources,backbone))
NULL_API := api/null_api.c $(ENGINE_API)
ANALYZE := $(call sources,analyze)
HOSTCUDA := $(call sources,hostcuda)
SCHEDULER := $(filter-out scheduler/example/%,$(call layers,scheduler))
SIMULATOR := $(call layers,simulator)
OUTSIDE := http/outside.c http/trust.c # needs OpenSSL, which the engine does not
HTTP := $(filter-out $(OUTSIDE),$(call sources,http))
JSON := $(call sources,json)
WORKER := $(call layers,worker) $(OUTSIDE)
TOOLS := $(call sources,tools)
TOOL_MAINS := $(filter tools/medusa-%.c,$(TOOLS))
TOOL_SHARED := $(filter-out tools/medusa-%.c,$(TOOLS))
ENGINE := $(filter-out $(wildcard models/llama/*_host.c models/llama/gemm.c),$(call sources,models/llama models/llama/adapters models/llama/lora models/llama/serve))
TESTS := $(call sources,tests)
TEST_JUDGES := $(call sources,tests/judges)
TEST_SUBJECTS := $(call sources,tests/subjects)
TEST_IMAGES := $(call sources,tests/images)
BENCHES := $(call sources,bench)
FUZZ_TARGETS := $(patsubst tests/fuzz/target_%.c,%,$(wildcard tests/fuzz/target_*.c))

# What users link with has a version in its name, and these names as links to it. What is preloaded is found by file name.
LINKED := $(BUILD)/lib/libmedusa.so $(BUILD)/lib/libmedusa-sched.so
PRELOADED := $(BUILD)/lib/libmedusa-capture.so $(BUILD)/lib/libmedusa-restore.so $(BUILD)/lib/libmedusa-swap.so
LIBS := $(LINKED) $(PRELOADED)
HOSTCUDA_LIB := $(BUILD)/lib/hostcuda/libcuda.so.1
BINS := $(patsubst tools/%.c,$(BUILD)/bin/%,$(TOOL_MAINS))
# Commands that are installed: those of the tree, or, where libraries go elsewhere, others beside them.
INSTALLED_AT := $(BUILD)/bin$(if $(filter-out ../lib,$(LIBDIR_FROM_BINDIR)),-at/$(subst /,-,$(subst ../,up-,$(LIBDIR_FROM_BINDIR))))
INSTALLED := $(patsubst tools/%.c,$(INSTALLED_AT)/%,$(TOOL_MAINS))
SCHED_EXAMPLE := $(BUILD)/scheduler/example
LLAMA := $(BUILD)/models/llama
LLAMA_IMAGES := $(LLAMA)/llama_kernels.host.so $(if $(NVCC),$(LLAMA)/llama_kernels.fatbin)
GEMM_IMAGES := $(LLAMA)/gemm_kernels.host.so $(if $(NVCC),$(LLAMA)/gemm_kernels.fatbin)
LLAMA_BINS := $(LLAMA)/llama-engine $(LLAMA)/libllama-gemm.so
TEST_BINS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(TESTS))
SUBJECT_BINS := $(patsubst tests/subjects/%.c,$(BUILD)/tests/subjects/%,$(TEST_SUBJECTS))
TEST_IMAGE_BINS := $(patsubst tests/images/%.c,$(BUILD)/tests/images/%.host.so,$(TEST_IMAGES)) \
	$(if $(NVCC),$(patsubst tests/images/%.cu,$(BUILD)/tests/images/%.fatbin,$(wildcard tests/images/*.cu)) \
	$(BUILD)/tests/images/identity_first.ptx)
INJECT := $(patsubst %.c,$(BUILD)/%.so,$(wildcard tests/faults/*.c))
NVML := $(BUILD)/tests/nvml/libnvidia-ml.so.1
DOORS := $(patsubst %.c,$(BUILD)/%.so,$(wildcard tests/doors/*.c))
FUZZ_BINS := $(addprefix $(BUILD)/tests/fuzz/,$(FUZZ_TARGETS) $(if $(FUZZ),,seeds craft))
BENCH_BINS := $(patsubst bench/%.c,$(BUILD)/bench/%,$(BENCHES))

.PHONY: all libs hostcuda tools engine tests deps demo demo-cluster check check-gpu torture fuzz fuzz-targets lint tidy scan bench install uninstall deb wheel check-packages clean FORCE
.DELETE_ON_ERROR:
.SECONDARY:

all: libs hostcuda tools engine

libs: $(LIBS)
hostcuda: $(HOSTCUDA_LIB)
tools: $(BINS)
engine: $(LLAMA_BINS) $(LLAMA_IMAGES)
tests: $(TEST_BINS) $(SUBJECT_BINS) $(TEST_IMAGE_BINS) $(INJECT) $(DOORS) $(NVML) $(FUZZ_BINS) $(SCHED_EXAMPLE)
fuzz-targets: $(FUZZ_BINS)

# ---- objects -----------------------------------------------------------------------------------------------------
# The simulator gives the same results on every machine, also where a product and a sum could be one instruction.
$(BUILD)/obj/simulator/%.o: CFLAGS += -ffp-contract=off
$(BUILD)/obj/%.o: %.c VERSION
	$(call say,CC)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

# It holds the page.
$(BUILD)/obj/worker/page/page_bytes.o: worker/page/status.html

# The same decisions and reports on every machine, also where the processor could fuse a multiplication and an addition.
$(call objects,$(SCHEDULER) $(SIMULATOR)): CFLAGS += -ffp-contract=off

# What is preloaded runs on threads of the engine, whose stacks may be small.
ifeq ($(SANITIZE)$(COVERAGE),)
$(call objects,$(CORE) $(CAPTURE) $(RESTORE) $(SWAP)): CFLAGS += -Werror=frame-larger-than=16384
endif

# What an engine or a test subject may link: the typed driver table and the formats, but no hook.
CORE_LIB := $(BUILD)/obj/libmedusa-core.a
$(CORE_LIB): $(call objects,$(CORE))
	$(call say,AR)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# Everything internal, and what judges it, for tools, tests and benchmarks; hooks are pulled in by nobody there.
INTERNAL := $(BUILD)/obj/libmedusa-internal.a
$(INTERNAL): $(call objects,$(CORE) $(ANALYZE) $(filter-out driver/interpose.c,$(CAPTURE) $(RESTORE) $(SWAP)) $(BACKBONE) $(SCHEDULER) $(SIMULATOR) $(HTTP) $(JSON) $(WORKER) $(TOOL_SHARED) $(TEST_JUDGES))
	$(call say,AR)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# ---- libraries ---------------------------------------------------------------------------------------------------
define link_shared
$(call say,LD)
$(Q)mkdir -p $(@D)
$(Q)$(CC) -shared $(LDFLAGS) -Wl,-soname,$(patsubst %.so.$(VERSION),%.so.$(SOVERSION),$(@F)) -Wl,--version-script=$(filter %.map,$^) \
	-Wl,--no-undefined-version -Wl,--exclude-libs,ALL -Wl,-rpath,'$$ORIGIN' -o $@ $(filter %.o,$^) $(LDLIBS)
endef

$(BUILD)/lib/libmedusa.so.$(VERSION): $(call objects,$(NULL_API) $(CORE)) api/libmedusa.map
	$(link_shared)
$(BUILD)/lib/libmedusa-capture.so: $(call objects,$(CAPTURE) $(CORE)) api/libmedusa.map
	$(link_shared)
$(BUILD)/lib/libmedusa-restore.so: $(call objects,$(RESTORE) $(CORE)) api/libmedusa.map
	$(link_shared)
# Swapping stands below restore, in one library: an engine has one of ours.
$(BUILD)/lib/libmedusa-swap.so: $(call objects,$(SWAP) $(RESTORE) $(CORE)) api/libmedusa.map
	$(link_shared)
# A worker node needs none of the packages that engines and artifacts need.
$(BUILD)/lib/libmedusa-sched.so.$(VERSION): LDLIBS := -lm
$(BUILD)/lib/libmedusa-sched.so.$(VERSION): $(call objects,$(filter-out $(addprefix scheduler/cluster/,first_token.c prefix_choice.c prefix_table.c),$(SCHEDULER)) base/array.c base/map.c base/plain.c base/utf8.c) scheduler/scheduler.map
	$(link_shared)
# The linker opens the name without a number, the dynamic linker that with one. Files of another VERSION go.
$(LINKED): %.so: %.so.$(VERSION)
	$(Q)rm -f $(filter-out $<,$(wildcard $@.*))
	$(Q)ln -sf $(<F) $@.$(SOVERSION)
	$(Q)ln -sf $(@F).$(SOVERSION) $@
# -Bsymbolic: like a real driver, it must not hand out a preloaded library's hooks as its own entry points.
$(HOSTCUDA_LIB): LDFLAGS += -Wl,-Bsymbolic
$(HOSTCUDA_LIB): $(call objects,$(HOSTCUDA) $(call sources,base)) hostcuda/hostcuda.map
	$(link_shared)

# ---- commands ----------------------------------------------------------------------------------------------------
# They need none of our libraries to start: those that they preload are found by tools/run.c, which asks for this.
libdir_text = extern const char md_run_libdir[]; const char md_run_libdir[] = "$(1)";
$(BUILD)/obj/libdir.c: LIBRARIES := ../lib
$(INSTALLED_AT)/libdir.c: LIBRARIES := $(LIBDIR_FROM_BINDIR)
%/libdir.c: FORCE
	$(Q)mkdir -p $(@D)
	$(Q)echo '$(call libdir_text,$(LIBRARIES))' | cmp -s - $@ || echo '$(call libdir_text,$(LIBRARIES))' >$@
%/libdir.o: %/libdir.c
	$(Q)$(CC) $(CFLAGS) -c $< -o $@

define link_command
$(call say,LD)
$(Q)mkdir -p $(@D)
$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
endef
$(BUILD)/bin/%: $(BUILD)/obj/tools/%.o $(BUILD)/obj/libdir.o $(INTERNAL)
	$(link_command)
ifneq ($(INSTALLED),$(BINS))
$(INSTALLED): $(INSTALLED_AT)/%: $(BUILD)/obj/tools/%.o $(INSTALLED_AT)/libdir.o $(INTERNAL)
	$(link_command)
endif

# What reads YAML.
$(sort $(BUILD)/bin/medusa-simulate $(INSTALLED_AT)/medusa-simulate) $(BUILD)/tests/test_sim_% $(BUILD)/tests/fuzz/sim%: LDLIBS += -lyaml
# What reads adapters, a part of the reference engine: its objects stand behind $(INTERNAL), and need it.
ADAPTER_TESTS := $(addprefix $(BUILD)/tests/,test_lora_adapter test_lora_files test_lora_store test_lora_slots fuzz/adapter)
$(ADAPTER_TESTS): LDLIBS := $(INTERNAL) $(LDLIBS) $(JANSSON_LIBS)
$(ADAPTER_TESTS): $(call objects,$(call sources,models/llama/adapters) models/llama/gguf.c models/llama/unicode.c)
# The node daemon: engines and their tools need none of its packages.
$(sort $(foreach at,$(BUILD)/bin $(INSTALLED_AT),$(at)/medusa-worker $(at)/medusa-workerctl)) $(BUILD)/tests/test_worker_% $(BUILD)/tests/test_tree_text $(BUILD)/tests/fuzz/worker% $(BUILD)/bench/worker_%: LDLIBS += $(WORKER_LIBS)

# As a user builds it: the installed header, the library, nothing else.
$(SCHED_EXAMPLE): scheduler/example/node_loop.c include/medusa/scheduler.h $(BUILD)/lib/libmedusa-sched.so
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -std=c11 $(WARNINGS) $(SANITIZE) -Iinclude $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../lib' -o $@ $< -L$(BUILD)/lib -lmedusa-sched

# ---- the reference engine -----------------------------------------------------------------------------------------
$(LLAMA)/llama-engine: $(call objects,$(ENGINE) $(HTTP) $(JSON)) $(CORE_LIB) $(BUILD)/lib/libmedusa.so $(LLAMA)/libllama-gemm.so
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../../lib' -o $@ $(filter %.o,$^) $(CORE_LIB) -L$(BUILD)/lib -lmedusa -L$(LLAMA) -lllama-gemm $(SERVE_LIBS) $(LDLIBS)

$(LLAMA)/libllama-gemm.so: $(BUILD)/obj/models/llama/gemm.o $(BUILD)/obj/models/llama/gemm_images.o
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -shared $(LDFLAGS) -Wl,-soname,$(@F) -o $@ $^ -ldl -lpthread

# The vendor-style library carries its images in its own file, as cuBLAS does.
$(BUILD)/obj/models/llama/gemm_images.o: models/llama/gemm_images.S $(GEMM_IMAGES)
	$(call say,AS)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -fPIC -DGEMM_HOST_IMAGE='"$(LLAMA)/gemm_kernels.host.so"' $(if $(NVCC),-DGEMM_FATBIN='"$(LLAMA)/gemm_kernels.fatbin"') -c $< -o $@

# Kernel images for hostcuda: never sanitized, they are device code.
HOST_IMAGE_FLAGS := -std=gnu11 -O3 -shared -fPIC -nostartfiles -fvisibility=hidden -ffp-contract=off $(WARNINGS) -I. -Wl,--build-id
$(LLAMA)/%.host.so: models/llama/%_host.c hostcuda/kernel.h base/export.h base/splitmix.h $(wildcard models/llama/*.h)
	$(call say,IMAGE)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(HOST_IMAGE_FLAGS) -o $@ $< -lm
$(LLAMA)/%.fatbin: models/llama/%.cu base/splitmix.h $(wildcard models/llama/*.h)
	$(call say,NVCC)
	$(Q)mkdir -p $(@D)
	$(Q)$(NVCC) -O3 -I. --fatbin -gencode arch=compute_$(GPU_ARCH),code=sm_$(GPU_ARCH) -gencode arch=compute_80,code=compute_80 -o $@ $<
$(BUILD)/tests/images/%.host.so: tests/images/%.c hostcuda/kernel.h base/export.h
	$(call say,IMAGE)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(HOST_IMAGE_FLAGS) -o $@ $< -lm

$(BUILD)/tests/images/%.fatbin: tests/images/%.cu
	$(call say,NVCC)
	$(Q)mkdir -p $(@D)
	$(Q)$(NVCC) -O3 --fatbin -gencode arch=compute_$(GPU_ARCH),code=sm_$(GPU_ARCH) -gencode arch=compute_80,code=compute_80 -o $@ $<

$(BUILD)/tests/images/%.ptx: tests/images/%.cu
	$(call say,NVCC)
	$(Q)mkdir -p $(@D)
	$(Q)$(NVCC) -O3 --ptx -gencode arch=compute_$(GPU_ARCH),code=compute_$(GPU_ARCH) -o $@ $<

# ---- tests and benchmarks ----------------------------------------------------------------------------------------
# Criterion maps memory at addresses that the thread sanitizer does not support.
CRITERION_LIBS := -lcriterion
ifdef TSAN
CRITERION_LIBS :=
CRITERION_OBJECTS := $(call objects,tests/threads/criterion.c)
$(patsubst $(BUILD)/tests/%,$(BUILD)/obj/tests/%.o,$(TEST_BINS)): CPPFLAGS := -Itests/threads $(CPPFLAGS)
endif
$(BUILD)/tests/test_%: $(BUILD)/obj/tests/test_%.o $(call objects,tests/common/build_folder.c tests/common/scratch.c) $(CRITERION_OBJECTS) $(INTERNAL)
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -Wl,--wrap=mkdtemp,--wrap=mkstemp -o $@ $^ $(CRITERION_LIBS) $(LDLIBS)
# They make the library's allocations fail.
$(BUILD)/tests/test_scheduler_repeat $(BUILD)/tests/test_array $(BUILD)/tests/test_worker_config_memory $(BUILD)/tests/test_tree_text: LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
# Linked with the driver, as most programs are not: they look it up.
$(BUILD)/tests/subjects/sequence_subject $(BUILD)/tests/subjects/order_subject: $(BUILD)/tests/subjects/%: $(BUILD)/obj/tests/subjects/%.o $(BUILD)/lib/libmedusa.so $(BUILD)/lib/hostcuda/libcuda.so.1
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ $< -L$(BUILD)/lib -lmedusa -L$(BUILD)/lib/hostcuda -l:libcuda.so.1
# It has no table of the driver's entry points of ours: a CUDA runtime in small stands between.
$(BUILD)/tests/subjects/doors_subject: $(call objects,tests/subjects/doors_subject.c tests/doors/runtime.c) $(BUILD)/lib/libmedusa.so
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ $(filter %.o,$^) -L$(BUILD)/lib -lmedusa -ldl
# Libraries of their own between the engine and the driver: the engine's ranks meet by one, and both use the other.
COLLECTIVE := $(BUILD)/tests/collective/libmdcollective.so.1 $(BUILD)/tests/collective/libcudart.so.99
COLLECTIVE_FLAGS = $(CPPFLAGS) -O2 -g -std=gnu11 -fPIC -fvisibility=hidden -fno-optimize-sibling-calls $(WARNINGS) -shared -Wl,-soname,$(@F),-rpath,'$$ORIGIN'
$(BUILD)/tests/collective/libcudart.so.99: tests/collective/runtime_alloc.c tests/collective/runtime_alloc.h base/export.h $(HOSTCUDA_LIB)
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(COLLECTIVE_FLAGS) -o $@ $< -L$(BUILD)/lib/hostcuda -l:libcuda.so.1
$(BUILD)/tests/collective/libmdcollective.so.1: tests/collective/collective.c $(wildcard tests/collective/*.h) base/export.h $(BUILD)/tests/collective/libcudart.so.99
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(COLLECTIVE_FLAGS) -o $@ $< -L$(@D) -l:libcudart.so.99 -L$(BUILD)/lib/hostcuda -l:libcuda.so.1
$(BUILD)/tests/subjects/ranks_subject: $(BUILD)/obj/tests/subjects/ranks_subject.o $(CORE_LIB) $(BUILD)/lib/libmedusa.so $(COLLECTIVE)
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib:$$ORIGIN/../collective' -o $@ $(filter %.o %.a,$^) -L$(BUILD)/lib -lmedusa $(COLLECTIVE) -Wl,-rpath-link,$(BUILD)/lib/hostcuda $(LDLIBS)
# It loads by name what it is told to: a set-user-ID program finds nothing beside itself.
$(BUILD)/tests/subjects/setuid_subject: $(BUILD)/obj/tests/subjects/setuid_subject.o
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -ldl
# It makes what medusa-swap run is handed.
$(BUILD)/tests/subjects/pool_subject: $(call objects,tests/subjects/pool_subject.c swap/pool.c swap/pool_file.c swap/pool_spill.c swap/spill_file.c swap/spill_queue.c swap/numa.c swap/pulse.c) $(CORE_LIB)
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/tests/subjects/%: $(BUILD)/obj/tests/subjects/%.o $(CORE_LIB) $(BUILD)/lib/libmedusa.so
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ $(filter %.o %.a,$^) -L$(BUILD)/lib -lmedusa $(LDLIBS)
$(NVML): tests/nvml/host_nvml.c base/export.h base/nvml.h
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -O2 -g -std=gnu11 -fPIC -fvisibility=hidden $(WARNINGS) -shared -Wl,-soname,$(@F) -o $@ $<
# Never sanitized: they stand in front of the allocator.
$(INJECT): $(BUILD)/tests/faults/%.so: tests/faults/%.c base/export.h
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -O2 -g -std=gnu11 -D_GNU_SOURCE -I. -fPIC -fvisibility=hidden $(WARNINGS) -shared -o $@ $<
$(DOORS): $(BUILD)/tests/doors/%.so: tests/doors/%.c tests/doors/runtime.h
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -O2 -g -std=gnu11 -fPIC -fvisibility=hidden $(WARNINGS) -shared -o $@ $< -ldl
# Fuzz targets run files of a corpus, or, with FUZZ=1, under libFuzzer.
FUZZ_DRIVER := $(if $(FUZZ),,$(BUILD)/obj/tests/fuzz/replay.o)
$(addprefix $(BUILD)/tests/fuzz/,$(FUZZ_TARGETS)): $(BUILD)/tests/fuzz/%: $(BUILD)/obj/tests/fuzz/target_%.o $(call objects,$(wildcard tests/fuzz/mend*.c)) $(FUZZ_DRIVER) $(INTERNAL)
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) $(if $(FUZZ),-fsanitize=fuzzer) -o $@ $^ $(LDLIBS)
$(BUILD)/tests/fuzz/seeds: $(call objects,tests/fuzz/seeds.c tests/fuzz/bombs.c $(wildcard tests/fuzz/mend*.c)) $(INTERNAL)
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/tests/fuzz/craft: $(call objects,tests/fuzz/craft.c $(wildcard tests/fuzz/mend*.c)) $(INTERNAL)
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/bench/%: $(BUILD)/obj/bench/%.o $(INTERNAL)
	$(call say,LD)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# ---- what a user calls -------------------------------------------------------------------------------------------
# Installs what is missing: Debian packages, CUDA headers, and (for demo) the model's Python package.
deps:
	$(Q)tools/deps.sh build

# demo and check install first if something is missing, then build in a second make that sees what was installed.
NEED_DEPS = $(Q)tools/deps.sh --check build >/dev/null 2>&1 || $(MAKE) --no-print-directory deps

demo:
	$(NEED_DEPS)
	$(Q)$(MAKE) $(if $(V),,-s) --no-print-directory all
	$(Q)BUILD=$(BUILD) tests/e2e/demo.sh

# Three workers and a real etcd; one of them is killed.
demo-cluster:
	$(NEED_DEPS)
	$(Q)tools/deps.sh --cluster --check build >/dev/null 2>&1 || tools/deps.sh --cluster build
	$(Q)$(MAKE) $(if $(V),,-s) --no-print-directory all
	$(Q)BUILD=$(BUILD) tests/e2e/demo_cluster.sh

check:
	$(NEED_DEPS)
	$(Q)$(MAKE) $(if $(V),,-s) --no-print-directory all tests SAN=$(SAN) TSAN=$(TSAN)
	$(if $(COVERAGE),$(Q)BUILD=$(BUILD) tests/coverage.sh --forget)
	$(Q)BUILD=$(BUILD) SAN=$(SAN) TSAN=$(TSAN) tests/run.sh$(if $(COVERAGE),; code=$$?; BUILD=$(BUILD) tests/coverage.sh && exit $$code)

# Every injection point, kill and cycle; `make check` takes a sample of each.
torture:
	$(NEED_DEPS)
	$(Q)$(MAKE) $(if $(V),,-s) --no-print-directory all tests SAN=$(SAN) TSAN=$(TSAN)
	$(Q)BUILD=$(BUILD) SAN=$(SAN) TSAN=$(TSAN) tests/faults/run.sh

# Conformance tests and the whole chain on a real GPU.
check-gpu: all tests
	$(Q)BUILD=$(BUILD) tests/gpu/run.sh

# Every target under libFuzzer for TIME seconds, in turn; ONLY=NAME for one. Needs clang with its runtime.
TIME ?= 60
fuzz:
	$(Q)tools/deps.sh --fuzz --check build >/dev/null 2>&1 || tools/deps.sh --fuzz build
	$(Q)$(MAKE) $(if $(V),,-s) --no-print-directory fuzz-targets FUZZ=1 BUILD=$(BUILD)/fuzz CC="$$(command -v clang-14 || echo clang)"
	$(Q)BUILD=$(BUILD)/fuzz TIME=$(TIME) tests/fuzz/run.sh

lint:
	$(NEED_DEPS)
	$(Q)$(MAKE) $(if $(V),,-s) --no-print-directory libs hostcuda engine
	$(Q)BUILD=$(BUILD) tests/lint/run.sh

# clang's analyses, by .clang-tidy: minutes, so it is no part of check or lint. TIDY="a.c b.c" for these alone.
tidy:
	$(Q)CPPFLAGS='$(subst ','\'',$(CPPFLAGS))' tests/tidy/run.sh $(TIDY)

# clang's static analyzer, with the checkers that tests/scan/run.sh names: minutes, as tidy. SCAN="a.c b.c" for these alone.
scan:
	$(Q)CPPFLAGS='$(subst ','\'',$(CPPFLAGS))' tests/scan/run.sh $(SCAN)

bench: all $(BENCH_BINS)
	$(Q)BUILD=$(BUILD) bench/run.sh

# Completion in shells: each command makes it of its own table of options.
COMPLETIONS := $(foreach command,$(notdir $(BINS)),$(BUILD)/completion/bash/$(command) $(BUILD)/completion/zsh/_$(command) $(BUILD)/completion/fish/$(command).fish)
complete = $(Q)mkdir -p $(@D) && $< --completion $(1) >$@
$(BUILD)/completion/bash/%: $(BUILD)/bin/%
	$(call complete,bash)
$(BUILD)/completion/zsh/_%: $(BUILD)/bin/%
	$(call complete,zsh)
$(BUILD)/completion/fish/%.fish: $(BUILD)/bin/%
	$(call complete,fish)

# Manual pages with the version in their footers.
PAGES := $(patsubst docs/man/%,$(BUILD)/man/%,$(wildcard docs/man/*.[1-9]))
$(BUILD)/man/%: docs/man/% VERSION
	$(Q)mkdir -p $(@D) && sed 's/@VERSION@/$(VERSION)/' $< >$@

# Everything that is installed, as FILE:FOLDER: install and uninstall go by this one list. .pc files are made for it.
PC_FILES := $(BUILD)/pkgconfig/medusa.pc $(BUILD)/pkgconfig/medusa-sched.pc
to = $(addsuffix :$(2),$(1))
PROGRAMS = $(call to,$(INSTALLED),$(PREFIX)/bin) $(call to,$(addsuffix .$(VERSION),$(LINKED)) $(PRELOADED),$(LIBDIR)) $(call to,$(HOSTCUDA_LIB),$(LIBDIR)/medusa/hostcuda)
FILES = $(call to,$(PC_FILES),$(LIBDIR)/pkgconfig) $(call to,$(wildcard include/medusa/*.h),$(PREFIX)/include/medusa) \
	$(foreach section,1 2 3 4 5 6 7 8 9,$(call to,$(filter %.$(section),$(PAGES)),$(PREFIX)/share/man/man$(section))) \
	$(call to,$(wildcard simulator/nodes/*.yaml),$(PREFIX)/share/medusa/nodes) \
	$(call to,$(wildcard simulator/functions/*.yaml),$(PREFIX)/share/medusa/functions) \
	$(call to,$(wildcard simulator/clusters/*.yaml),$(PREFIX)/share/medusa/clusters) \
	$(call to,docs/scheduler.md docs/simulate-json.md,$(PREFIX)/share/medusa/doc) \
	$(call to,packaging/medusa-worker.service packaging/medusa-worker-kubernetes.yaml packaging/medusa-worker-grafana.json,$(PREFIX)/share/medusa) \
	$(call to,$(filter $(BUILD)/completion/bash/%,$(COMPLETIONS)),$(PREFIX)/share/bash-completion/completions) \
	$(call to,$(filter $(BUILD)/completion/zsh/%,$(COMPLETIONS)),$(PREFIX)/share/zsh/site-functions) \
	$(call to,$(filter $(BUILD)/completion/fish/%,$(COMPLETIONS)),$(PREFIX)/share/fish/vendor_completions.d)
# As TARGET:LINK.
LINKS = $(foreach name,$(notdir $(LINKED)),$(name).$(VERSION):$(LIBDIR)/$(name).$(SOVERSION) $(name).$(SOVERSION):$(LIBDIR)/$(name))
install_link = ln -sfn '$(firstword $(subst :, ,$(1)))' '$(DESTDIR)$(lastword $(subst :, ,$(1)))'
remove_link = rm -f '$(DESTDIR)$(lastword $(subst :, ,$(1)))'
install_one = install -D -m $(2) '$(firstword $(subst :, ,$(1)))' '$(DESTDIR)$(lastword $(subst :, ,$(1)))/$(notdir $(firstword $(subst :, ,$(1))))'
remove_one = rm -f '$(DESTDIR)$(lastword $(subst :, ,$(1)))/$(notdir $(firstword $(subst :, ,$(1))))'
define newline


endef

# name of library and file, description
under_prefix = $(patsubst $(PREFIX)/%,$${prefix}/%,$(1))
make_pc = $(Q)mkdir -p $(@D) && printf 'prefix=%s\nlibdir=%s\nincludedir=$${prefix}/include\n\nName: $(1)\nDescription: $(2)\nVersion: %s\nLibs: -L$${libdir} -l$(1)\nCflags: -I$${includedir}\n' '$(PREFIX)' '$(call under_prefix,$(LIBDIR))' '$(VERSION)' >$@
$(BUILD)/pkgconfig/medusa.pc: FORCE
	$(call make_pc,medusa,Materialized CUDA graphs for fast LLM engine starts)
$(BUILD)/pkgconfig/medusa-sched.pc: FORCE
	$(call make_pc,medusa-sched,Scheduler of a GPU worker node as a library)

install: libs hostcuda $(INSTALLED) $(COMPLETIONS) $(PAGES) $(PC_FILES)
	$(foreach one,$(PROGRAMS),$(call install_one,$(one),755)$(newline)	)
	$(foreach one,$(FILES),$(call install_one,$(one),644)$(newline)	)
	$(foreach one,$(LINKS),$(call install_link,$(one))$(newline)	)

# The same DESTDIR, PREFIX and LIBDIR; folders stay, but those that are Medusa's alone and empty.
uninstall:
	$(foreach one,$(PROGRAMS) $(FILES),$(call remove_one,$(one))$(newline)	)
	$(foreach one,$(LINKS),$(call remove_link,$(one))$(newline)	)
	rmdir '$(DESTDIR)$(LIBDIR)/medusa/hostcuda' '$(DESTDIR)$(LIBDIR)/medusa' 2>/dev/null || true
	$(foreach one,include/medusa share/medusa/nodes share/medusa/functions share/medusa/clusters share/medusa/doc share/medusa,rmdir '$(DESTDIR)$(PREFIX)/$(one)' 2>/dev/null || true$(newline)	)

# ---- packages: docs/packaging.md ---------------------------------------------------------------------------------
# The commands are linked for the place where Debian's libraries go; those of the tree stay as they are.
DEB := $(BUILD)/deb
MULTIARCH = $(shell $(CC) -print-multiarch)
deb:
	$(Q)rm -rf $(BUILD)/deb-stage
	$(Q)$(MAKE) -s --no-print-directory install DESTDIR=$(BUILD)/deb-stage PREFIX=/usr LIBDIR=/usr/lib/$(MULTIARCH) >/dev/null
	$(Q)packaging/deb.sh $(BUILD)/deb-stage $(DEB)
	$(Q)rm -rf $(BUILD)/deb-stage

# The PyTorch adapter as a wheel.
WHEELS := build/wheels
wheel:
	$(Q)PYTHON='$(PYTHON)' packaging/wheel.sh $(WHEELS)

# The packages in a clean root: needs root, debootstrap and a mirror.
check-packages: all deb
	$(Q)MEDUSA_BUILD=$(CURDIR)/build tests/packages.sh

clean:
	rm -rf build

ifneq ($(filter-out deps demo demo-cluster check torture fuzz lint tidy scan clean,$(or $(MAKECMDGOALS),all)),) # these compile nothing themselves
-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
endif
