/* SPDX-License-Identifier: BSD-3-Clause */
#include "sock_model.h"

#include <errno.h>
#include <stddef.h>

/* Will this end send no more? */
static bool finished(const struct sock_model_side *s)
{
	return s->shut_wr || s->closed;
}

/* Does this end not want any more? */
static bool deaf(const struct sock_model_side *s)
{
	return s->shut_rd || s->closed;
}

/* And must the other end know by now? */
static bool known_deaf(const struct sock_model_side *s)
{
	return s->closed || (s->shut_rd && !s->quiet);
}

static const char *told_reset(struct sock_model *m, struct sock_model_side *s)
{
	if (!m->reset)
		return "a reset out of nowhere";
	if (s->reset_told)
		return "a reset told twice";
	s->reset_told = true;
	return NULL;
}

const char *sock_model_send(struct sock_model *m, unsigned side, long n, bool settled)
{
	struct sock_model_side *s = &m->side[side];
	const struct sock_model_side *peer = &m->side[!side];

	switch (n) {
	case -EAGAIN:
		if (s->shut_wr || s->reset_told)
			return "send() may wait for ever";
		if (settled && (known_deaf(peer) || m->reset || s->sent == peer->got))
			return "send() finds no room where there must be some";
		return NULL;
	case -EPIPE:
		if (!s->shut_wr && !deaf(peer) && !m->reset)
			return "EPIPE though the peer receives";
		return NULL;
	case -ECONNRESET:
		return told_reset(m, s);
	default:
		if (n <= 0)
			return "send() failed in a way of its own";
		if (s->shut_wr)
			return "bytes were sent after shutdown()";
		if (s->reset_told)
			return "bytes were sent after a reset";
		if (settled && known_deaf(peer))
			return "bytes were sent to a peer that does not receive";
		s->sent += (uint64_t)n;
		return NULL;
	}
}

static const char *got_eof(struct sock_model *m, struct sock_model_side *s,
			   const struct sock_model_side *peer)
{
	if (s->shut_rd)
		return NULL;
	s->eof = true;
	if (m->reset)
		return NULL;
	if (!finished(peer))
		return "end of file though the peer sends";
	return s->got < peer->sent ? "end of file before the last byte" : NULL;
}

const char *sock_model_recv(struct sock_model *m, unsigned side, long n, bool peek, bool settled)
{
	struct sock_model_side *s = &m->side[side];
	const struct sock_model_side *peer = &m->side[!side];

	if (n == 0)
		return got_eof(m, s, peer);
	if (n == -ECONNRESET) {
		if (s->eof)
			return "a reset after the end";
		s->eof = true;
		return told_reset(m, s);
	}
	if (n < 0 && n != -EAGAIN)
		return "recv() failed in a way of its own";
	if (s->shut_rd)
		return "something other than the end of file after shutdown()";
	if (s->eof)
		return "something came after the end";
	if (n == -EAGAIN) {
		if (settled && !m->reset && (s->got < peer->sent || finished(peer)))
			return "recv() finds nothing where there must be something";
		return NULL;
	}
	if (s->got + (uint64_t)n > peer->sent)
		return "bytes came that nobody sent";
	if (!peek)
		s->got += (uint64_t)n;
	return NULL;
}

void sock_model_shutdown(struct sock_model *m, unsigned side, bool rd, bool wr)
{
	m->side[side].shut_rd |= rd;
	m->side[side].shut_wr |= wr;
}

void sock_model_close(struct sock_model *m, unsigned side)
{
	m->side[side].closed = true;
}

const char *sock_model_settled(const struct sock_model *m)
{
	for (unsigned side = 0; side < 2; side++) {
		const struct sock_model_side *s = &m->side[side], *peer = &m->side[!side];

		if (m->reset || deaf(s))
			continue;
		if (s->got != peer->sent)
			return "bytes are lost";
		if (finished(peer) != s->eof)
			return "the end of file is lost";
	}
	return NULL;
}

void port_model_listen(struct port_model *p, bool listening, unsigned backlog, uint64_t now)
{
	p->listening = listening;
	p->backlog = backlog;
	p->since = now;
}

void port_model_begin(struct port_model *p, uint64_t now)
{
	p->waiting++;
	if (p->waiting > p->backlog + 1)
		p->crowded = now;
}

void port_model_end(struct port_model *p)
{
	p->waiting--;
}

const char *port_model_answer(const struct port_model *p, uint64_t began, bool refused)
{
	bool changed = p->since > began;

	if (!refused)
		return p->listening || changed ? NULL : "a port answers on which nobody listens";
	/* Others that were begun before it may have filled the backlog. */
	if (p->listening && !changed && p->crowded < began && p->waiting <= p->backlog + 1)
		return "refused though somebody listens";
	return NULL;
}
