/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/poll_auto.h"

void rf_poll_auto_init(struct rf_poll_auto *poll)
{
	*poll = (struct rf_poll_auto){ .pause_ns = RF_POLL_AUTO_FIRST_NS };
}

void rf_poll_auto_polled(struct rf_poll_auto *poll, bool hit, uint64_t spent_ns, uint64_t now_ns)
{
	if (!poll->score)
		return;
	if (hit && spent_ns <= 2 * RF_POLL_AUTO_LIMIT_NS) {
		poll->score = rf_min_u32(poll->score + RF_POLL_AUTO_HIT, RF_POLL_AUTO_GOOD);
		if (poll->score == RF_POLL_AUTO_GOOD)
			poll->pause_ns = RF_POLL_AUTO_FIRST_NS;
		return;
	}
	if (--poll->score)
		return;
	poll->retry_ns = now_ns + poll->pause_ns;
	poll->pause_ns = rf_min_u64(2 * poll->pause_ns, RF_POLL_AUTO_LAST_NS);
}

void rf_poll_auto_slept(struct rf_poll_auto *poll, uint64_t slept_ns, uint64_t now_ns)
{
	if (!poll->score && slept_ns <= RF_POLL_AUTO_SHORT_NS && now_ns >= poll->retry_ns)
		poll->score = RF_POLL_AUTO_TRY;
}
