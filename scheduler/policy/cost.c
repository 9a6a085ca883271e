/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates of what starting a function somewhere takes; placement, eviction and queueing share them. */
#include "scheduler/core/state.h"
#include "scheduler/policy/cost.h"

#define RATE_AGE 100000000u /* ns */

bool md_has_copy(const struct medusa_sched *s, uint32_t function)
{
	uint32_t weights = s->functions[function].artifacts[MEDUSA_SCHED_CLASS_WEIGHTS];
	return weights == NONE || s->artifacts[weights].copies;
}

uint64_t md_first_token_ns(const struct medusa_sched *s, uint32_t function, uint32_t batch)
{
	const struct medusa_sched_function *spec = &s->functions[function].spec;
	return spec->t0_ns + (batch > 1 ? (batch - 1) * spec->alpha_ns : 0);
}

static uint64_t copy_ns(uint64_t bytes, double bytes_per_s)
{
	return bytes_per_s > 0 ? md_copy_ns(bytes, bytes_per_s) : 0;
}

static double peer_speed(const struct medusa_sched *s, uint32_t from, uint32_t to)
{
	return from == NONE ? 0 : s->peers[(size_t)from * s->gpu_count + to];
}

static bool there(const struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	return md_copy_at(s, artifact, gpu)->state == MD_THERE;
}

bool md_all_there(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		uint32_t artifact = s->functions[function].artifacts[kind];
		if (artifact == NONE)
			continue;
		int state = md_copy_at(s, artifact, gpu)->state;
		if (state != MD_THERE && state != MD_LOADING)
			return false;
	}
	return true;
}

uint64_t md_missing_bytes(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	uint64_t bytes = 0;
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		uint32_t artifact = s->functions[function].artifacts[kind];
		if (artifact == NONE)
			continue;
		int state = md_copy_at(s, artifact, gpu)->state;
		if (state == MD_SUSPENDED)
			bytes += s->artifacts[artifact].bytes - s->functions[function].spec.residue_bytes;
		else if (state == MD_ABSENT || state == MD_LEAVING)
			bytes += s->artifacts[artifact].bytes;
	}
	return bytes;
}

/* Weights that the function lacks on the GPU, and that another GPU holds; returns how many. */
static uint32_t held_elsewhere(const struct medusa_sched *s, uint32_t function, uint32_t gpu, uint32_t *lacking)
{
	const uint32_t *artifacts = s->functions[function].artifacts;
	uint32_t count = 0;
	for (int kind = MEDUSA_SCHED_CLASS_BACKBONE; kind <= MEDUSA_SCHED_CLASS_WEIGHTS; kind++) {
		uint32_t artifact = artifacts[kind];
		if (artifact != NONE && s->artifacts[artifact].copies && !there(s, artifact, gpu))
			lacking[count++] = artifact;
	}
	return count;
}

uint32_t md_best_peer(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	uint32_t best = NONE, lacking[2], count = held_elsewhere(s, function, gpu, lacking);
	uint64_t most = 0;
	for (uint32_t peer = 0; count && peer < s->gpu_count; peer++) {
		uint64_t bytes = 0;
		for (uint32_t i = 0; i < count; i++)
			bytes += md_copy_readable(s, lacking[i], peer) ? s->artifacts[lacking[i]].bytes : 0;
		if (!bytes || bytes < most || peer == gpu)
			continue;
		double speed = peer_speed(s, peer, gpu);
		if (speed > 0 && (bytes > most || speed > peer_speed(s, best, gpu))) {
			best = peer;
			most = bytes;
		}
	}
	return best;
}

/* Time to bring one artifact to gpu: from the peer if it holds it, else from the host, else from cold. */
static uint64_t fetch_ns(const struct medusa_sched *s, uint32_t artifact, uint32_t gpu, uint32_t peer)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	if (a->kind == MEDUSA_SCHED_CLASS_CONTEXT)
		return s->functions[a->owner].spec.context_ns;
	if (peer != NONE && md_copy_readable(s, artifact, peer) && peer_speed(s, peer, gpu) > 0)
		return copy_ns(a->bytes, peer_speed(s, peer, gpu));
	uint64_t stated = a->kind == MEDUSA_SCHED_CLASS_BACKBONE ? s->backbones[a->owner].spec.load_ns : 0;
	return (stated ? stated : copy_ns(a->bytes, s->host_bytes_per_s)) + (a->host == MD_THERE ? 0 : a->cold_ns);
}

