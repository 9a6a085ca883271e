/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in which a restored graph differs from the live one, in verify mode: do live replays differ there, too? */
#include <stdio.h>
#include <stdlib.h>

#include "restore/restore.h"

#define BYTES_MAX (1u << 21) /* more than these are nothing but wrong */
#define GAP_MAX 4096u        /* bytes that lie no farther apart are fetched together */
#define SCATTER_RUNS 8u

/* ---- what differs ---- */

void md_verify_doubt_add(struct md_verify_doubt *d, uint32_t place, uint64_t offset, const uint8_t *live,
			 const uint8_t *restored, size_t size)
{
	for (size_t i = 0; i < size && !d->beyond; i++) {
		if (live[i] == restored[i])
			continue;
		if (d->count == d->room) {
			size_t room = d->room ? d->room * 2 : 256;
			struct md_verify_byte *grown =
			    room <= BYTES_MAX ? realloc(d->bytes, room * sizeof(*grown)) : NULL;
			d->beyond = !grown;
			if (!grown)
				return;
			d->bytes = grown;
			d->room = room;
		}
		struct md_verify_byte *byte = &d->bytes[d->count++];
		*byte = (struct md_verify_byte){.offset = offset + i, .place = place, .restored = restored[i]};
		byte->seen[live[i] / 8] |= (uint8_t)(1u << live[i] % 8);
		d->runs = 1;
	}
}

void md_verify_doubt_finish(struct md_verify_doubt *d)
{
	free(d->bytes);
	*d = (struct md_verify_doubt){0};
}

/* ---- what live replays leave there ---- */

static int compare_bytes(const void *left, const void *right)
{
	const struct md_verify_byte *a = left, *b = right;
	if (a->place != b->place)
		return a->place < b->place ? -1 : 1;
	return (a->offset > b->offset) - (a->offset < b->offset);
}

/* Bytes from `first` on that one copy brings; they are in order. */
static size_t group_end(const struct md_verify_doubt *d, size_t first)
{
	size_t end = first + 1;
	while (end < d->count && d->bytes[end].place == d->bytes[first].place &&
	       d->bytes[end].offset - d->bytes[end - 1].offset <= GAP_MAX &&
	       d->bytes[end].offset - d->bytes[first].offset < MD_VERIFY_CHUNK)
		end++;
	return end;
}

enum md_status md_verify_doubt_take(struct md_verify_doubt *d, const struct md_verify_memory *m,
				    const struct md_verify_outputs *o, CUstream stream, struct md_error *err)
{
	if (d->runs == 1)
		qsort(d->bytes, d->count, sizeof(*d->bytes), compare_bytes);
	for (size_t first = 0, end; first < d->count; first = end) {
		end = group_end(d, first);
		uint32_t place = d->bytes[first].place;
		uint64_t base = d->bytes[first].offset;
		CUdeviceptr from =
		    place & MD_VERIFY_OUTPUT ? o->live[place & ~MD_VERIFY_OUTPUT].address : m->buffers[place].address;
		size_t size = (size_t)(d->bytes[end - 1].offset - base) + 1;
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, m->device.now, from + base, size, stream));
		MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, stream));
		for (size_t i = first; i < end; i++) {
			uint8_t value = m->device.now[d->bytes[i].offset - base];
			d->bytes[i].seen[value / 8] |= (uint8_t)(1u << value % 8);
		}
	}
	d->runs++;
	return MD_OK;
}

/* ---- what follows from it ---- */

static unsigned values_seen(const struct md_verify_byte *byte)
{
	unsigned count = 0;
	for (size_t i = 0; i < sizeof(byte->seen); i++)
		count += (unsigned)__builtin_popcount(byte->seen[i]);
	return count;
}

/*
 * Where rows race for one place, the restored value is one that live replays leave as well. Sums in no fixed order
 * scatter: there nearly every replay brings a value of its own, and so may the restored one.
 */
static bool is_explained(const struct md_verify_doubt *d, const struct md_verify_byte *byte)
{
	unsigned values = values_seen(byte);
	bool seen = byte->seen[byte->restored / 8] >> byte->restored % 8 & 1;
	return values > 1 && (seen || (d->runs >= SCATTER_RUNS && values * 4 >= d->runs * 3));
}

enum md_doubt_answer md_verify_doubt_ask(const struct md_verify_doubt *d)
{
	size_t explained = 0, nondeterministic = 0;
	for (size_t i = 0; i < d->count; i++) {
		explained += is_explained(d, &d->bytes[i]);
		nondeterministic += values_seen(&d->bytes[i]) > 1;
	}
	if (d->beyond || !d->count || !nondeterministic)
		return MD_DOUBT_NONE;
	return explained == d->count ? MD_DOUBT_ALL : MD_DOUBT_SOME;
}

static void name_place(const struct md_verify_memory *m, uint32_t place, char text[160])
{
	if (place & MD_VERIFY_OUTPUT)
		snprintf(text, 160, "output %u", place & ~MD_VERIFY_OUTPUT);
	else
		snprintf(text, 160, "buffer \"%.128s\"", m->buffers[place].name);
}

/* Different bytes, of the first place and of the others; both restored replays may have found one. */
static void count_places(const struct md_verify_doubt *d, size_t *here, size_t *elsewhere)
{
	*here = *elsewhere = 0;
	for (size_t i = 0; i < d->count; i++) {
		if (values_seen(&d->bytes[i]) < 2 || (i && !compare_bytes(&d->bytes[i - 1], &d->bytes[i])))
			continue;
		if (d->bytes[i].place == d->bytes[0].place)
			++*here;
		else
			++*elsewhere;
	}
}

void md_verify_doubt_say_all(const struct md_verify_doubt *d, const struct md_verify_memory *m, struct md_error *err)
{
	char place[160], more[64] = "";
	size_t here, elsewhere;
	name_place(m, d->bytes[0].place, place);
	count_places(d, &here, &elsewhere);
	if (elsewhere)
		snprintf(more, sizeof(more), " and %zu elsewhere", elsewhere);
	md_error_set(err, MD_ERR_MISMATCH,
		     "%zu bytes of %s%s differ between two live replays, the first at offset %llu (%u live replays)",
		     here, place, more, (unsigned long long)d->bytes[0].offset, d->runs);
}

void md_verify_doubt_say_some(const struct md_verify_doubt *d, const struct md_verify_memory *m, struct md_error *err)
{
	char place[160];
	size_t at = 0;
	while (at + 1 < d->count && is_explained(d, &d->bytes[at]))
		at++;
	name_place(m, d->bytes[at].place, place);
	md_error_set(err, MD_ERR_MISMATCH,
		     "%s differs at offset %llu: restored %02x, which none of %u live replays left there (in other "
		     "bytes these differ among themselves)",
		     place, (unsigned long long)d->bytes[at].offset, d->bytes[at].restored, d->runs);
}
