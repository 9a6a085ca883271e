/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: on which GPU a function runs, and from where the artifacts that it lacks there are copied. */
#include "base/splitmix.h"
#include "scheduler/core/books.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/evict.h"
#include "scheduler/core/state.h"
#include "scheduler/policy/cost.h"
#include "scheduler/policy/policies.h"

static bool can(struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	return md_slot_free(s, gpu) && md_fits(s, function, gpu);
}

/* A GPU with a free slot where all of it is; of several, the one with the fewest batches. */
static uint32_t resident(struct medusa_sched *s, uint32_t function)
{
	uint32_t best = NONE;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		if (md_all_there(s, function, gpu) && can(s, function, gpu) &&
		    (best == NONE || s->gpus[gpu].running < s->gpus[best].running))
			best = gpu;
	}
	return best;
}

/* ---- first, random, early --------------------------------------------------------------------------------------- */

static struct md_choice first_choose(struct medusa_sched *s, uint32_t function)
{
	uint32_t gpu = resident(s, function);
	for (uint32_t g = 0; gpu == NONE && g < s->gpu_count; g++)
		gpu = can(s, function, g) ? g : NONE;
	return (struct md_choice){gpu, NONE};
}

/* ---- room: what Ollama does with several GPUs -------------------------------------------------------------------- */

/* Where most memory is free beside what the function lacks there. */
static uint32_t roomiest(struct medusa_sched *s, uint32_t function)
{
	uint32_t best = NONE;
	int64_t most = 0;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		int64_t room = md_free_bytes(s, gpu) - (int64_t)md_missing_bytes(s, function, gpu);
		if (can(s, function, gpu) && (best == NONE || room > most)) {
			best = gpu;
			most = room;
		}
	}
	return best;
}

static struct md_choice room_choose(struct medusa_sched *s, uint32_t function)
{
	uint32_t gpu = resident(s, function);
	return (struct md_choice){gpu != NONE ? gpu : roomiest(s, function), NONE};
}

/* ---- xlora: where the backbone is, then where there is room without evicting (section 3.1, locality) ------------- */

/* Of the GPUs that hold the backbone, the one with the fewest batches. */
static uint32_t beside_backbone(struct medusa_sched *s, uint32_t function)
{
	uint32_t backbone = s->functions[function].artifacts[MEDUSA_SCHED_CLASS_BACKBONE], best = NONE;
	for (uint32_t gpu = 0; backbone != NONE && gpu < s->gpu_count; gpu++) {
		int state = md_copy_at(s, backbone, gpu)->state;
		if ((state == MD_THERE || state == MD_LOADING) && can(s, function, gpu) &&
		    (best == NONE || s->gpus[gpu].running < s->gpus[best].running))
			best = gpu;
	}
	return best;
}

static struct md_choice xlora_choose(struct medusa_sched *s, uint32_t function)
{
	uint32_t gpu = resident(s, function);
	if (gpu == NONE)
		gpu = beside_backbone(s, function);
	return (struct md_choice){gpu != NONE ? gpu : roomiest(s, function), NONE};
}

/* A random number: a Weyl sequence, passed through a mixing function. */
static uint64_t random_number(struct medusa_sched *s)
{
	uint64_t x = s->random += MD_RANDOM_STEP;
	x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ull;
	x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ull;
	return x ^ (x >> 32);
}

static struct md_choice random_choose(struct medusa_sched *s, uint32_t function)
{
	uint32_t gpu = resident(s, function), count = 0;
	if (gpu != NONE)
		return (struct md_choice){gpu, NONE};
	for (uint32_t g = 0; g < s->gpu_count; g++) {
		/* each of the GPUs so far is chosen with equal probability */
		if (can(s, function, g) && random_number(s) % ++count == 0)
			gpu = g;
	}
	return (struct md_choice){gpu, NONE};
}

static struct md_choice early_choose(struct medusa_sched *s, uint32_t function)
{
	uint32_t home = s->functions[function].home;
	return (struct md_choice){home != NONE && can(s, function, home) ? home : NONE, NONE};
}

/* ---- torpor: algorithm 1 ---------------------------------------------------------------------------------------- */

enum { IDLE, LIGHT, HEAVY };

/* The number of loads from the host to GPUs behind the same PCIe switch. */
static int neighbours(const struct medusa_sched *s, uint32_t gpu)
{
	int loading = IDLE;
	for (uint32_t other = 0; other < s->gpu_count; other++) {
		if (other == gpu || s->gpus[other].pcie_switch != s->gpus[gpu].pcie_switch)
			continue;
		int state = s->gpus[other].host_in_heavy ? HEAVY : s->gpus[other].host_in ? LIGHT : IDLE;
		loading = state > loading ? state : loading;
	}
	return loading;
}

static struct md_choice torpor_choose(struct medusa_sched *s, uint32_t function)
{
	struct md_choice choice = {resident(s, function), NONE};
	if (choice.gpu != NONE)
		return choice;
	double fastest = 0;
	int quietest = HEAVY + 1;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		if (!can(s, function, gpu))
			continue;
		uint32_t peer = md_best_peer(s, function, gpu);
		double speed = peer == NONE ? 0 : s->peers[(size_t)peer * s->gpu_count + gpu];
		int loading = neighbours(s, gpu);
		if (speed > fastest || (fastest == 0 && loading < quietest)) {
			choice = (struct md_choice){gpu, speed > 0 ? peer : NONE};
			fastest = speed > fastest ? speed : fastest;
			quietest = loading;
		}
	}
	return choice;
}

/* ---- medusa ------------------------------------------------------------------------------------------------------ */

/*
 * Chooses the GPU where the first token is expected earliest. M batches that compute their first token on one GPU take
 * M times as long (xLoRA, equation 5), so that in a burst all are late, where some would be in time if they ran one
 * after the other. Hence batches take turns.
 */