uint64_t md_start_ns(const struct medusa_sched *s, uint32_t function, uint32_t gpu, uint32_t peer)
{
	const struct md_function *f = &s->functions[function];
	uint32_t own = f->artifacts[MEDUSA_SCHED_CLASS_WEIGHTS];
	bool from_peer = peer != NONE && own != NONE && md_copy_readable(s, own, peer);
	uint64_t copies = 0, made = 0, swapped = from_peer ? f->spec.swap_peer_ns : f->spec.swap_ns;
	bool weights = false;
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		uint32_t artifact = f->artifacts[kind];
		if (artifact == NONE || there(s, artifact, gpu))
			continue;
		if (kind == MEDUSA_SCHED_CLASS_CONTEXT) {
			made += f->spec.context_ns;
		} else if (kind == MEDUSA_SCHED_CLASS_WEIGHTS && swapped) {
			weights = true;
			copies += s->artifacts[artifact].host == MD_THERE || peer != NONE
				      ? 0
				      : s->artifacts[artifact].cold_ns;
		} else {
			copies += fetch_ns(s, artifact, gpu, peer);
		}
	}
	uint32_t library = f->artifacts[MEDUSA_SCHED_CLASS_LIBRARY];
	if (library != NONE && s->artifacts[library].host != MD_THERE)
		made += s->artifacts[library].cold_ns;
	return copies + made + (weights ? swapped : f->spec.t0_ns);
}

uint64_t md_reload_ns(const struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	uint32_t best = NONE;
	for (uint32_t peer = 0; a->kind != MEDUSA_SCHED_CLASS_CONTEXT && a->copies && peer < s->gpu_count; peer++) {
		if (peer != gpu && md_copy_readable(s, artifact, peer) &&
		    peer_speed(s, peer, gpu) > peer_speed(s, best, gpu))
			best = peer;
	}
	if (a->kind == MEDUSA_SCHED_CLASS_WEIGHTS) {
		const struct medusa_sched_function *spec = &s->functions[a->owner].spec;
		uint64_t swap = best == NONE ? spec->swap_ns : spec->swap_peer_ns;
		if (swap)
			return (swap > spec->t0_ns ? swap - spec->t0_ns : 0) +
			       (best == NONE && a->host != MD_THERE ? a->cold_ns : 0);
	}
	return fetch_ns(s, artifact, gpu, best);
}

double md_artifact_rate(struct medusa_sched *s, uint32_t artifact)
{
	const struct md_sched_artifact *a = &s->artifacts[artifact];
	if (a->kind != MEDUSA_SCHED_CLASS_BACKBONE)
		return md_rate_per_s(&s->functions[a->owner].rate, s->now);
	/* a backbone may have thousands of users, so the sum is kept, and may be a little old */
	struct md_backbone *backbone = &s->backbones[a->owner];
	if (backbone->rated_at && s->now - backbone->rated_at < RATE_AGE)
		return backbone->rate;
	backbone->rate = 0;
	backbone->rated_at = s->now;
	for (uint32_t f = backbone->first_user; f != NONE; f = s->functions[f].next_user)
		backbone->rate += md_rate_per_s(&s->functions[f].rate, s->now);
	return backbone->rate;
}

/* The time that its further tokens take, if it is known how many are expected. */
static uint64_t further_ns(const struct medusa_sched *s, const struct md_request *r)
{
	uint64_t token = s->functions[r->function].spec.token_ns, tokens = r->tokens ? r->tokens - 1 : 0;
	return token && tokens > UINT64_MAX / token ? UINT64_MAX : tokens * token;
}

static uint64_t before(uint64_t at, uint64_t ns)
{
	return at == UINT64_MAX ? at : at > ns ? at - ns : 0;
}

uint64_t md_deadline(const struct medusa_sched *s, uint32_t request)
{
	const struct md_request *r = &s->requests[request];
	const struct medusa_sched_function *spec = &s->functions[r->function].spec;
	uint64_t further = further_ns(s, r), hard = before(r->deadline, further);
	if (!spec->slo_ns || r->first_token)
		return hard;
	uint64_t slo = r->arrived + spec->slo_ns;
	if (spec->slo_goal == MEDUSA_SCHED_GOAL_COMPLETION)
		slo = before(slo, further);
	return slo < hard ? slo : hard;
}
