/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/first_token.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define HOP_S 0.005    /* what a node must be better by: what is known of it is a little old */
#define HOP_PART 1.1   /* and by this part */
#define RATHER_NOT 1e6 /* seconds: only if nobody else has it */
#define STEP 1.25      /* from one number of seconds that is told to the next */
#define MEMORY_S 120.0
#define LEAST (1.0 / 1024) /* what is less is told as 0 */

static const char *const names[MD_PLACES] = {"gpu", "host", "loading", "disk", "nowhere"};

const char *md_place_name(enum md_place place)
{
	return names[place];
}

bool md_place_find(const char *name, enum md_place *place)
{
	for (unsigned i = 0; name && i < MD_PLACES; i++)
		if (!strcmp(names[i], name)) {
			*place = (enum md_place)i;
			return true;
		}
	return false;
}

/* ---- for others ---- */

static uint32_t floor_of(uint32_t count)
{
	uint32_t power = 1;
	while (power <= count / 2)
		power *= 2;
	return count ? power : 0;
}

static double round_s(double seconds)
{
	return seconds > 0 ? pow(STEP, round(log(seconds) / log(STEP))) : seconds;
}

void md_standing_round(struct md_standing *standing)
{
	standing->waiting = floor_of(standing->waiting);
	standing->running = floor_of(standing->running);
	for (unsigned i = 0; i < MD_STARTS; i++)
		standing->first_s[i] = round_s(standing->first_s[i]);
	standing->prefill_s = round_s(standing->prefill_s);
	standing->rest_s = round_s(standing->rest_s);
}

bool md_standing_equal(const struct md_standing *a, const struct md_standing *b)
{
	bool equal = a->place == b->place && a->waiting == b->waiting && a->running == b->running &&
		     a->lacks == b->lacks && !(a->rate < b->rate) && !(a->rate > b->rate) && !(a->busy < b->busy) &&
		     !(a->busy > b->busy) && a->uncached == b->uncached && a->life == b->life &&
		     fabs(a->prefill_s - b->prefill_s) <= 1e-3 * b->prefill_s &&
		     fabs(a->rest_s - b->rest_s) <= 1e-3 * b->rest_s;
	for (unsigned i = 0; i < MD_STARTS; i++)
		equal = equal && fabs(a->first_s[i] - b->first_s[i]) <= 1e-3 * b->first_s[i];
	return equal;
}

/* What is told changes only when it is off by a factor of two, so that what moves slowly is not told over and over. */
static double tell(double now, double told)
{
	if (told > 0 && now >= told / 2 && now < told * 2)
		return told;
	return now < LEAST ? 0 : exp2(floor(log2(now)));
}

void md_demand_note(struct md_demand *demand, uint64_t taken, uint32_t there, double seconds)
{
	uint64_t come = taken - demand->taken;
	if (!(seconds > 0) || (!come && !there && !(demand->rate > 0) && !(demand->busy > 0)))
		return;
	double part = 1 - exp(-seconds / MEMORY_S);
	demand->taken = taken;
	demand->rate += part * ((double)come / seconds - demand->rate);
	demand->busy += part * (there - demand->busy);
	demand->told_rate = tell(demand->rate, demand->told_rate);
	demand->told_busy = tell(demand->busy, demand->told_busy);
	if (demand->rate < LEAST / 1024 && demand->busy < LEAST / 1024)
		demand->rate = demand->busy = 0;
}

/* From the disk, beside that many other engines that start. */
static double from_disk_s(const double first[MD_STARTS], struct md_loads loads, uint32_t others)
{
	double load_s = first[MD_START_DISK] - first[MD_START_GPU];
	return first[MD_START_DISK] + (load_s > 0 ? load_s * loads.slows * others : 0);
}

/* Of a load that is under way, half of it is still to come, as far as anybody knows. */
double md_standing_expected_s(const struct md_standing *standing, struct md_loads loads)
{
	const double *first = standing->first_s;
	double wait = standing->waiting * first[MD_START_GPU];
	switch (standing->place) {
	case MD_PLACE_GPU:
		return first[MD_START_GPU] + wait;
	case MD_PLACE_HOST:
		return first[MD_START_HOST] + wait;
	case MD_PLACE_LOADING:
		return from_disk_s(first, loads, loads.count ? loads.count - 1 : 0) / 2 + wait;
	case MD_PLACE_DISK:
		return from_disk_s(first, loads, loads.count) + wait;
	case MD_PLACE_NOWHERE:
		break;
	}
	return MD_STANDING_NEVER;
}

/* ---- which node ---- */

double md_offer_expected_s(const struct md_offer *offer)
{
	if (!offer->standing || offer->closed)
		return -1;
	return md_standing_expected_s(offer->standing, offer->loads) + (offer->cordoned ? RATHER_NOT : 0) +
	       (offer->doubted ? RATHER_NOT / 2 : 0) + (offer->ended ? 2 * RATHER_NOT : 0);
}

void md_offer_consider(struct md_offer_best *best, uint32_t index, const struct md_offer *offer)
{
	double there_s = md_offer_expected_s(offer);
	bool equal = best->found && there_s == best->seconds && offer->open < best->open;
	if (there_s < 0 || (best->found && there_s >= best->seconds && !equal))
		return;
	*best = (struct md_offer_best){.found = true, .index = index, .open = offer->open, .seconds = there_s};
}

double md_offer_here_s(const struct md_standing *standing, struct md_loads loads, bool cordoned)
{
	return standing ? md_standing_expected_s(standing, loads) + (cordoned ? RATHER_NOT : 0) : MD_OFFER_NOT_HERE;
}

bool md_offer_is_better(const struct md_offer_best *best, double here_s)
{
	return best->found && best->seconds * HOP_PART + HOP_S < here_s;
}
