#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The manual pages say what the program and the headers do, no more and no less.

RF_BIN is the program.
"""
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'guest'))
# pylint: disable=wrong-import-position
from tap import Failure, check, check_equal, run_cases  # noqa: E402

BIN = os.environ.get('RF_BIN', os.path.join(ROOT, 'build', 'ringferry'))
MACROS = {'Ar', 'Cm', 'Fl'}


def read(*parts):
    """A file of the tree."""
    with open(os.path.join(ROOT, *parts), encoding='utf-8') as file:
        return file.read()


def help_text(*words):
    """What --help prints, on standard output, with exit status 0 and within 80 columns."""
    done = subprocess.run([BIN, *words, '--help'], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False, timeout=20)
    check_equal((done.returncode, done.stderr), (0, ''), f'{words} --help')
    for line in done.stdout.splitlines():
        check(len(line) <= 80, f'longer than 80 columns: {line}')
    return done.stdout


def subcommands():
    """Those that the program has."""
    listed = help_text().partition('Subcommands:\n')[2].partition('\n\n')[0]
    return re.findall(r'^  (\w+) ', listed, re.M)


def help_options(name):
    """Options of a subcommand with their arguments, as --help shows them."""
    found = re.findall(r'^  (?:-\w, |    )(--[\w-]+(?: [\w:=]+)?)(?:  .*)?$', help_text(name), re.M)
    check('--help' in found, f'no --help in {found}')
    return sorted(set(found) - {'--help'})


def plain(macro_line):
    """The text of an mdoc .It line: flags, arguments, and what joins them."""
    words, text, joined = macro_line.split()[1:], '', True
    for previous, word in zip([''] + words, words):
        if word in MACROS:
            continue
        if word == 'Ns':
            joined = True
            continue
        if previous == 'Fl':
            word = '-' + word
        text += word if joined or word in (':', ',') else ' ' + word
        joined = False
    return text


def page_sections():
    """Options of each .Ss section of ringferry.1."""
    sections = {}
    name = None
    for line in read('doc', 'ringferry.1').splitlines():
        if line.startswith('.Sh'):
            name = None
        elif line.startswith('.Ss '):
            name = line[4:]
            sections[name] = []
        elif name and line.startswith('.It Fl '):
            sections[name].append(plain(line))
    return sections


def subcommands_are_described():
    """ringferry.1 has a section for each subcommand."""
    names = subcommands()
    check({'connect', 'listen'} <= set(names), f'subcommands are {names}')
    missing = set(names) - set(page_sections())
    check(not missing, f'no section for {missing}')


def options_are_described():
    """ringferry.1 and --help have the same options and arguments, for each subcommand."""
    sections = page_sections()
    for name in subcommands():
        check_equal(sorted(sections[name]), help_options(name), f'options of {name} in the page')


def declared(header):
    """Prototypes in a header."""
    text = re.sub(r'/\*.*?\*/', '', header, flags=re.S)
    return sorted(re.sub(r'\s+', ' ', found).replace('* ', '*')
                  for found in re.findall(r'^RF_API ([^;]*\));', text, re.M))


def described(page):
    """Prototypes in a page's synopsis."""
    found = []
    kind = None
    for line in page.partition('.Sh SYNOPSIS')[2].partition('.Sh ')[0].splitlines():
        if line.startswith('.Ft '):
            kind = line[4:].strip('"')
        elif line.startswith('.Fn '):
            name, arguments = line[4:].split(' ', 1)
            arguments = ', '.join(re.findall(r'"([^"]*)"', arguments))
            found.append(f'{kind} {name}({arguments})'.replace('* ', '*'))
    return sorted(found)


def functions_are_described():
    """Each public header has a page in section 3 with its prototypes."""
    headers = glob.glob(os.path.join(ROOT, 'include', 'ringferry', '*.h'))
    check(len(headers) >= 2, 'headers are missing')
    for path in headers:
        name = os.path.basename(path)[:-2]
        page = read('doc', f'ringferry-{name}.3')
        prototypes = declared(read('include', 'ringferry', f'{name}.h'))
        check(len(prototypes) >= 3, f'{name}.h: found only {prototypes}')
        check_equal(described(page), prototypes, f'prototypes in ringferry-{name}.3')
        names = re.findall(r'^\.Nm (rf_\w+)', page.partition('.Sh LIBRARY')[0], re.M)
        check_equal(sorted(names), sorted(re.findall(r'(rf_\w+)\(', '\n'.join(prototypes))),
                    f'names in ringferry-{name}.3')


