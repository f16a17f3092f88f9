/*
 * A client of corosync's closed process groups, to measure it by: compiled on the spot by bench/corosync.py.
 *
 *   corosync_client sink MEMBERS                      counts what is delivered
 *   corosync_client flood MEMBERS SIZE                the same, and keeps a window of its own messages under way
 *   corosync_client latency MEMBERS SIZE RATE COUNT   sends at light load, prints microseconds to own delivery
 *   corosync_client pace MEMBERS SIZE RATE            the same as sink, and sends so many messages a second
 *   corosync_client watch MEMBERS                     prints when each configuration of the ring came
 *
 * Each prints "ready" once MEMBERS clients are in the group. `sink`, `flood` and `pace` answer each line of
 * standard input with "NANOSECONDS DELIVERED SENT GAP CHANGES": GAP is the longest time without a delivery since
 * the last answer, in nanoseconds. A number on the line is the new window of `flood`, 0 at first.
 * `watch` prints "NANOSECONDS NODES". All nanoseconds are of the monotonic clock. All end with their standard
 * input.
 */
#define _GNU_SOURCE
#include <corosync/cpg.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define GROUP "totempole-bench"
#define SIZE_MAX_BYTES 1000000
#define START_TRIES_MAX 600
#define START_PAUSE_US 100000
#define FULL_PAUSE_US 100 /* how long to wait for deliveries while corosync takes no more */

static cpg_handle_t handle;
static int deliveries_fd;
static uint64_t deliveries, sent, window, changes;
static uint64_t delivered_ns, longest_gap_ns;
static size_t members;
static int watching;

/* latency: one message is under way at a time per slot; it carries its number */
static uint64_t *sent_ns;
static double *took_us;
static uint64_t measured;

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void fail(const char *what, cs_error_t error)
{
	fprintf(stderr, "%s: %s\n", what, cs_strerror(error));
	exit(1);
}

static void delivered(cpg_handle_t h, const struct cpg_name *group, uint32_t node, uint32_t pid, void *message,
		      size_t length)
{
	uint64_t number, now = now_ns();

	(void)h, (void)group, (void)node, (void)pid, (void)length;
	deliveries++;
	if (now - delivered_ns > longest_gap_ns)
		longest_gap_ns = now - delivered_ns;
	delivered_ns = now;
	if (sent_ns) {
		memcpy(&number, message, sizeof number);
		took_us[number] = (double)(now_ns() - sent_ns[number]) / 1000.0;
		measured++;
	}
}

static void group_changed(cpg_handle_t h, const struct cpg_name *group, const struct cpg_address *now, size_t now_count,
			  const struct cpg_address *left, size_t left_count, const struct cpg_address *joined,
			  size_t joined_count)
{
	(void)h, (void)group, (void)now, (void)left, (void)left_count, (void)joined, (void)joined_count;
	members = now_count;
}

static void ring_changed(cpg_handle_t h, struct cpg_ring_id ring, uint32_t count, const uint32_t *nodes)
{
	(void)h, (void)ring, (void)nodes;
	changes++;
	if (watching) {
		printf("%llu %u\n", (unsigned long long)now_ns(), count);
		fflush(stdout);
	}
}

static void dispatch(void)
{
	cs_error_t error = cpg_dispatch(handle, CS_DISPATCH_ALL);
	if (error != CS_OK && error != CS_ERR_TRY_AGAIN)
		fail("cpg_dispatch", error);
}

