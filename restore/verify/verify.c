/* SPDX-License-Identifier: Apache-2.0 */
/* Verify mode: the engine captures live, and each labelled graph's outputs are compared with its restored twin's. */
#define MD_LOG_DOMAIN "verify"

#include "base/clock.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/note.h"
#include "driver/replay_watch.h"
#include "format/verify_line.h"
#include "ranks/lockstep.h"
#include "restore/agree.h"
#include "restore/background.h"
#include "restore/bindings.h"
#include "restore/constants.h"
#include "restore/graph_state.h"
#include "restore/patch.h"
#include "restore/resolve.h"
#include "restore/restore_facts.h"
#include "restore/stages.h"
#include "restore/verify/buffers.h"
#include "restore/verify/doubt.h"
#include "restore/verify/doubtful_words.h"
#include "restore/verify/handed_copies.h"
#include "restore/verify/inputs.h"
#include "restore/verify/live_graphs.h"
#include "restore/verify/originals.h"
#include "restore/verify/report_lines.h"
#include "restore/verify/twins.h"
#include "restore/verify/unbound_outputs.h"
#include "restore/verify/verify.h"

static enum md_status resolve_all(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
    MD_REQUIRES(md_restore_work)
{
	for (uint32_t i = 0; i < graph->kernel_count; i++) {
		struct md_restore_kernel *kernel = &r->kernels[graph->kernels[i]];
		if (kernel->state == MD_KERNEL_PENDING || kernel->state == MD_KERNEL_TRIGGER)
			md_restore_kernel_resolve(r, graph->kernels[i]);
		if (kernel->state != MD_KERNEL_RESOLVED)
			return md_error_set(err, kernel->reason.status, "%s", kernel->reason.message);
	}
	return MD_OK;
}

/* The tolerance that the user accepts for nondeterministic graphs. Under work. */
static const struct md_tolerance *tolerance(void)
{
	static struct md_tolerance accepted = {.type = MD_ELEMENT_F32};
	static bool known;
	const char *text = known ? NULL : md_environment_get("MEDUSA_NONDETERMINISTIC");
	if (text && *text && !md_tolerance_parse(text, &accepted))
		md_warn("MEDUSA_NONDETERMINISTIC=%s is not ULPS[:TYPE]: no nondeterministic graph is accepted", text);
	known = true;
	return &accepted;
}

/* The restored graph, or NULL and the reason why it cannot be compared. */
static struct md_restore_graph *find_restored(struct md_restore *r, const struct md_live_graph *live,
					      struct md_error *err)
{
	pthread_mutex_lock(&md_restore_lock);
	md_restore_wait_open(r, UINT64_MAX);
	r->trigger_done = true; /* the engine's own warm-up was the trigger */
	bool open = r->phase == MD_PHASE_OPEN;
	struct md_restore_graph *graph = open ? md_restore_find(r, live->label, live->batch) : NULL;
	if (r->refusal.status)
		*err = r->refusal;
	else if (!open)
		md_error_set(err, MD_ERR_NOT_FOUND, "%s",
			     r->failure.status ? r->failure.message : "nothing is being restored");
	else if (!graph)
		md_error_set(err, MD_ERR_NOT_FOUND, "the artifact has no such graph");
	else if (graph->state == MD_GRAPH_REFUSED)
		*err = graph->reasons->refused;
	else if (md_restore_facts_check(r, err) == MD_OK && md_restore_limits_check(r, err) == MD_OK)
		md_restore_bindings_check(r, graph, err);
	pthread_mutex_unlock(&md_restore_lock);
	return err->status ? NULL : graph;
}

/* Refuses a graph that a cold start would not hand out. */
static enum md_status check_constants(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
    MD_REQUIRES(md_restore_work)
{
	pthread_mutex_lock(&md_restore_lock);
	bool open = md_restore_constants_open(r, graph);
	pthread_mutex_unlock(&md_restore_lock);
	if (open)
		MD_FORWARD(md_restore_constants_hash(r, err));
	pthread_mutex_lock(&md_restore_lock);
	enum md_status status = md_restore_constants_check(r, graph, err);
	pthread_mutex_unlock(&md_restore_lock);
	return status;
}

/* A failure before the first replay shows nothing about the graph: it is skipped. So is a graph that cannot be read back. */
static enum md_verdict judge(struct md_restore *r, struct md_restore_graph *graph, const struct md_live_graph *live,
			     struct md_verify_subject *subject, struct md_error *err) MD_REQUIRES(md_restore_work)
    MD_REQUIRES(md_verify_table_lock)
{
	if (!md_verify_report_begin(live->label, live->batch)) {
		md_error_set(err, MD_ERR_IO, "the report cannot be written");
		return MD_VERDICT_SKIPPED;
	}
	if (md_verify_outputs_match(r, graph->stored, live->outputs, live->output_count, err) != MD_OK)
		return MD_VERDICT_FAIL;
	if (md_verify_handed_init(&subject->handed, r, graph, live, err) != MD_OK ||
	    md_verify_outputs_init(&subject->outputs, live->outputs, live->output_count, &subject->handed, err) !=
		MD_OK)
		return MD_VERDICT_FAIL;
	if (graph->reasons->too_late.status) {
		*err = graph->reasons->too_late;
		return MD_VERDICT_FAIL;
	}
	if (check_constants(r, graph, err) != MD_OK || resolve_all(r, graph, err) != MD_OK ||
	    md_cuda_call(err, cuCtxSynchronize) != MD_OK || md_verify_memory_init(&subject->memory, r, err) != MD_OK)
		return MD_VERDICT_SKIPPED;
	const struct md_device_hasher *hasher =
	    subject->memory.session.hasher.function ? &subject->memory.session.hasher : &r->hasher;
	if (md_verify_inputs_read(r, graph, &subject->handed, hasher, &subject->inputs, err) != MD_OK)
		return MD_VERDICT_SKIPPED;
	if (md_verify_originals_init(&subject->originals, r, &subject->memory.session.device, err) != MD_OK)
		return MD_VERDICT_SKIPPED;
	enum md_status status = md_verify_twins_compare(r, graph, live->exec, subject, err);
	if (status == MD_ERR_DRIVER_MISSING) /* see verify/read_back.h */
		return MD_VERDICT_SKIPPED;
	if (status != MD_OK)
		return MD_VERDICT_FAIL;
	if (subject->nondeterministic)
		return MD_VERDICT_NONDETERMINISTIC;
	md_verify_memory_name_sampled(&subject->memory, err->message, sizeof(err->message));
	return MD_VERDICT_PASS;
}

/* Notes what is about to be tried, because a replay that breaks may end the process. */
static enum md_verdict judge_noted(struct md_restore *r, struct md_restore_graph *graph,
				   const struct md_live_graph *live, struct md_verify_subject *subject,
				   struct md_error *err) MD_REQUIRES(md_restore_work) MD_REQUIRES(md_verify_table_lock)
{
	const struct md_note_of of = {MD_NOTE_PROOF, live->label, live->batch, 0};
	const char *left_out = md_note_left_out(&of);
	enum md_verdict verdict;
	if (left_out) {
		md_error_set(err, MD_ERR_UNPROVABLE, "%s", left_out);
		return MD_VERDICT_FAIL;
	}
	md_note_begin(&of, "");
	verdict = judge(r, graph, live, subject, err);
	if (verdict == MD_VERDICT_FAIL)
		md_replay_check_context(err);
	md_note_end();
	return verdict;
}

/* Live replays differ among themselves in some of these elements. A tolerance that the user gives decides. */
static bool scatters(const struct md_verify_subject *subject, enum md_verdict verdict)
{
	return !subject->doubt.tolerance.given &&
	       (verdict == MD_VERDICT_NONDETERMINISTIC ||
		(verdict == MD_VERDICT_FAIL && md_verify_doubt_ask(&subject->doubt) == MD_DOUBT_SOME));
}

/* Also of a graph that cannot be compared here: the other ranks are told why, and do not wait. */
static bool communicates(struct md_restore *r, const struct md_live_graph *live)
{
	pthread_mutex_lock(&md_restore_lock);
	const struct md_restore_graph *graph =
	    r->phase == MD_PHASE_OPEN ? md_restore_find(r, live->label, live->batch) : NULL;
	bool does = graph && graph->communicates;
	pthread_mutex_unlock(&md_restore_lock);
	return does;
}

/* What ranks do not compare together fails in each of them: nobody knows what a restored graph would do. */
static enum md_verdict judge_together(struct md_restore *r, struct md_restore_graph *graph, struct md_live_graph *live,
				      struct md_verify_subject *subject, struct md_error *err)
    MD_REQUIRES(md_restore_work) MD_REQUIRES(md_verify_table_lock)
{
	const struct md_rank *rank = md_restore_together();
	struct md_error lost = {0};
	live->communicates = true;
	if (!rank)
		return MD_VERDICT_SKIPPED; /* the graph is refused by that */
	if (md_lockstep_begin(&subject->lockstep, rank, "the verification", live->label, live->batch, &lost) != MD_OK) {
		*err = lost;
		return MD_VERDICT_FAIL;
	}
	enum md_verdict verdict = graph ? judge_noted(r, graph, live, subject, err) : MD_VERDICT_FAIL;
	if (verdict != MD_VERDICT_PASS) {
		md_lockstep_end(&subject->lockstep, err->status ? err->status : MD_ERR_UNPROVABLE, err);
		return MD_VERDICT_FAIL;
	}
	if (md_lockstep_end(&subject->lockstep, MD_OK, &lost) == MD_OK)
		return verdict;
	*err = lost;
	return MD_VERDICT_FAIL;
}

static void verify(struct md_restore *r, struct md_live_graph *live, bool own) MD_REQUIRES(md_restore_work)
    MD_REQUIRES(md_verify_table_lock)
{
	struct md_error err = {0};
	struct md_verify_subject subject = {.doubt.tolerance = *tolerance()};
	uint64_t started = md_clock_ns();
	struct md_restore_graph *graph = find_restored(r, live, &err);
	enum md_verdict verdict = communicates(r, live) ? judge_together(r, graph, live, &subject, &err)
				  : graph               ? judge_noted(r, graph, live, &subject, &err)
							: MD_VERDICT_SKIPPED;
	if (graph)
		md_restore_patch_noise(graph, 0);
	if (!own && scatters(&subject, verdict))
		verdict = MD_VERDICT_DROPPED;
	md_verify_doubt_finish(&subject.doubt);
	md_verify_outputs_finish(&subject.outputs);
	md_verify_handed_finish(&subject.handed);
	md_verify_originals_finish(&subject.originals);
	live->sampled = subject.memory.sampled_count > 0;
	md_debug("graph %s/%u: compared in %.6f s, moved %llu bytes between host and device, %u replays", live->label,
		 live->batch, (double)(md_clock_ns() - started) / 1e9,
		 (unsigned long long)subject.memory.session.device.moved_bytes, subject.replays);
	md_verify_memory_finish(&subject.memory);
	bool passed = verdict == MD_VERDICT_PASS || verdict == MD_VERDICT_NONDETERMINISTIC;
	if (passed)
		md_verify_inputs_note(live, &subject.inputs);
	live->passed |= passed;
	live->effects |= subject.effects;
	md_verify_report(live->label, live->batch, verdict, subject.bytes, err.message);
}

bool md_verify_compare(struct md_live_graph *live, bool own)
{
	struct md_restore *r = &md_restore;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext popped;
	if (!live->exec || atomic_load(&r->captures)) /* synchronizing would break it */
		return false;
	pthread_mutex_lock(&md_restore_work);
	bool pushed = r->context && md_cuda.cuCtxPushCurrent_v2(r->context) == CUDA_SUCCESS;
	if (pushed)
		md_cuda.cuThreadExchangeStreamCaptureMode(&mode);
	if (pushed || !r->context) /* without one nothing is restored, and the report says why */
		verify(r, live, own);
	if (pushed) {
		md_cuda.cuThreadExchangeStreamCaptureMode(&mode);
		md_cuda.cuCtxPopCurrent_v2(&popped);
	}
	bool compared = pushed || !r->context;
	pthread_mutex_unlock(&md_restore_work);
	return compared;
}
