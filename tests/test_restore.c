/* SPDX-License-Identifier: Apache-2.0 */
/* A cold start under libmedusa-restore.so computes what the live run computes, and refuses what is not proven right. */
#include "restore_fixture.h"

static char live_out[TEXT_BYTES];

static void set_up(void)
{
	set_up_places();
	struct run live = run_subject(NULL, NULL);
	cr_assert(live.status == 0, "the live run works: %s", live.err);
	cr_assert(count(live.out, "output") == GRAPHS * ITERATIONS, "the live run prints its results");
	snprintf(live_out, sizeof(live_out), "%s", live.out);
}

TestSuite(restore, .init = set_up, .fini = remove_places, .timeout = 600);

static void assert_right(const struct run *run)
{
	cr_assert(run->status == 0, "exit status %x: %s%s", run->status, run->err, run->log);
	cr_assert_str_eq(run->out, live_out, "outputs differ from the live run: %s%s", run->err, run->log);
	cr_assert(strstr(run->err, "held=0\n"), "memory stays allocated: %s", run->err);
}

static void assert_restored(const struct run *run, const char *from)
{
	assert_right(run);
	cr_assert(count(run->err, " restored 0") == GRAPHS, "all graphs are restored: %s%s", run->err, run->log);
	cr_assert(strstr(run->err, from), "%s: %s", from, run->err);
	cr_assert_str_eq(run->log, "", "nothing to complain about: %s", run->log);
}

static void assert_refused(const struct run *run, unsigned graphs, const char *reason)
{
	assert_right(run);
	cr_assert(count(run->err, " live ") == graphs, "%u graphs are captured live: %s%s", graphs, run->err, run->log);
	if (graphs == GRAPHS)
		cr_assert(strstr(run->err, "held by what was refused=0\n"), "before it is released: %s", run->err);
	cr_assert(strstr(run->log, reason), "the log says \"%s\": %s", reason, run->log);
}

static struct run restore(bool stored, void (*change)(struct md_artifact *), const char *const *settings)
{
	struct md_artifact artifact;
	make_artifact(&artifact, stored);
	if (change)
		change(&artifact);
	return run_subject(write_artifact(&artifact), settings);
}

/* ---- it works, each way of resolving kernels by itself ---- */

Test(restore, stored_image)
{
	struct run run = restore(true, NULL, (const char *[]){"MEDUSA_RESOLVE=stored", NULL});
	assert_restored(&run, "loaded=0 stored=4 triggered=0");
}

Test(restore, image_in_a_file)
{
	struct run run = restore(false, NULL, NULL);
	assert_restored(&run, "loaded=0 stored=4 triggered=0");
}

static void other_folder(struct md_artifact *a)
{
	free(a->images[0].path);
	a->images[0].path = strdup("/nowhere/restore_kernels.host.so");
}

Test(restore, image_in_a_file_that_the_process_has_mapped_from_another_folder)
{
	char preload[9000];
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s:%s", built("lib/libmedusa-restore.so"), image_path());
	struct run run = restore(false, other_folder, (const char *[]){preload, NULL});
	assert_restored(&run, "loaded=0 stored=4 triggered=0");
	run = restore(false, other_folder, NULL);
	assert_refused(&run, GRAPHS, "image file /nowhere/restore_kernels.host.so: No such file or directory");
}

Test(restore, image_loaded_by_the_process)
{
	struct run run = restore(false, NULL, (const char *[]){"MEDUSA_RESOLVE=loaded", "SUBJECT_LOADS_FIRST=1", NULL});
	assert_restored(&run, "loaded=4 stored=0 triggered=0");
}

Test(restore, triggering_kernels)
{
	struct run run = restore(false, NULL, (const char *[]){"MEDUSA_RESOLVE=trigger", "SUBJECT_TRIGGER=1", NULL});
	assert_restored(&run, "loaded=0 stored=0 triggered=4");
}

static void need_stack(struct md_artifact *a)
{
	a->fingerprint.limits[0] = 1024;
}

/* The background looks for work between two waits of the engine's thread, cannot read the limits, and does nothing. */
Test(restore, background_that_did_nothing_is_woken_by_the_next_wait)
{
	struct run run = restore(
	    false, need_stack,
	    (const char *[]){
		"MEDUSA_RESOLVE=trigger", "SUBJECT_TRIGGER=1",
		"HOSTCUDA_FAULT=cuCtxGetLimit/medusa-restore:*:OUT_OF_MEMORY,cuCtxGetLimit/restore_subject:*:SLOW",
		NULL});
	assert_restored(&run, "loaded=0 stored=0 triggered=4");
}

static void forget_image(struct md_artifact *a)
{
	for (uint32_t i = 0; i < KERNELS; i++)
		a->kernels[i].image = MD_NONE;
}

