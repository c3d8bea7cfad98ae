# SPDX-License-Identifier: BSD-3-Clause
"""The guest's kernel and initramfs, made from Debian packages.

Nothing is installed on the host: the kernel package is downloaded as the user who runs this and
only unpacked, busybox and socat are those of the host. Root is not needed. The kernel is kept in
$RF_GUEST_CACHE, or ringferry/guest in $XDG_CACHE_HOME or ~/.cache.
"""
import fcntl
import gzip
import lzma
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
import zlib

from tap import Skip

# In the order in which they are loaded; a module that the package lacks is built into its kernel.
MODULES = ('virtio_ring', 'virtio', 'virtio_pci_legacy_dev', 'virtio_pci_modern_dev', 'virtio_pci',
           'virtio_console', 'vsock', 'vmw_vsock_virtio_transport_common',
           'vmw_vsock_virtio_transport')
# For a guest that is a host itself: not loaded at boot, see Machine.load_vhost().
HOST_MODULES = ('vhost_iotlb', 'vhost', 'vhost_vsock')
METAPACKAGE = {'6.1': 'linux-image-cloud-amd64', '6.12': 'linux-image-6.12-cloud-amd64'}
UNPACK = {'.ko': bytes, '.ko.xz': lzma.decompress, '.ko.gz': gzip.decompress}

HERE = os.path.dirname(os.path.abspath(__file__))


class Missing(Skip):
    """Something that a guest needs is not on this machine; its text says what."""


def run(argv, seconds, **kwargs):
    """Run a program to its end; its standard output, or Missing with its last error line."""
    try:
        done = subprocess.run(argv, timeout=seconds, stdin=subprocess.DEVNULL, capture_output=True,
                              check=False, **kwargs)
    except FileNotFoundError:
        raise Missing(f'{argv[0]} is not installed') from None
    except subprocess.TimeoutExpired:
        raise Missing(f'{argv[0]} took longer than {seconds} s') from None
    if done.returncode:
        lines = done.stderr.decode(errors='replace').strip().splitlines()
        raise Missing(f'{argv[0]}: {lines[-1] if lines else done.returncode}')
    return done.stdout


def find_tool(name):
    """Where a program is, sbin included."""
    path = shutil.which(name, path=os.environ.get('PATH', '') + ':/usr/sbin:/sbin')
    if not path:
        raise Missing(f'{name} is not installed')
    return path


def cache_dir():
    """Where fetched kernels are kept."""
    path = os.environ.get('RF_GUEST_CACHE')
    if not path:
        base = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
        path = os.path.join(base, 'ringferry', 'guest')
    os.makedirs(path, exist_ok=True)
    return path


def private_apt(work):
    """Options that give apt lists of its own, which need no root; fetches the lists."""
    state = os.path.join(work, 'apt')
    options = []
    for key, sub in (('State', 'state'), ('Cache', 'cache')):
        os.makedirs(os.path.join(state, sub, 'lists' if key == 'State' else 'archives', 'partial'),
                    exist_ok=True)
        options += ['-o', f'Dir::{key}={os.path.join(state, sub)}']
    options += ['-o', 'Dir::State::status=/var/lib/dpkg/status', '-o', 'APT::Sandbox::User=root']
    run(['apt-get', *options, '-q', 'update'], 300)
    return options


def download(meta, options, into):
    """Download the package that the metapackage depends on; its name and its file."""
    depends = run(['apt-cache', *options, 'depends', meta], 60).decode()
    names = [line.split()[1] for line in depends.splitlines() if 'Depends: linux-image-' in line]
    if not names:
        raise Missing(f'apt knows no kernel for {meta}')
    run(['apt-get', *options, '-q', 'download', '-o', 'APT::Sandbox::User=root', names[0]], 300,
        cwd=into)
    debs = [name for name in os.listdir(into) if name.endswith('.deb')]
    return os.path.join(into, debs[0])


def unpack(deb, into):
    """Take the kernel and its few modules out of a package."""
    with subprocess.Popen(['dpkg-deb', '--fsys-tarfile', deb], stdout=subprocess.PIPE) as pack:
        with tarfile.open(fileobj=pack.stdout, mode='r|') as tar:
            for member in tar:
                name = os.path.basename(member.name)
                stem, dot, ext = name.partition('.')
                if name.startswith('vmlinuz-'):
                    target, convert = 'vmlinuz', bytes
                elif stem in MODULES + HOST_MODULES and dot + ext in UNPACK:
                    target, convert = stem + '.ko', UNPACK[dot + ext]
                else:
                    continue
                with open(os.path.join(into, target), 'wb') as out:
                    out.write(convert(tar.extractfile(member).read()))
        if pack.wait(60):
            raise Missing(f'dpkg-deb cannot unpack {deb}')
    if not os.path.exists(os.path.join(into, 'vmlinuz')):
        raise Missing(f'no kernel in {deb}')


