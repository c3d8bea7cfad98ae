/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One vsock stream connection: its state, its credit and the control packets it owes. The rules are
 * the same for host and guest.
 *
 * DOC: Theory of operation. A connection does nothing by itself: its functions change the state and
 * the set of owed control packets, and the owner asks rf_vsock_conn_next() for them when the ring
 * has room. The order within one connection follows from three rules: REQUEST or RESPONSE is handed
 * out before anything else; rf_vsock_conn_data() grants nothing before the connection is
 * established and nothing after SHUTDOWN(send) was owed; and the owner calls
 * rf_vsock_conn_shutdown() and rf_vsock_conn_close() only after the data that went before. RST is
 * handed out last, cancels what else is owed, and ends the connection.
 *
 *   connect() -> LOCAL_INIT --RESPONSE--> ESTABLISHED --close()--> CLOSING --RST--> DEAD
 *   request() -> PEER_INIT --accept()------^   '------peer SHUTDOWN(both)------------^
 *
 * CLOSING means that SHUTDOWN(both) is owed or was sent; the peer answers with RST, or we send one
 * after RF_VSOCK_SHUTDOWN_NS. DEAD with an owed RST still has to send it; DEAD without may be
 * freed.
 *
 * DOC: Packets in flight, and asking. New Linux receivers bound the number of packets, too: so
 * besides the byte credit, payload and RF_VSOCK_PACKET_COST of each packet in flight together stay
 * within the peer's buffer. A peer does not know that we wait for this, nor for our own limit
 * of bytes in flight, and may save its updates up for ever (Linux 6.1 does): so it is asked, by
 * CREDIT_REQUEST, early enough that a stream of small packets need not wait, and again and again
 * (rf_vsock_conn_wait()) if we have to wait all the same.
 *
 * Context: exclusive access; time is an argument.
 */
#ifndef RF_VSOCK_CONN_H
#define RF_VSOCK_CONN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "vsock/credit.h"
#include "vsock/inflight.h"
#include "vsock/packet.h"
#include "vsock/reason.h"

enum rf_vsock_state {
	RF_VSOCK_LOCAL_INIT,
	RF_VSOCK_PEER_INIT,
	RF_VSOCK_ESTABLISHED,
	RF_VSOCK_CLOSING,
	RF_VSOCK_DEAD,
};

/* Control packets that are owed. */
enum {
	RF_VSOCK_OWE_REQUEST = 1 << 0,
	RF_VSOCK_OWE_RESPONSE = 1 << 1,
	RF_VSOCK_OWE_CREDIT_UPDATE = 1 << 2,
	RF_VSOCK_OWE_CREDIT_REQUEST = 1 << 3,
	RF_VSOCK_OWE_SHUTDOWN = 1 << 4,
	RF_VSOCK_OWE_RST = 1 << 5,
};

/* What a received packet means to the owner of the connection; bits, several may come at once. */
enum {
	/* RESPONSE: the connection is established. */
	RF_VSOCK_EV_CONNECTED = 1 << 0,
	/* The packet's payload was admitted: pass it on, then call rf_vsock_conn_consumed(). */
	RF_VSOCK_EV_DATA = 1 << 1,
	/* There is more credit than before. */
	RF_VSOCK_EV_CREDIT = 1 << 2,
	/* The peer will not send any more (first time it says so): end of file behind the data. */
	RF_VSOCK_EV_SHUT_SEND = 1 << 3,
	/* The peer will not receive any more (first time it says so). */
	RF_VSOCK_EV_SHUT_RCV = 1 << 4,
	/* The connection is DEAD; conn->reason tells why. Data admitted before is still to be
	   passed on. */
	RF_VSOCK_EV_DEAD = 1 << 5,
	/* The peer has reset what was DEAD: our RST is not owed any more, rf_vsock_conn_done() is
	   true. */
	RF_VSOCK_EV_FORGOTTEN = 1 << 6,
};

/**
 * struct rf_vsock_key - What names a connection: local CID, peer CID, ports
 */
struct rf_vsock_key {
	uint64_t local_cid;
	uint64_t peer_cid;
	uint32_t local_port;
	uint32_t peer_port;
};

