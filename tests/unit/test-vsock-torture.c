/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many streams both ways at once, with everything in random order and against a model.
 */
#include <sys/socket.h>
#include <unistd.h>

#include "prng.h"
#include "vsock_rig.h"

/* All at once */

#define TORTURE_CONNS 8

struct stream_model {
	struct fake_conn c;
	int fd;
	uint32_t guest_sent, host_read, host_sent;
};

static void torture_host(struct vsock_rig *rig, struct stream_model *s, uint64_t *seed)
{
	uint8_t buf[20000];
	size_t want = 1 + prng_below(seed, sizeof(buf));
	ssize_t n;

	if (prng_below(seed, 2)) {
		n = read(s->fd, buf, want);
		if (n > 0) {
			rig_check(buf, (size_t)n, s->host_read);
			s->host_read += (uint32_t)n;
		}
		return;
	}
	rig_fill(buf, want, s->host_sent);
	n = send(s->fd, buf, want, MSG_NOSIGNAL);
	if (n > 0)
		s->host_sent += (uint32_t)n;
	(void)rig;
}

static void torture_guest_send(struct stream_model *s, uint64_t *seed)
{
	const struct fake_shape *shape = &fake_shapes[prng_below(seed, fake_n_shapes)];
	uint8_t buf[5000];
	uint32_t bytes = 1 + prng_below(seed, sizeof(buf));

	if (fake_conn_space(&s->c) < bytes || fake_guest_unsent(s->c.guest) > 8)
		return;
	rig_fill(buf, bytes, s->guest_sent);
	fake_conn_put(&s->c, buf, bytes, shape);
	s->guest_sent += bytes;
	if (prng_below(seed, 2))
		fake_guest_kick(s->c.guest, FAKE_TX);
}

static void torture_guest_receive(struct vsock_rig *rig, struct stream_model *streams)
{
	struct fake_packet packet;
	struct stream_model *s;

	while (fake_guest_recv(&rig->guest, &packet, NULL)) {
		assert_in_range(packet.hdr.dst_port, 1000, 1000 + TORTURE_CONNS - 1);
		s = &streams[packet.hdr.dst_port - 1000];
		s->c.peer_buf_alloc = packet.hdr.buf_alloc;
		s->c.peer_fwd_cnt = packet.hdr.fwd_cnt;
		if (packet.hdr.op == CREDIT_UPDATE)
			continue;
		if (packet.hdr.op == CREDIT_REQUEST) {
			if (fake_guest_unsent(s->c.guest) < 60)
				fake_conn_control(&s->c, CREDIT_UPDATE, 0);
			continue;
		}
		assert_int_equal(packet.hdr.op, RW);
		rig_check(packet.data, packet.hdr.len, s->c.rx_cnt);
		s->c.rx_cnt += packet.hdr.len;
		assert_true(s->c.rx_cnt - s->c.fwd_cnt <= s->c.buf_alloc);
	}
}

static void torture_pause(struct vsock_rig *rig, uint64_t *seed)
{
	unsigned first = prng_below(seed, 2), then = prng_below(seed, 2);

	(void)fake_guest_stop(&rig->guest, first);
	(void)fake_guest_stop(&rig->guest, !first);
	fake_guest_start_at(&rig->guest, then, rig->guest.rings[then].base);
	fake_guest_start_at(&rig->guest, !then, rig->guest.rings[!then].base);
}

static void torture_finish(struct vsock_rig *rig, struct stream_model *streams)
{
	bool done = false;

	while (!done) {
		done = true;
		rig_idle(rig);
		torture_guest_receive(rig, streams);
		for (unsigned i = 0; i < TORTURE_CONNS; i++) {
			struct stream_model *s = &streams[i];
			uint8_t buf[65536];
			ssize_t n = read(s->fd, buf, sizeof(buf));

			if (n > 0) {
				rig_check(buf, (size_t)n, s->host_read);
				s->host_read += (uint32_t)n;
			}
			if (s->c.fwd_cnt != s->c.rx_cnt) {
				s->c.fwd_cnt = s->c.rx_cnt;
				fake_conn_control(&s->c, CREDIT_UPDATE, 0);
			}
			done = done && s->host_read == s->guest_sent && s->host_sent == s->c.rx_cnt;
		}
	}
}

static void torture(void **state)
{
	static struct stream_model streams[TORTURE_CONNS];
	struct vsock_rig *rig = *state;
	uint64_t seed = 20240607;

	rig->guest.num = 64;
	rig->guest.rx_bytes = 700;
	rig->options.window = 50000;
	rig_start(rig);
	for (uint32_t i = 0; i < TORTURE_CONNS; i++) {
		struct stream_model *s = &streams[i];

		*s = (struct stream_model){ .fd = -1 };
		s->fd = rig_open_from_guest(rig, &s->c, 1000 + i);
		s->c.buf_alloc = 3000 * (i + 1);
		fake_conn_control(&s->c, CREDIT_UPDATE, 0);
	}
	for (unsigned step = 0; step < 30000; step++) {
		struct stream_model *s = &streams[prng_below(&seed, TORTURE_CONNS)];

		switch (prng_below(&seed, 8)) {
		case 0:
		case 1:
			torture_host(rig, s, &seed);
			break;
		case 2:
		case 3:
			torture_guest_send(s, &seed);
			break;
		case 4:
			s->c.fwd_cnt += prng_below(&seed, s->c.rx_cnt - s->c.fwd_cnt + 1);
			fake_conn_control(&s->c, CREDIT_UPDATE, 0);
			break;
		case 5:
			torture_guest_receive(rig, streams);
			break;
		case 6:
			assert_int_equal(rf_loop_turn(rig->loop, 0), 0);
			break;
		default:
			rig_idle(rig);
			if (prng_below(&seed, 50) == 0)
				torture_pause(rig, &seed);
			break;
		}
	}
	torture_finish(rig, streams);
	assert_int_equal(rig_connections(rig), TORTURE_CONNS);
	assert_true(streams[0].guest_sent > 1000000 && streams[0].host_sent > 100000);
	for (unsigned i = 0; i < TORTURE_CONNS; i++)
		close(streams[i].fd);
}

static const struct CMUnitTest tests[] = {
	RIG_TEST(torture),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "vsock-torture");
}
