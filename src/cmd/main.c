/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program: finds the subcommand and runs it.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "options.h"

static const struct rf_cmd *const cmds[] = {
	&rf_cmd_vsock, &rf_cmd_guest, &rf_cmd_connect, &rf_cmd_listen, &rf_cmd_bench,
};

static void help_print(void)
{
	printf("Usage: ringferry SUBCOMMAND [ARGUMENT]...\n"
	       "Vsock between virtual machines, or user-space guests, and their host.\n"
	       "\nSubcommands:\n");
	for (size_t i = 0; i < RF_ARRAY_SIZE(cmds); i++)
		printf("  %-9s%s\n", cmds[i]->name, cmds[i]->summary);
	printf("\nOptions:\n"
	       "  -h, --help     Show this help and exit.\n"
	       "  -V, --version  Show the version and exit.\n"
	       "\n\"ringferry SUBCOMMAND --help\" tells about one of them; see also "
	       "ringferry(1).\n");
}

static int usage_error(const char *what, const char *wrong)
{
	fprintf(stderr, "ringferry: %.200s%s; allowed:", what, wrong);
	for (size_t i = 0; i < RF_ARRAY_SIZE(cmds); i++)
		fprintf(stderr, " %s,", cmds[i]->name);
	fprintf(stderr, " --help, --version\n");
	return RF_EXIT_USAGE;
}

static int run(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : NULL;

	if (!word)
		return usage_error("subcommand", " missing");
	for (size_t i = 0; i < RF_ARRAY_SIZE(cmds); i++)
		if (!strcmp(word, cmds[i]->name))
			return cmds[i]->main(argc - 1, argv + 1);
	if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
		help_print();
		return 0;
	}
	if (!strcmp(word, "--version") || !strcmp(word, "-V")) {
		printf("ringferry %s\n", RF_VERSION);
		return 0;
	}
	return usage_error(word, *word == '-' ? ": unknown option" : ": unknown subcommand");
}

/*
 * Where the caller has closed a standard descriptor, none of ours may take its place: a socket
 * would be read as the input, or sent the output. It goes on failing as a closed one does.
 */
static void keep_standard_fds(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
	int status;

	keep_standard_fds();
	/* A peer that went away is an error code of the call that met it. */
	signal(SIGPIPE, SIG_IGN);
	status = run(argc, argv);
	if (fflush(stdout) && !status) {
		perror("ringferry: standard output");
		status = 1;
	}
	return status;
}