def fetch_kernel(version):
    """The directory with vmlinuz and modules of a Debian cloud kernel, fetched at first use."""
    if os.uname().machine != 'x86_64':
        raise Missing('the guest is an x86-64 Linux and takes its programs from the host')
    if version not in METAPACKAGE:
        raise Missing(f'kernel {version} is none of: {", ".join(METAPACKAGE)}')
    cache = cache_dir()
    # Another list of modules is another directory.
    tag = zlib.crc32(' '.join(MODULES + HOST_MODULES).encode())
    kernel = os.path.join(cache, f'linux-{version}-{tag:08x}')
    with open(os.path.join(cache, 'lock'), 'w', encoding='ascii') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(kernel):
            return kernel
        with tempfile.TemporaryDirectory(dir=cache) as work:
            try:
                deb = download(METAPACKAGE[version], [], work)
            except Missing:
                # The host's package lists are missing or older than the archive.
                deb = download(METAPACKAGE[version], private_apt(work), work)
            parts = os.path.join(work, 'kernel')
            os.mkdir(parts)
            unpack(deb, parts)
            os.rename(parts, kernel)
    return kernel


class Cpio:
    """Writer of a "newc" archive. Device nodes are only entries in it: that needs no root."""

    def __init__(self, out):
        self.out = out
        self.inode = 0
        self.dirs = set()
        self.files = set()

    def entry(self, name, mode, data=b'', device=(0, 0)):
        """Add one entry, whose directory must be there."""
        self.inode += 1
        raw = name.encode() + b'\0'
        fields = (self.inode, mode, 1, 0, 0, 0, len(data), 0, 0, *device, len(raw), 0)
        head = b'070701' + b''.join(b'%08X' % field for field in fields) + raw
        self.out.write(head + b'\0' * (-len(head) % 4) + data + b'\0' * (-len(data) % 4))

    def directory(self, name):
        """Add a directory and those above it, once."""
        if name and name not in self.dirs:
            self.directory(os.path.dirname(name))
            self.dirs.add(name)
            self.entry(name, stat.S_IFDIR | 0o755)

    def file(self, name, source):
        """Add an executable file, once, and its directory."""
        name = name.lstrip('/')
        if name in self.files:
            return
        self.files.add(name)
        self.directory(os.path.dirname(name))
        with open(source, 'rb') as data:
            self.entry(name, stat.S_IFREG | 0o755, data.read())

    def node(self, name, major, minor):
        """Add a character device."""
        self.directory(os.path.dirname(name))
        self.entry(name, stat.S_IFCHR | 0o600, device=(major, minor))

    def end(self):
        """Write the end mark."""
        self.entry('TRAILER!!!', 0)


def libraries(program):
    """The shared libraries of a program, its loader included; none of one that is static."""
    done = subprocess.run(['ldd', program], capture_output=True, check=False, timeout=30)
    words = done.stdout.decode().split() if done.returncode == 0 else []
    found = [word for word in words if word.startswith('/')]
    # The C library loads it when a thread ends, or is to.
    found += [path.replace('libc.so.6', 'libgcc_s.so.1') for path in found
              if path.endswith('/libc.so.6')]
    return [path for path in found if os.path.exists(path)]


def static_busybox():
    """The host's busybox, which must not need libraries."""
    path = find_tool('busybox')
    if libraries(path):
        raise Missing('busybox-static is not installed (busybox needs libraries)')
    return path


def write_initramfs(path, kernel, extra=()):
    """Write the guest's file system: busybox, socat, the modules, /init and programs of @extra.

    It is not compressed: QEMU copies it faster than an emulated guest unpacks it.
    """
    socat = find_tool('socat')
    with open(path, 'wb') as out:
        cpio = Cpio(out)
        for name in ('dev', 'proc', 'sys', 'tmp'):
            cpio.directory(name)
        cpio.node('dev/console', 5, 1)
        cpio.file('init', os.path.join(HERE, 'init.sh'))
        cpio.file('bin/busybox', static_busybox())
        for directory, modules in (('modules', MODULES), ('modules/host', HOST_MODULES)):
            for order, module in enumerate(modules):
                source = os.path.join(kernel, module + '.ko')
                if os.path.exists(source):
                    cpio.file(f'{directory}/{order}-{module}.ko', source)
        for program in (socat, *extra):
            cpio.file('bin/' + os.path.basename(program), program)
            for library in libraries(program):
                cpio.file(library, library)
        cpio.end()
