/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a fuzz target without libFuzzer: each file of a corpus, then inputs made from a seed, random
 * ones and damaged corpus files. Prints TAP: one case per file, one for the rest.
 *
 *   fuzz-X CORPUS            RF_FUZZ_RUNS (default 200000) inputs from RF_FUZZ_SEED (default 1) on
 *   fuzz-X CORPUS FILE...    only these files, for repeating a failure
 *
 * An input that fails is left in "fuzz-failed" in the working directory, and named.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "prng.h"

#define INPUT_MAX 4096
#define FILES_MAX 1024

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Called by the sanitizers before they end the program; not there without them. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

struct input {
	uint8_t data[INPUT_MAX];
	size_t size;
};

static struct input corpus[FILES_MAX];
static char *names[FILES_MAX];
static unsigned n_files;

static struct input current;
static char current_name[300];

/* Only what a signal handler may do. */
static void say(const char *text)
{
	(void)!write(STDERR_FILENO, text, strlen(text));
}

static void keep_failed(void)
{
	int fd = open("fuzz-failed", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, current.data, current.size) != (ssize_t)current.size)
		return;
	say("# failed on ");
	say(current_name);
	say(", kept in fuzz-failed\n");
}

static void on_signal(int sig)
{
	keep_failed();
	signal(sig, SIG_DFL);
	raise(sig);
}

static void run(const struct input *input)
{
	current = *input;
	/* Its own allocation, so that reading beyond the input is seen. */
	uint8_t *copy = malloc(input->size ? input->size : 1);

	if (!copy)
		abort();
	memcpy(copy, input->data, input->size);
	LLVMFuzzerTestOneInput(copy, input->size);
	free(copy);
}

static void load(const char *path)
{
	struct input *input = &corpus[n_files];
	FILE *file = fopen(path, "re");

	if (!file || n_files == FILES_MAX) {
		printf("Bail out! %s: cannot read\n", path);
		exit(1);
	}
	input->size = fread(input->data, 1, sizeof(input->data), file);
	fclose(file);
	names[n_files++] = strdup(path);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void load_dir(const char *dir)
{
	struct dirent **entries;
	int n = scandir(dir, &entries, NULL, by_name);

	if (n < 0) {
		printf("Bail out! %s: no corpus\n", dir);
		exit(1);
	}
	for (int i = 0; i < n; i++) {
		char path[512];

		snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
		if (entries[i]->d_name[0] != '.')
			load(path);
		free(entries[i]);
	}
	free(entries);
}

static void make_input(uint64_t seed, struct input *ret_input)
{
	if (n_files && prng_below(&seed, 2)) {
		*ret_input = corpus[prng_below(&seed, n_files)];
		/* Sometimes cut, always damaged. */
		if (ret_input->size && prng_below(&seed, 4) == 0)
			ret_input->size = prng_below(&seed, (uint32_t)ret_input->size);
		for (uint32_t n = 1 + prng_below(&seed, 8); n > 0 && ret_input->size; n--)
			ret_input->data[prng_below(&seed, (uint32_t)ret_input->size)] =
				(uint8_t)prng_next(&seed);
		return;
	}
	ret_input->size = prng_below(&seed, prng_below(&seed, 4) ? 256 : INPUT_MAX);
	for (size_t i = 0; i < ret_input->size; i++)
		ret_input->data[i] = (uint8_t)prng_next(&seed);
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
	uint64_t seed = number("RF_FUZZ_SEED", 1), runs = number("RF_FUZZ_RUNS", 200000);
	static struct input made;

	if (argc < 2)
		return 2;
	if (argc > 2) {
		runs = 0;
		for (int i = 2; i < argc; i++)
			load(argv[i]);
	} else {
		load_dir(argv[1]);
	}
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(keep_failed);
	signal(SIGABRT, on_signal);
	if (!__sanitizer_set_death_callback)
		signal(SIGSEGV, on_signal);

	printf("1..%u\n", n_files + (runs > 0));
	for (unsigned i = 0; i < n_files; i++) {
		snprintf(current_name, sizeof(current_name), "%s", names[i]);
		run(&corpus[i]);
		printf("ok %u - %s\n", i + 1,
		       strrchr(names[i], '/') ? strrchr(names[i], '/') + 1 : names[i]);
		free(names[i]);
	}
	for (uint64_t i = 0; i < runs; i++) {
		snprintf(current_name, sizeof(current_name), "seed %" PRIu64, seed + i);
		make_input(seed + i, &made);
		run(&made);
	}
	if (runs)
		printf("ok %u - %" PRIu64 " inputs from seed %" PRIu64 "\n", n_files + 1, runs,
		       seed);
	return 0;
}
