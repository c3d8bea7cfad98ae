/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Back ends of a run: ours, which is started; somebody else's; the kernel's. And how host programs
 * reach the guest through them.
 */
#ifndef RF_BENCH_BACK_END_H
#define RF_BENCH_BACK_END_H

#include "team.h"

/* The guest of every run. */
#define RF_BENCH_GUEST_CID 42

/* Return: 0, or -errno after saying what failed. */
int rf_bench_back_end_start(struct rf_bench_team *team, unsigned conns);

/* Pass on what our back end wrote to its standard error. */
void rf_bench_back_end_drain(struct rf_bench_team *team);

/**
 * rf_bench_back_end_listen() - Open the host program's listener, @team->listener
 *
 * Before the processes are started, so that the guest finds it.
 *
 * Return: 0, or -errno after saying what failed.
 */
int rf_bench_back_end_listen(struct rf_bench_team *team, int backlog);

void rf_bench_back_end_unlisten(struct rf_bench_team *team);

/* In the host program: connect to the guest, which may not listen yet. Return: fd, or -errno. */
int rf_bench_back_end_connect(struct rf_bench_team *team);

/**
 * rf_bench_guest_open() - In the guest: attach
 * @socket_fd:	Its end of a socketpair to the back end; -1 for the variant's socket
 *
 * It does not return if that fails.
 */
struct rf_guest *rf_bench_guest_open(struct rf_bench_team *team, int socket_fd);

#endif