/* Waits for deliveries or a line on standard input; returns whether there is a line. */
static int wait_for_input(int64_t timeout_us)
{
	struct pollfd watched[2] = {{.fd = deliveries_fd, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
	struct timespec timeout = {.tv_sec = timeout_us / 1000000, .tv_nsec = timeout_us % 1000000 * 1000};

	if (ppoll(watched, 2, timeout_us < 0 ? NULL : &timeout, NULL) < 0 && errno != EINTR)
		exit(1);
	if (watched[0].revents)
		dispatch();
	return watched[1].revents != 0;
}

/* One line of standard input is answered; its end is the end of the program. */
static void answer(void)
{
	char line[256] = "", *end;
	uint64_t number, now = now_ns(), gap_ns = now - delivered_ns;

	if (read(0, line, sizeof line - 1) <= 0)
		exit(0);
	number = strtoull(line, &end, 10);
	if (end > line)
		window = number;
	if (gap_ns < longest_gap_ns)
		gap_ns = longest_gap_ns;
	longest_gap_ns = 0;
	printf("%llu %llu %llu %llu %llu\n", (unsigned long long)now, (unsigned long long)deliveries,
	       (unsigned long long)sent, (unsigned long long)gap_ns, (unsigned long long)changes);
	fflush(stdout);
}

/* A daemon that has just started, or whose ring is changing, has the client try again. */
static void join(size_t wanted)
{
	cpg_model_v1_data_t model = {.model = CPG_MODEL_V1,
				     .cpg_deliver_fn = delivered,
				     .cpg_confchg_fn = group_changed,
				     .cpg_totem_confchg_fn = ring_changed};
	struct cpg_name name = {.length = sizeof GROUP - 1, .value = GROUP};
	cs_error_t error = CS_ERR_TRY_AGAIN;
	int tries;

	for (tries = 0; tries < START_TRIES_MAX; tries++, usleep(START_PAUSE_US))
		if ((error = cpg_model_initialize(&handle, CPG_MODEL_V1, (cpg_model_data_t *)&model, NULL)) == CS_OK)
			break;
	if (error != CS_OK)
		fail("cpg_model_initialize", error);
	for (; tries < START_TRIES_MAX; tries++, usleep(START_PAUSE_US))
		if ((error = cpg_join(handle, &name)) != CS_ERR_TRY_AGAIN)
			break;
	if (error != CS_OK)
		fail("cpg_join", error);
	if ((error = cpg_fd_get(handle, &deliveries_fd)) != CS_OK)
		fail("cpg_fd_get", error);
	while (members < wanted)
		if (wait_for_input(-1))
			answer();
	puts("ready");
	fflush(stdout);
}

/* Whether corosync took the message; it takes none while its queue is full or its ring is changing. */
static int offer(char *message, size_t size)
{
	struct iovec piece = {.iov_base = message, .iov_len = size};
	cs_error_t error = cpg_mcast_joined(handle, CPG_TYPE_AGREED, &piece, 1);
	if (error != CS_OK && error != CS_ERR_TRY_AGAIN)
		fail("cpg_mcast_joined", error);
	return error == CS_OK;
}

static void sink(void)
{
	for (;;)
		if (wait_for_input(-1))
			answer();
}

/* Without a window corosync's own queue is always full, and its daemon spins trying to empty it. */
static void flood(size_t size)
{
	char *message = calloc(1, size);

	for (;;) {
		while (sent < deliveries + window && offer(message, size))
			sent++;
		if (wait_for_input(sent < deliveries + window ? FULL_PAUSE_US : -1))
			answer();
	}
}

static void latency(size_t size, uint64_t rate, uint64_t count)
{
	char *message = calloc(1, size);
	uint64_t next_ns = now_ns(), gap_ns = 1000000000u / rate, number, now;

	sent_ns = calloc(count, sizeof *sent_ns);
	took_us = calloc(count, sizeof *took_us);
	for (number = 0; number < count; number++) {
		next_ns += gap_ns;
		while ((now = now_ns()) < next_ns)
			if (wait_for_input((int64_t)(next_ns - now) / 1000 + 1))
				answer();
		memcpy(message, &number, sizeof number);
		sent_ns[number] = now_ns();
		while (!offer(message, size))
			wait_for_input(FULL_PAUSE_US);
	}
	while (measured < count)
		if (wait_for_input(-1))
			answer();
	for (number = 0; number < count; number++)
		printf("%.1f\n", took_us[number]);
	puts("done");
}

/* What corosync does not take in time is not sent: the pace stays. */
static void pace(size_t size, uint64_t rate)
{
	char *message = calloc(1, size);
	uint64_t next_ns = now_ns(), gap_ns = 1000000000u / rate, now;

	for (;;) {
		next_ns += gap_ns;
		while ((now = now_ns()) < next_ns)
			if (wait_for_input((int64_t)(next_ns - now) / 1000 + 1))
				answer();
		if (offer(message, size))
			sent++;
	}
}

int main(int count, char **words)
{
	const char *mode = count > 1 ? words[1] : "";
	size_t wanted = count > 2 ? strtoul(words[2], NULL, 10) : 0;
	size_t size = count > 3 ? strtoul(words[3], NULL, 10) : sizeof(uint64_t);

	if (!wanted || size < sizeof(uint64_t) || size > SIZE_MAX_BYTES) {
		fprintf(stderr, "usage: sink MEMBERS | flood MEMBERS SIZE | latency MEMBERS SIZE RATE COUNT | "
				"pace MEMBERS SIZE RATE | watch MEMBERS\n");
		return 2;
	}
	watching = !strcmp(mode, "watch");
	join(wanted);
	delivered_ns = now_ns();
	if (!strcmp(mode, "flood"))
		flood(size);
	else if (!strcmp(mode, "latency") && count > 5)
		latency(size, strtoull(words[4], NULL, 10), strtoull(words[5], NULL, 10));
	else if (!strcmp(mode, "pace") && count > 4)
		pace(size, strtoull(words[4], NULL, 10));
	else
		sink();
	return 0;
}