Test(restore, unknown_image_is_found_by_name_after_triggering)
{
	struct run run = restore(false, forget_image, (const char *[]){"SUBJECT_TRIGGER=1", NULL});
	assert_restored(&run, "loaded=0 stored=0 triggered=4");
}

Test(restore, private_memory_and_nodes_are_counted)
{
	struct run run = restore(true, NULL, NULL);
	assert_restored(&run, "restored=3 refused=0 nodes=21");
	cr_assert(strstr(run.err, "private=2048"), "temporary, table and list: %s", run.err);
}

Test(restore, binding_a_handed_out_buffer_again_is_refused)
{
	struct run run = restore(true, NULL, (const char *[]){"SUBJECT_REBIND=1", NULL});
	assert_right(&run);
	cr_assert(count(run.err, "rebind 1\n") == GRAPHS, "each is refused: %s", run.err);
	cr_assert(count(run.err, " restored 0") == 1, "what comes before it is restored: %s", run.err);
	cr_assert(count(run.err, "uses a binding that was moved after a graph with that binding was handed out") ==
		      GRAPHS - 1,
		  "what comes after it is captured live: %s", run.err);
}

Test(restore, context_destroyed_by_the_engine)
{
	struct run run = restore(true, NULL, (const char *[]){"SUBJECT_CONTEXT_DIES=1", NULL});
	assert_right(&run);
	cr_assert(count(run.err, " restored 0") == GRAPHS, "all graphs were restored: %s", run.err);
}

Test(restore, exit_in_the_midst_of_a_restore)
{
	for (int i = 0; i < 5; i++) {
		struct run run = restore(true, NULL, (const char *[]){"SUBJECT_EXITS=1", NULL});
		cr_assert(run.status == 0, "exit status %x: %s", run.status, run.err);
	}
}

Test(restore, off_in_a_forked_child)
{
	struct run run = restore(true, NULL, (const char *[]){"SUBJECT_FORKS=1", NULL});
	assert_restored(&run, "child=0\n");
}

/* ---- it refuses, and the engine goes on ---- */

static void other_device(struct md_artifact *a)
{
	strcpy(a->fingerprint.device_name, "Another Device");
}

Test(restore, should_fail_other_device)
{
	struct run run = restore(true, other_device, NULL);
	assert_refused(&run, GRAPHS, "Another Device");
	cr_assert(count(run.log, "\n") == 1, "said once: %s", run.log);
}

static void rename_kernel(struct md_artifact *a)
{
	strcpy(a->kernels[K_GATHER].name, "gathex");
}

Test(restore, should_fail_missing_kernel)
{
	struct run run = restore(true, rename_kernel, NULL);
	assert_refused(&run, GRAPHS, "gathex");
	cr_assert(count(run.log, "gathex") == GRAPHS, "once for each graph: %s", run.log);
}

static void other_layout(struct md_artifact *a)
{
	a->kernels[K_ACCUMULATE].params[3].size = 3;
}

Test(restore, should_fail_other_parameter_layout)
{
	struct run run = restore(true, other_layout, NULL);
	assert_refused(&run, GRAPHS, "accumulate");
}

static void other_content(struct md_artifact *a)
{
	a->images[0].hash.bytes[3] ^= 1;
}

Test(restore, should_fail_file_image_changed)
{
	struct run run = restore(false, other_content, NULL);
	assert_refused(&run, GRAPHS, "artifact has");
}

Test(restore, should_fail_nothing_to_resolve_from)
{
	struct run run = restore(true, NULL, (const char *[]){"MEDUSA_RESOLVE=loaded", NULL});
	assert_refused(&run, GRAPHS, "no image loaded in this process holds it");
}

Test(restore, should_fail_binding_of_another_size)
{
	struct run run = restore(true, NULL, (const char *[]){"SUBJECT_SMALL_STATE=1", NULL});
	assert_refused(&run, GRAPHS, "binding \"state\": artifact has 768 bytes, the engine 764");
}

Test(restore, should_fail_missing_binding)
{
	struct run run = restore(true, NULL, (const char *[]){"SUBJECT_NO_OUTPUT=1", NULL});
	assert_refused(&run, GRAPHS, "binding \"output\"");
}

static void one_without_proof(struct md_artifact *a)
{
	a->graphs[1].proof = MD_PROOF_NONE;
}

Test(restore, should_fail_one_graph_without_proof)
{
	struct run run = restore(true, one_without_proof, (const char *[]){"MEDUSA_REQUIRE_PROOF=1", NULL});
	cr_assert(count(run.err, " restored 0") == GRAPHS - 1, "the others are restored: %s", run.err);
	assert_refused(&run, 1, "graph step/2 is not restored");
}

Test(restore, should_fail_no_artifact)
{
	struct run run = run_subject(made("none.medusa"), NULL);
	assert_refused(&run, GRAPHS, "none.medusa");
}

