/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "driver.h"

static const char *const who_names[] = { "host", "guest" };
static const char *const kind_names[] = { "orderly", "one side closes", "one side stops reading" };

struct verdict {
	struct driver *driver;
	const struct soak_device *device;
	const struct soak_slot *slot;
	unsigned index;
	bool cut;
};

static enum soak_who connector(unsigned index)
{
	return index < SOAK_STREAMS ? SOAK_HOST : SOAK_GUEST;
}

static void show(const struct verdict *verdict)
{
	const struct soak_plan *plan = &verdict->slot->plan;

	printf("  cid %u slot %u number %" PRIu64 ": %s connects, %s", verdict->device->cid,
	       verdict->index, SOAK_NUMBER(verdict->slot->side[connector(verdict->index)].word),
	       who_names[connector(verdict->index)], kind_names[plan->kind]);
	if (plan->kind != SOAK_ORDERLY)
		printf(" (the %s, after %" PRIu64 " bytes)", who_names[plan->actor],
		       plan->stop_after);
	printf("%s; epoch %" PRIu64 "\n", verdict->cut ? ", cut" : "", verdict->device->epoch);
	for (int who = 0; who < 2; who++) {
		const struct soak_side *side = &verdict->slot->side[who];

		printf("  %5s: state %u, epochs %" PRIu64 " to %" PRIu64 "; sends %" PRIu64
		       " in chunks of %u, sent %" PRIu64 ", received %" PRIu64
		       "%s; errors %d %d %d; last move %.1f s ago\n",
		       who_names[who], SOAK_STATE(side->word), side->begin, side->end,
		       plan->bytes[who], plan->chunk[who], side->sent, side->received,
		       side->eof ? ", end of file" : "", side->refused, side->send_error,
		       side->recv_error, (double)(soak_now_ns() - side->moved_ns) * 1e-9);
	}
}

#define COMPLAIN(verdict_, ...)                               \
	do {                                                  \
		driver_fail((verdict_)->driver, __VA_ARGS__); \
		show(verdict_);                               \
	} while (0)

static bool was_cut(const struct soak_slot *slot)
{
	const struct soak_side *host = &slot->side[SOAK_HOST], *guest = &slot->side[SOAK_GUEST];

	return host->begin & 1 || host->begin != host->end || guest->begin != host->begin ||
	       guest->end != host->begin;
}

/* May what @sender sends be lost because the other side does not want it? */
static bool unwanted(const struct soak_plan *plan, enum soak_who sender)
{
	return plan->kind != SOAK_ORDERLY && plan->actor != sender;
}

static void judge_direction(const struct verdict *verdict, enum soak_who sender)
{
	const struct soak_plan *plan = &verdict->slot->plan;
	const struct soak_side *from = &verdict->slot->side[sender];
	const struct soak_side *to = &verdict->slot->side[!sender];
	const char *name = who_names[sender];

	if (to->bad_at != SOAK_NOT_BAD)
		COMPLAIN(verdict, "byte %" PRIu64 " from the %s is wrong", to->bad_at, name);
	else if (to->received > from->offered)
		COMPLAIN(verdict, "more arrived than the %s has sent", name);
	else if (verdict->cut || unwanted(plan, sender))
		return;
	else if (from->send_error)
		COMPLAIN(verdict, "the %s cannot send: %s", name, strerror(from->send_error));
	else if (to->received != plan->bytes[sender])
		COMPLAIN(verdict, "bytes of the %s are lost", name);
	else if (!to->eof && plan->kind != SOAK_CLOSES)
		COMPLAIN(verdict, "no end of file from the %s", name);
	else if (to->recv_error && plan->kind == SOAK_ORDERLY)
		COMPLAIN(verdict, "reset behind the last byte of the %s: %s", name,
			 strerror(to->recv_error));
}