def errors_are_described():
    """The pages of section 3 list the errors that the headers name."""
    for name in ('client', 'guest', 'host'):
        page = read('doc', f'ringferry-{name}.3').partition('.Sh ERRORS')[2]
        wanted = set(re.findall(r'-(E[A-Z]+[A-Z0-9]*)\b', read('include', 'ringferry', f'{name}.h')))
        found = set(re.findall(r'^\.It Bq Er (\w+)', page, re.M))
        # What any call that makes something may meet.
        check_equal(sorted(found), sorted(wanted - {'ENOMEM'}), f'errors in ringferry-{name}.3')


COUNTERS = ('base/include/base/loop.h', 'host/include/host/vsock_device.h',
            'vsock/include/vsock/reason.h', 'vhost/include/vhost/session.h', 'guest/counters.h')


def counters_are_described():
    """ringferry.1 lists the counters in the words of the tables that they are printed from."""
    wanted = []
    for path in COUNTERS:
        text = re.sub(r'/\*.*?\*/', '', read('src', path), flags=re.S)
        listed = re.findall(r'\bX\((?:[A-Z_]+, )?(\w+), "([^"]*)"\)', text)
        check(listed, f'{path}: no counters')
        # Of connections that are still open nothing is counted.
        wanted += [(name, words.lower()) for name, words in listed if name != 'none']
    page = read('doc', 'ringferry.1').partition('.Sh COUNTERS')[2].partition('.Sh ')[0]
    found = re.findall(r'^\.It Va (\w+)\n((?:[^.].*\n)+)', page, re.M)
    found = [(name, ' '.join(text.split())[:-1].lower()) for name, text in found]
    check_equal([name for name, _ in found], [name for name, _ in wanted], 'names')
    for has, wants in zip(found, wanted):
        check_equal(has, wants, 'words')


def probes_are_described():
    """probes.md lists every probe with as many arguments as it has, and each is a counter's"""
    wanted = {}
    for path in glob.glob(os.path.join(ROOT, 'src', '*', '*.c')):
        for name, arguments in re.findall(r'\bRF_PROBE\((\w+),([^;]*)\);', read(path)):
            wanted[name] = arguments.count(',') + 1
    check(wanted, 'no probes')
    rows = re.findall(r'^\| `(\w+)` \|[^|]*\|([^|]*)\|$', read('doc', 'probes.md'), re.M)
    check_equal({name: text.count(',') + 1 for name, text in rows}, wanted, 'probes.md')
    counters = ' '.join(read('src', path) for path in COUNTERS)
    for name in wanted:
        check(f'X({name}, ' in counters, f'{name} has no counter')


def switches_are_described():
    """ringferry.1 names every value of every switch of each --tune, and no other."""
    page = read('doc', 'ringferry.1')
    for command in ('vsock', 'guest'):
        tuned = help_text(command).partition('--tune ')[2].partition('  --')[0]
        listed = re.findall(r'([\w-]+)=([\w|]+),\s+default\s+\w+\.', tuned)
        check(listed, f'{command}: no switches in --help')
        wanted = {f'{name}={value}' for name, values in listed for value in values.split('|')}
        section = page.partition(f'\n.Ss {command}\n')[2].partition('\n.Ss ')[0]
        item = section.partition('.It Fl -tune ')[2].partition('.It ')[0]
        found = re.findall(r'^\.Cm ([\w-]+) Ns = Ns Cm (\w+)', item, re.M)
        check_equal(sorted({'='.join(pair) for pair in found}), sorted(wanted),
                    f'{command}: values')


def tests_exist():
    """doc/published.md names tests that are there."""
    rows = [re.split(r' *\| *', line.strip('| ')) for line in read('doc', 'published.md').splitlines()
            if line.startswith('| ') and 'test-' in line]
    check(len(rows) > 10, 'found no rows')
    for row in rows:
        for reference in re.sub(r' \(.*?\)', '', row[-1]).split('; '):
            program, _, functions = reference.partition(': ')
            paths = [path for ending in ('c', 'py')
                     for path in glob.glob(os.path.join(ROOT, 'tests', '*', f'{program}.{ending}'))]
            check(len(paths) == 1, f'{program}: {paths}')
            text = read(paths[0])
            for function in functions.split(', ') if functions else ():
                check(re.search(rf'\b{function}\(', text), f'{program}: no {function}')


def links_lead_somewhere():
    """Links in README.md and doc/ to files of the tree lead to files."""
    pages = [os.path.join(ROOT, 'README.md')] + glob.glob(os.path.join(ROOT, 'doc', '*.md'))
    for path in pages:
        for target in re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)', read(path)):
            if not os.path.exists(os.path.join(os.path.dirname(path), target)):
                raise Failure(f'{os.path.relpath(path, ROOT)}: {target} is not there')


if __name__ == '__main__':
    sys.exit(run_cases([
        subcommands_are_described, options_are_described, functions_are_described,
        errors_are_described, counters_are_described, switches_are_described,
        probes_are_described, tests_exist, links_lead_somewhere,
    ]))