Test(restore, should_fail_corrupt_artifact)
{
	struct md_artifact artifact;
	make_artifact(&artifact, true);
	char path[600];
	snprintf(path, sizeof(path), "%s", write_artifact(&artifact));
	struct stat info;
	cr_assert(stat(path, &info) == 0, "size");
	for (int part = 0; part < 8; part++) {
		int fd = open(path, O_RDWR);
		uint8_t byte;
		off_t at = info.st_size * part / 8 + 5;
		cr_assert(pread(fd, &byte, 1, at) == 1, "read");
		byte ^= 0x40;
		cr_assert(pwrite(fd, &byte, 1, at) == 1, "write");
		struct run run = run_subject(path, NULL);
		assert_refused(&run, GRAPHS, "subject.medusa: ");
		byte ^= 0x40;
		cr_assert(pwrite(fd, &byte, 1, at) == 1, "put back");
		close(fd);
	}
}

/* The last bytes of the file are the last frame's. All else is right, so only this image's kernels are missing. */
Test(restore, should_fail_damaged_image_is_named)
{
	struct md_artifact artifact;
	make_artifact(&artifact, true);
	const char *path = write_artifact(&artifact);
	struct stat info;
	uint8_t byte;
	int fd = open(path, O_RDWR);
	cr_assert(fstat(fd, &info) == 0 && pread(fd, &byte, 1, info.st_size - 1) == 1, "read");
	byte ^= 1;
	cr_assert(pwrite(fd, &byte, 1, info.st_size - 1) == 1, "write");
	close(fd);
	struct run run = run_subject(path, NULL);
	assert_refused(&run, GRAPHS, "section \"image_data\": image 0 (");
	cr_assert(strstr(run.log, "checksum differs"), "%s", run.log);
	cr_assert(count(run.log, "graph step/") == GRAPHS, "once for each graph: %s", run.log);
}

/* ---- the driver fails: the live path must not be hurt by what the restore tried ---- */

static void assert_survives(const char *fault, const char *entry)
{
	struct run run = restore(true, NULL, (const char *[]){fault, NULL});
	assert_right(&run);
	cr_assert(count(run.err, " live ") > 0, "%s: some graph is captured live: %s", fault, run.err);
	cr_assert(strstr(run.log, entry), "%s: the log names %s: %s", fault, entry, run.log);
}

Test(restore, should_fail_driver_has_no_memory_for_the_arena)
{
	/* The subject's own four come first. */
	assert_survives("HOSTCUDA_FAULT=cuMemAlloc_v2:5:OUT_OF_MEMORY", "cuMemAlloc_v2");
}

/* A thread in the common mode would break an engine's capture with a call that is prohibited there. */
Test(restore, should_fail_driver_cannot_relax_the_capture_mode)
{
	assert_survives("HOSTCUDA_FAULT=cuThreadExchangeStreamCaptureMode:*:UNKNOWN",
			"cannot be used in another thread");
}

Test(restore, should_fail_driver_cannot_instantiate)
{
	assert_survives("HOSTCUDA_FAULT=cuGraphInstantiateWithFlags:1:OUT_OF_MEMORY", "cuGraphInstantiateWithFlags");
}

Test(restore, should_fail_driver_cannot_load_an_image)
{
	assert_survives("HOSTCUDA_FAULT=cuLibraryLoadData:1:INVALID_IMAGE", "cuLibraryLoadData");
}

Test(restore, should_fail_driver_cannot_add_a_node)
{
	assert_survives("HOSTCUDA_FAULT=cuGraphAddKernelNode_v2:2:OUT_OF_MEMORY", "node");
}

Test(restore, should_fail_driver_cannot_upload)
{
	assert_survives("HOSTCUDA_FAULT=cuGraphUpload:1:OUT_OF_MEMORY", "cuGraphUpload");
}

/* ---- modules that go away ---- */

static struct run restore_loaded(const char *third, const char *fourth)
{
	return restore(false, NULL,
		       (const char *[]){"MEDUSA_RESOLVE=loaded", "SUBJECT_LOADS_FIRST=1", third, fourth, NULL});
}

Test(restore, module_that_goes_while_the_engine_runs_is_told)
{
	struct run run = restore_loaded("SUBJECT_ENDS_EARLY=unload", NULL);
	cr_assert(run.status == 0, "exit status %x: %s", run.status, run.err);
	cr_assert(count(run.log, "the engine unloaded the module") == GRAPHS - 1, "those not handed out: %s", run.log);
}

Test(restore, module_that_goes_in_exit_is_not)
{
	struct run run = restore_loaded("SUBJECT_ENDS_EARLY=1", "SUBJECT_UNLOADS_AT_EXIT=1");
	cr_assert(run.status == 0, "exit status %x: %s", run.status, run.err);
	cr_assert(count(run.log, "unloaded") == 0, "nobody asks for a graph any more: %s", run.log);
	cr_assert(strstr(run.err, "graph 1 restored"), "a restore took place: %s", run.err);
}