/**
 * struct rf_vsock_conn - A connection; embedded in its owner's
 * @table_link:	The table's
 * @key:	Name
 * @type:	VIRTIO_VSOCK_TYPE_STREAM
 * @scheduled:	The scheduler's
 * @sent:	Has any packet been handed out?
 * @bound_packets: Packets in flight are bounded
 * @state:	State
 * @owed:	RF_VSOCK_OWE_* bits
 * @local_shut:	RF_VSOCK_SHUT_* bits that we have owed or told
 * @peer_shut:	RF_VSOCK_SHUT_* bits that the peer has told
 * @credit:	Credit
 * @reason:	Why it is DEAD
 * @wake_ns:	When to call rf_vsock_conn_wake(), 0 for never
 * @ask_pause_ns: How long to wait before it is asked (again), 0 while nothing waits for it
 * @unasked_bytes: What was sent since the peer was last asked for its credit
 * @control_link, @data_link: the scheduler's
 * @inflight:	Packets in flight, if they are bounded
 *
 * What a packet has to look at comes first, and what it takes to find the connection before that:
 * with many connections, none of it is in the cache.
 */
struct rf_vsock_conn {
	LIST_ENTRY(rf_vsock_conn) table_link;
	struct rf_vsock_key key;
	uint16_t type;
	uint8_t scheduled;
	bool sent;
	bool bound_packets;
	enum rf_vsock_state state;
	uint32_t owed;
	uint32_t local_shut;
	uint32_t peer_shut;
	struct rf_vsock_credit credit;
	enum rf_vsock_reason reason;
	uint64_t wake_ns;
	uint64_t ask_pause_ns;
	uint64_t unasked_bytes;
	TAILQ_ENTRY(rf_vsock_conn) control_link;
	TAILQ_ENTRY(rf_vsock_conn) data_link;
	struct rf_vsock_inflight inflight;
};

/**
 * struct rf_vsock_params - What a connection starts with
 * @window:	Receive window, bytes
 * @tx_limit:	Most bytes in flight, see rf_vsock_credit_init()
 * @tell:	When to tell of consumed bytes
 * @bound_packets: Bound the packets in flight
 * @handshake_ns: Time for the peer to answer REQUEST, or for us to answer its
 * @shutdown_ns: Time for the peer to answer SHUTDOWN(both) with RST
 */
struct rf_vsock_params {
	uint32_t window;
	uint32_t tx_limit;
	enum rf_vsock_tell tell;
	bool bound_packets;
	uint64_t handshake_ns;
	uint64_t shutdown_ns;
};

/* Defaults from vsock/limits.h. */
void rf_vsock_params_default(struct rf_vsock_params *ret_params);

/**
 * rf_vsock_conn_connect() - Begin a connection from this side: REQUEST is owed
 */
void rf_vsock_conn_connect(struct rf_vsock_conn *conn, const struct rf_vsock_key *key,
			   const struct rf_vsock_params *params, uint64_t now_ns);

/**
 * rf_vsock_conn_request() - Begin a connection from the peer's REQUEST
 * @hdr:	The REQUEST; its credit is taken over (hermit PR 2254)
 *
 * Nothing is owed before rf_vsock_conn_accept() or rf_vsock_conn_reset().
 */
void rf_vsock_conn_request(struct rf_vsock_conn *conn, const struct rf_vsock_hdr *hdr,
			   const struct rf_vsock_params *params, uint64_t now_ns);

/*
 * Accept the peer's REQUEST: RESPONSE is owed, the connection is established. PEER_INIT only. What
 * the peer has shut down meanwhile was an event then and is in @peer_shut.
 */
void rf_vsock_conn_accept(struct rf_vsock_conn *conn);

/**
 * rf_vsock_conn_rx() - A packet for this connection arrived
 * @conn:	Connection, not DEAD without an owed RST
 * @hdr:	Header whose addresses are those of @conn; its @len was checked against the buffer
 *
 * A peer that breaks a rule makes the connection DEAD with an owed RST. A packet that comes before
 * our REQUEST was handed out belongs to an earlier use of the ports and is ignored (hyperkit PR
 * 33).
 *
 * Return: RF_VSOCK_EV_* bits.
 */
unsigned rf_vsock_conn_rx(struct rf_vsock_conn *conn, const struct rf_vsock_hdr *hdr);

/**
 * rf_vsock_conn_consumed() - Admitted payload was passed on; CREDIT_UPDATE may be owed now
 * @len:	Bytes
 */
void rf_vsock_conn_consumed(struct rf_vsock_conn *conn, uint32_t len);

/**
 * rf_vsock_conn_data() - May data be sent?
 * Return: payload that the next packet may carry; 0 unless established, not shut down on either
 * side, nothing owed that must come first, and credit left.
 */
