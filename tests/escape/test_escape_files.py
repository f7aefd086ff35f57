"""Mounts, /proc, /sys, devices and files: what is there is read-only or private, and what is not there is the host."""
from __future__ import annotations

import os
import re

import pytest

from support.attempts import attempt, jail, needs_sandbox

pytestmark = [pytest.mark.kernel, needs_sandbox]


async def test_only_the_working_copy_and_private_scratch_take_writes() -> None:
    script = r"""
awk '{print $5}' /proc/self/mountinfo | sort -u | while read -r m; do
  [ -d "$m" ] || m=$(dirname "$m")
  if touch "$m/.probe" 2>/dev/null; then echo "$m"; rm -f "$m/.probe"; fi
done | sort -u"""
    async with jail() as box:
        # Where init and the commands share one id, the directory above the private HOME is theirs too.
        assert set((await attempt(box, script)).split()) - {"/home", "/dev/mqueue"} == {"/dev/shm", "/tmp", "/workspace"}
        assert (await attempt(box, 'touch ~/x && echo home')).endswith("home")


async def test_the_systems_directories_are_read_only() -> None:
    script = r"""
for d in /usr /etc /bin /lib /opt /var / /run /dev /proc /usr/local/bin; do
  python3 -I -S -c "
import errno, os, sys
try:
    os.close(os.open(sys.argv[1] + '/.probe', os.O_CREAT | os.O_WRONLY)); print('WROTE', sys.argv[1])
except OSError as e:
    print(errno.errorcode[e.errno])" $d
done | sort -u"""
    async with jail() as box:
        assert set((await attempt(box, script)).split()) <= {"EROFS", "EACCES", "ENOENT"}


async def test_switches_of_the_kernel_cannot_be_opened_for_writing() -> None:
    names = "kernel/core_pattern kernel/modprobe kernel/hostname vm/overcommit_memory net/ipv4/ip_forward"
    script = f"""for f in {names}; do
(exec 3>>/proc/sys/$f) 2>&1 | grep -oE 'denied|Read-only|No such' || echo "OPENED $f"; done | sort -u"""
    async with jail() as box:
        assert "OPENED" not in await attempt(box, script)


async def test_facts_of_the_kernel_are_masked() -> None:
    async with jail() as box:
        covered = "cd /proc; cat cmdline kallsyms keys key-users modules 2>/dev/null | wc -c"
        assert await attempt(box, covered) == "0"
        said = await attempt(box, "(: </proc/kcore) 2>&1; (: >/proc/sysrq-trigger) 2>&1")
        assert all("denied" in line or "No such" in line for line in said.splitlines())


async def test_init_can_neither_be_looked_into_nor_overwritten() -> None:
    script = r"""
(exec 3>/proc/1/exe) 2>&1 | grep -oE 'denied|busy|Read-only|Text file' || echo WRITABLE
for f in environ maps mem; do (head -c 1 /proc/1/$f) 2>&1 | grep -oE 'denied|not permitted' || echo "READ $f"; done
for f in root cwd exe; do readlink /proc/1/$f || echo closed; done 2>/dev/null
ls /proc/1/fd 2>&1 | grep -c denied"""
    async with jail() as box:
        said = (await attempt(box, script)).splitlines()
    assert said == ["denied", "denied", "denied", "denied", "closed", "closed", "closed", "1"]


async def test_mountinfo_names_nothing_of_the_host() -> None:
    async with jail() as box:
        mounts = await attempt(box, "cat /proc/self/mountinfo")
    assert not re.search(r"/home/(?!agent)|/root|/var/tmp|lemni-box|upperdir=/[^p]|lowerdir=/[^p]", mounts)
    assert os.uname().nodename == "lemni" or os.uname().nodename not in mounts


async def test_there_is_no_sys_and_no_kernel_log() -> None:
    async with jail() as box:
        assert await attempt(box, "ls /sys /dev/kmsg /dev/mem /dev/kvm /dev/fuse 2>&1 | grep -c 'No such'") == "5"
        nodes = "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero"
        assert sorted((await attempt(box, "ls /dev")).split()) == nodes.split()


async def test_devices_work_and_none_can_be_made() -> None:
    script = r"""
need mknod mkfifo
echo x >/dev/null && head -c4 /dev/zero | od -An -tx1 | tr -d ' ' && head -c4 /dev/urandom | wc -c
mknod c1 c 1 3 2>&1 | grep -o 'not permitted'; mknod b1 b 7 0 2>&1 | grep -o 'not permitted'
mknod /tmp/w c 0 0 2>&1 | grep -o 'not permitted'; mkfifo ff && echo fifo; rm -f ff"""
    async with jail() as box:
        assert (await attempt(box, script)).splitlines() == ["00000000", "4", *["not permitted"] * 3, "fifo"]


async def test_no_file_of_the_outside_can_be_linked_in() -> None:
    script = r"""for f in /etc/passwd /usr/bin/env /proc/version; do
ln $f hl 2>&1 | grep -oE 'cross-device|not permitted|denied' || echo LINKED; rm -f hl; done | sort -u"""
    async with jail() as box:
        assert "LINKED" not in await attempt(box, script)


async def test_homes_of_the_host_are_not_there() -> None:
    async with jail() as box:
        said = await attempt(box, "ls -A /home /root /mnt /media /srv /boot 2>/dev/null; ls -A ~; test -w ~ && echo writable")
    assert said.split() == ["/home:", "agent", ".gitconfig", "writable"]


async def test_files_of_accounts_are_made_up() -> None:
    async with jail() as box:
        assert (await attempt(box, "cut -d: -f1 /etc/passwd")).split() == ["root", "agent", "nobody"]
        said = await attempt(box, "cat /etc/shadow /etc/machine-id /etc/resolv.conf /etc/sudoers 2>&1 | grep -c 'No such'")
        assert said == "4"


async def test_no_socket_of_a_service_is_visible() -> None:
    async with jail() as box:
        assert await attempt(box, "need find; find / -type s 2>/dev/null") == ""
        assert await attempt(box, "ls -A /run") == ""


async def test_a_core_dump_reaches_nobody() -> None:
    script = "ulimit -c unlimited 2>/dev/null; ulimit -c; (sh -c 'kill -SEGV $$') 2>/dev/null; ls core* 2>/dev/null | wc -l"
    async with jail() as box:
        assert (await attempt(box, script)).split() [:2] == ["0", "0"]
        said = await attempt(box, "grep -o 'core file size *[0-9]*  *[0-9]*' /proc/self/limits | tr -s ' '")
        assert said == "core file size 1 1"


async def test_lists_and_programs_by_other_ways_are_no_boundary_and_work() -> None:
    script = """cp /bin/true ./zz && ./zz; echo $?
$(ls /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1 2>/dev/null) /bin/true; echo $?"""
    async with jail() as box:
        assert (await attempt(box, script)).split() == ["0", "0"]


async def test_renames_and_links_across_directories_work() -> None:
    script = "mkdir -p a b && echo x > a/f && mv a/f b/g && ln b/g a/h && mv a b/ && cat b/a/h"
    async with jail() as box:
        assert await attempt(box, script) == "x"
