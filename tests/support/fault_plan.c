/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault_plan.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* Nothing under test makes so many calls in one plan, or in one turn of a loop. */
#define MANY_CALLS      1000000u
#define MANY_TURN_CALLS 20000u

/* Bytes that FAULT_SHORT lets pass. */
#define SHORT_BYTES 3u

static struct {
	pthread_mutex_t mutex;
	enum fault_mode mode;
	atomic_bool on;
	bool hit, harmless;
	unsigned nth, points, calls, turn_calls;
	char text[64];
} plan = { .mutex = PTHREAD_MUTEX_INITIALIZER, .text = "none" };

_Thread_local unsigned fault_depth;
struct fault_objects fault_allocations, fault_mappings;

jmp_buf fault_escape;
bool fault_may_escape;

void fault_begin(enum fault_mode mode, unsigned nth)
{
	pthread_mutex_lock(&plan.mutex);
	plan.mode = mode;
	plan.nth = nth;
	plan.on = true;
	plan.hit = false;
	plan.harmless = true;
	plan.points = plan.calls = plan.turn_calls = 0;
	strcpy(plan.text, "none");
	pthread_mutex_unlock(&plan.mutex);
}

bool fault_end(void)
{
	bool hit;

	pthread_mutex_lock(&plan.mutex);
	plan.on = false;
	hit = plan.hit;
	pthread_mutex_unlock(&plan.mutex);
	return hit;
}

void fault_pause(bool pause)
{
	pthread_mutex_lock(&plan.mutex);
	plan.on = !pause;
	pthread_mutex_unlock(&plan.mutex);
}

bool fault_hit(void)
{
	bool hit;

	pthread_mutex_lock(&plan.mutex);
	hit = plan.hit;
	pthread_mutex_unlock(&plan.mutex);
	return hit;
}

bool fault_harmless(void)
{
	bool harmless;

	pthread_mutex_lock(&plan.mutex);
	harmless = plan.harmless;
	pthread_mutex_unlock(&plan.mutex);
	return harmless;
}

const char *fault_text(void)
{
	return plan.text;
}

void fault_turn(void)
{
	pthread_mutex_lock(&plan.mutex);
	plan.turn_calls = 0;
	pthread_mutex_unlock(&plan.mutex);
}

void fault_enter(void)
{
	fault_depth++;
}

void fault_leave(void)
{
	fault_depth--;
}

_Noreturn static void spins(const char *what)
{
	fprintf(stderr, "too many calls in %s, the last one to %s; fault: %s\n",
		plan.turn_calls > MANY_TURN_CALLS ? "one turn" : "one plan", what, plan.text);
	abort();
}

/* Point by point: is one of this call's ways the one? For ever: the first lasting one. */
static int choose(const struct fault_call *call)
{
	int lasting = 0;

	for (unsigned i = 0; i < FAULT_MAX_WAYS && call->ways[i]; i++) {
		int way = call->ways[i];

		if (plan.mode == FAULT_EVER && way < 0)
			continue;
		if (!lasting)
			lasting = way;
		if (++plan.points != plan.nth)
			continue;
		plan.hit = true;
		plan.harmless = way == FAULT_SHORTER || way == -EINTR || way == -EAGAIN;
		snprintf(plan.text, sizeof(plan.text), "%s: %s%s", call->name,
			 way == FAULT_SHORTER ? "short" : strerror(abs(way)),
			 plan.mode == FAULT_EVER ? ", and all later ones" : "");
		return way;
	}
	return plan.hit && plan.mode == FAULT_EVER ? lasting : 0;
}

int fault_decide(const struct fault_call *call)
{
	int way = 0;

	if (!fault_depth)
		return 0;
	pthread_mutex_lock(&plan.mutex);
	if (plan.on) {
		if (++plan.calls > MANY_CALLS || ++plan.turn_calls > MANY_TURN_CALLS)
			spins(call->name);
		if (plan.mode != FAULT_SHORT)
			way = choose(call);
	}
	pthread_mutex_unlock(&plan.mutex);
	return way == FAULT_SHORTER ? FAULT_SHORTER : abs(way);
}

size_t fault_allowed(int way, size_t bytes)
{
	if (way == FAULT_SHORTER)
		return bytes ? 1 : 0;
	if (fault_depth && plan.on && plan.mode == FAULT_SHORT)
		return rf_min_size(bytes, SHORT_BYTES);
	return bytes;
}

void fault_object_add(struct fault_objects *objects, const void *at)
{
	if (!fault_depth || !at)
		return;
	pthread_mutex_lock(&plan.mutex);
	if (objects->n == FAULT_MAX_OBJECTS)
		abort();
	objects->all[objects->n++] = at;
	pthread_mutex_unlock(&plan.mutex);
}

void fault_object_remove(struct fault_objects *objects, const void *at)
{
	if (!at)
		return;
	pthread_mutex_lock(&plan.mutex);
	for (unsigned i = objects->n; i-- > 0;) {
		if (objects->all[i] != at)
			continue;
		objects->all[i] = objects->all[--objects->n];
		break;
	}
	pthread_mutex_unlock(&plan.mutex);
}

unsigned fault_live_allocations(void)
{
	return fault_allocations.n;
}

unsigned fault_live_mappings(void)
{
	return fault_mappings.n;
}