uint32_t rf_vsock_conn_data(const struct rf_vsock_conn *conn);

/**
 * rf_vsock_conn_data_after() - The same, after other packets that are not sent yet
 * @n_pkts:	Their number
 * @bytes:	Their payload
 */
uint32_t rf_vsock_conn_data_after(const struct rf_vsock_conn *conn, uint32_t n_pkts,
				  uint32_t bytes);

/**
 * rf_vsock_conn_wait() - There is data to send, but rf_vsock_conn_data() is 0
 *
 * Unless its buffer is full, the peer does not know, and may not tell when it has consumed what is
 * in flight: it will be asked at conn->wake_ns. To be called again after rf_vsock_conn_wake() if
 * there still is data. When the wait is over, conn->wake_ns stays, and nothing happens then.
 *
 * Return: true if such a wait begins with this call.
 */
bool rf_vsock_conn_wait(struct rf_vsock_conn *conn, uint64_t now_ns);

/**
 * rf_vsock_conn_rw() - The header of a data packet that is sent now
 * @len:	Payload, 1 to RF_VSOCK_MAX_PAYLOAD and within rf_vsock_conn_data()
 *
 * CREDIT_REQUEST may be owed then.
 *
 * Return: may more data be sent? As rf_vsock_conn_data() would tell.
 */
bool rf_vsock_conn_rw(struct rf_vsock_conn *conn, uint32_t len, struct rf_vsock_hdr *ret_hdr);

/**
 * rf_vsock_conn_rw_more() - Add payload to a data packet that has not left yet
 * @hdr:	The header of the packet made last, from rf_vsock_conn_rw(); changed
 * @len:	Payload to add, within rf_vsock_conn_data(), or 0: only the credit that the header
 *		tells becomes that of this moment
 *
 * Return: as rf_vsock_conn_rw().
 */
bool rf_vsock_conn_rw_more(struct rf_vsock_conn *conn, struct rf_vsock_hdr *hdr, uint32_t len);

/**
 * rf_vsock_conn_shutdown() - This side will not send, or not receive, any more
 * @flags:	RF_VSOCK_SHUT_* bits; what was told before is not told again
 *
 * In any state; before the connection is established the packet waits until it is. It carries all
 * bits so far. The connection stays established until rf_vsock_conn_close(), or until a peer that
 * was told both bits answers with RST (CLOSED).
 */
void rf_vsock_conn_shutdown(struct rf_vsock_conn *conn, uint32_t flags);

/**
 * rf_vsock_conn_close() - This side is done with the connection
 *
 * SHUTDOWN(both) is owed, unless it was told, and the connection CLOSING: no credit is told and no
 * data admitted any more. A connection that was not established is reset; one that is DEAD (the
 * peer has shut down both ways) or CLOSING stays so.
 */
void rf_vsock_conn_close(struct rf_vsock_conn *conn, const struct rf_vsock_params *params,
			 uint64_t now_ns);

/**
 * rf_vsock_conn_reset() - End the connection now
 * @reason:	Why
 *
 * DEAD; RST is owed, unless the peer has never heard of the connection (REQUEST not handed out).
 */
void rf_vsock_conn_reset(struct rf_vsock_conn *conn, enum rf_vsock_reason reason);

/**
 * rf_vsock_conn_abandon() - The transport is gone: DEAD, and nothing is owed
 */
void rf_vsock_conn_abandon(struct rf_vsock_conn *conn, enum rf_vsock_reason reason);

/**
 * rf_vsock_conn_wake() - The time has come: ask for credit, or give up with the fitting reason
 *
 * Nothing happens if @now_ns is before wake_ns.
 *
 * Return: true if the connection was given up and is DEAD now.
 */
bool rf_vsock_conn_wake(struct rf_vsock_conn *conn, uint64_t now_ns);

/**
 * rf_vsock_conn_next() - Hand out the next owed control packet
 * @ret_hdr:	Its header, with the credit of this moment
 *
 * It is no longer owed then, so ask only when it can be sent.
 *
 * Return: false if nothing is owed (that can be sent in this state).
 */
bool rf_vsock_conn_next(struct rf_vsock_conn *conn, struct rf_vsock_hdr *ret_hdr);

/* Is there a control packet to hand out now? */
bool rf_vsock_conn_owes(const struct rf_vsock_conn *conn);

/* DEAD, and nothing owed any more: the owner may forget it. */
bool rf_vsock_conn_done(const struct rf_vsock_conn *conn);

#endif