/* A batch beside it that has its first token slows it by this share of its own time. */
#define BESIDE_TOKENS 0.25
/*
 * A batch is waited for at most so many times the time that it takes alone, because a node may report no first tokens.
 */
#define TURN 4

static bool ready_at(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	for (int kind = 0; kind < MEDUSA_SCHED_CLASS_LIBRARY; kind++) {
		uint32_t artifact = s->functions[function].artifacts[kind];
		if (artifact != NONE && md_copy_at(s, artifact, gpu)->state != MD_THERE)
			return false;
	}
	return true;
}

/* Batches that compute their first token there, except those that still wait for copies. */
static uint32_t computing(const struct medusa_sched *s, uint32_t gpu)
{
	const struct md_gpu *g = &s->gpus[gpu];
	uint32_t count = 0, seen = 0;
	for (uint32_t i = g->first_batch; i != NONE && seen < g->prefilling; i = s->batches[i].newer) {
		const struct md_batch *b = &s->batches[i];
		if (b->first_token)
			continue;
		seen++;
		uint64_t alone = md_first_token_ns(s, b->function, b->requests.count);
		count += s->now - b->started <= TURN * alone && ready_at(s, b->function, gpu);
	}
	return count;
}

/* The same, counted once for all functions that are looked at between two starts. */
static uint32_t computing_now(struct medusa_sched *s, uint32_t gpu)
{
	struct md_gpu *g = &s->gpus[gpu];
	if (g->ahead_look != s->look) {
		g->ahead = computing(s, gpu);
		g->ahead_look = s->look;
	}
	return g->ahead;
}

/* By how much what runs there makes computing longer. */
static double beside_ns(const struct medusa_sched *s, uint32_t function, uint32_t gpu, uint32_t ahead)
{
	return (double)s->functions[function].spec.t0_ns * (ahead + BESIDE_TOKENS * (s->gpus[gpu].running - ahead));
}

/*
 * Copies that share the switch's link make loading take longer; batches that run beside this one make computing take
 * longer.
 */
static double expected_ns(struct medusa_sched *s, uint32_t function, uint32_t gpu, uint32_t peer, uint32_t ahead)
{
	double takes = (double)md_start_ns(s, function, gpu, peer),
	       computes = (double)s->functions[function].spec.t0_ns;
	if (peer == NONE && takes > computes) {
		uint32_t beside = 0;
		for (uint32_t other = 0; other < s->gpu_count; other++)
			beside += s->gpus[other].pcie_switch == s->gpus[gpu].pcie_switch ? s->gpus[other].host_in : 0;
		takes += (takes - computes) * beside;
	}
	return takes + beside_ns(s, function, gpu, ahead);
}

/* No start takes less, wherever artifacts are. */
static double least_start_ns(const struct medusa_sched_function *spec)
{
	uint64_t least = spec->t0_ns;
	least = spec->swap_ns && spec->swap_ns < least ? spec->swap_ns : least;
	return (double)(spec->swap_peer_ns && spec->swap_peer_ns < least ? spec->swap_peer_ns : least);
}

/* What evictions for it would cost: bytes that are not free, at the GPU's mean value of a byte; in ns of loading. */
static double displaced_ns(const struct medusa_sched *s, uint32_t function, uint32_t gpu)
{
	int64_t lacking = (int64_t)md_missing_bytes(s, function, gpu) - md_free_bytes(s, gpu);
	return lacking > 0 ? 0.25 * (double)lacking / s->host_bytes_per_s * 1e9 : 0;
}

static struct md_choice medusa_choose(struct medusa_sched *s, uint32_t function)
{
	struct md_choice best = {NONE, NONE};
	double least = 0, bound = least_start_ns(&s->functions[function].spec);
	bool turn = true; /* it need not wait for others */
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		if (!md_slot_free(s, gpu))
			continue;
		uint32_t ahead = computing_now(s, gpu);
		if (best.gpu != NONE && bound + beside_ns(s, function, gpu, ahead) >= least)
			continue;
		if (!md_fits(s, function, gpu))
			continue;
		uint32_t peer = md_all_there(s, function, gpu) ? NONE : md_best_peer(s, function, gpu);
		double cost = expected_ns(s, function, gpu, peer, ahead) + displaced_ns(s, function, gpu);
		if (best.gpu == NONE || cost < least) {
			best = (struct md_choice){gpu, peer};
			least = cost;
			turn = !ahead || !ready_at(s, function, gpu);
		}
	}
	return turn ? best : (struct md_choice){NONE, NONE};
}

static const struct md_placement first = {"first", "where it is, else the first GPU with room", false, first_choose};
static const struct md_placement room = {"room", "where it is, else where most memory is free (Ollama)", false,
					 room_choose};
static const struct md_placement xlora = {
    "xlora", "where it is, else where its backbone is, else where most memory is free (xLoRA, section 3.1)", false,
    xlora_choose};
static const struct md_placement draw = {
    "random", "where it is, else a random GPU with room, from the host (Torpor-Random)", false, random_choose};
static const struct md_placement early = {
    "early", "on one GPU for ever, bound when it is registered (Torpor's Native; SwapServeLLM, section 6)", true,
    early_choose};
static const struct md_placement torpor = {
    "torpor", "where it is, else from the fastest peer, else where the PCIe switch is quietest (Torpor, algorithm 1)",
    false, torpor_choose};
static const struct md_placement medusa = {"medusa",
					   "ours: where the first token is expected first, with copies, batches beside "
					   "it and what it displaces; first tokens in turn",
					   false, medusa_choose};

const struct md_placement *const md_placements[] = {&medusa, &first, &room, &draw, &early, &torpor, &xlora, NULL};