/* Around a cut nobody need be there. */
static void judge_refused(const struct verdict *verdict)
{
	const struct soak_side *side = &verdict->slot->side[connector(verdict->index)];
	struct totals *totals = &verdict->driver->totals;

	if (verdict->cut)
		totals->refused++;
	else
		COMPLAIN(verdict, "the %s cannot connect: %s", who_names[connector(verdict->index)],
			 strerror(side->refused));
}

static void judge(const struct verdict *verdict)
{
	const struct soak_slot *slot = verdict->slot;
	struct totals *totals = &verdict->driver->totals;

	if (slot->side[connector(verdict->index)].refused) {
		judge_refused(verdict);
		return;
	}
	judge_direction(verdict, SOAK_HOST);
	judge_direction(verdict, SOAK_GUEST);
	totals->connections[connector(verdict->index)]++;
	totals->cut += verdict->cut;
	totals->bytes[SOAK_HOST] += slot->side[SOAK_HOST].received;
	totals->bytes[SOAK_GUEST] += slot->side[SOAK_GUEST].received;
}

/* A connection that was cut may never have come to the side that accepts. */
static void give_up_waiting(const struct soak_device *device, struct soak_slot *slot,
			    enum soak_who who)
{
	struct soak_side *waiting = &slot->side[!who];
	uint64_t word = waiting->word;

	if (SOAK_STATE(word) == SOAK_WAITING && slot->side[who].begin != device->epoch &&
	    atomic_compare_exchange_strong(&waiting->word, &word,
					   SOAK_WORD(SOAK_NUMBER(word), SOAK_DONE)))
		waiting->end = device->epoch;
}

static void complain_if_stuck(const struct verdict *verdict)
{
	uint64_t now = soak_now_ns(), limit = verdict->driver->deadline_ns;

	for (int who = 0; who < 2; who++) {
		const struct soak_side *side = &verdict->slot->side[who];

		/* The clock is read first: the side may have moved since. */
		if (SOAK_STATE(side->word) != SOAK_DONE && now > side->moved_ns + limit) {
			COMPLAIN(verdict, "a connection stands still: the %s", who_names[who]);
			return;
		}
	}
}

static void judge_slot(struct driver *driver, const struct soak_device *device,
		       struct soak_slot *slot, unsigned index)
{
	enum soak_who who = connector(index);
	uint64_t mine = slot->side[who].word, number = SOAK_NUMBER(mine);
	struct verdict verdict = { driver, device, slot, index, was_cut(slot) };

	/* Over and judged, or about to be begun. */
	if (slot->judged == number)
		return;
	if (SOAK_STATE(mine) == SOAK_DONE)
		give_up_waiting(device, slot, who);
	if (SOAK_STATE(mine) == SOAK_DONE && SOAK_STATE(slot->side[!who].word) == SOAK_DONE) {
		verdict.cut = was_cut(slot);
		judge(&verdict);
		slot->judged = number;
	} else {
		complain_if_stuck(&verdict);
	}
}

void judge_all(struct driver *driver)
{
	for (unsigned d = 0; d < driver->n_devices && !driver->failures; d++) {
		struct soak_device *device = &driver->shared->devices[d];

		for (unsigned i = 0; i < SOAK_SLOTS && !driver->failures; i++)
			judge_slot(driver, device, &device->slots[i], i);
	}
}

void judge_killed(struct driver *driver, unsigned d, enum soak_who who)
{
	struct soak_device *device = &driver->shared->devices[d];

	for (unsigned i = 0; i < SOAK_SLOTS; i++) {
		struct soak_side *side = &device->slots[i].side[who];

		if (SOAK_STATE(side->word) != SOAK_RUNNING)
			continue;
		side->end = device->epoch;
		side->word = SOAK_WORD(SOAK_NUMBER(side->word), SOAK_DONE);
	}
}

bool judge_idle(const struct driver *driver, unsigned device)
{
	for (unsigned i = 0; i < SOAK_SLOTS; i++) {
		const struct soak_slot *slot = &driver->shared->devices[device].slots[i];

		if (slot->judged != SOAK_NUMBER(slot->side[connector(i)].word))
			return false;
	}
	return true;
}
