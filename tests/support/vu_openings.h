/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The steps with which most scripts for vu_lab.h begin.
 */
#ifndef RF_TESTS_VU_OPENINGS_H
#define RF_TESTS_VU_OPENINGS_H

/* One region of 1 MiB at guest address 0; features 1, 28, 29, 32 and bit 30. */
#define MEM   "0x0,0x100000,0x7f0000000000,0x0"
#define OTHER "0x100000,0x100000,0x7f0000200000,0x100000"
#define HELLO                             \
	"SET_OWNER\n"                     \
	"SET_PROTOCOL_FEATURES 0x1a209\n" \
	"SET_FEATURES 0x170000002\n"      \
	""
#define SHARE  HELLO "SET_MEM_TABLE " MEM "\n"
#define AREAS0 "0x7f0000001000 0x7f0000004000 0x7f0000003000"
#define AREAS1 "0x7f0000005000 0x7f0000008000 0x7f0000007000"
#define SETUP0                                                                       \
	"SET_VRING_NUM 0 256\nSET_VRING_BASE 0 0\nSET_VRING_ADDR 0 0 " AREAS0 " 0\n" \
	"SET_VRING_CALL 0\nSET_VRING_ERR 0\n"
#define SETUP1                                                                       \
	"SET_VRING_NUM 1 256\nSET_VRING_BASE 1 0\nSET_VRING_ADDR 1 0 " AREAS1 " 0\n" \
	"SET_VRING_CALL 1\nSET_VRING_ERR 1\n"
#define START0 SETUP0 "SET_VRING_KICK 0\nSET_VRING_ENABLE 0 1\nexpect start0@0\n"
#define START1 SETUP1 "SET_VRING_KICK 1\nSET_VRING_ENABLE 1 1\nexpect start1@0\n"
#define STOP0  "stopping0 stop0@0"

#endif
