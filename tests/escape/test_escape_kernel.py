"""System calls that reach past a sandbox: each is answered with the errno of the profile, by the filter."""
from __future__ import annotations

import pytest

from support.attempts import attempt, jail, needs_sandbox

pytestmark = [pytest.mark.kernel, needs_sandbox]

REFUSED = {
    "ptrace attach to init": "101 16 1 0 0",
    "ptrace traceme": "101 0 0 0 0",
    "process_vm_readv of init": "310 1 0 0 0 0 0",
    "process_vm_writev of init": "311 1 0 0 0 0 0",
    "kexec_load": "246 0 0 0 0",
    "kexec_file_load": "320 -1 -1 0 0 0",
    "init_module": "175 0 0 x",
    "finit_module": "313 -1 x 0",
    "delete_module": "176 nomod 0",
    "bpf": "321 0 0 0",
    "perf_event_open": "298 0 0 -1 -1 0",
    "add_key": "248 user k v 1 -1",
    "request_key": "249 user none 0 0",
    "keyctl": "250 0 -3 0",
    "userfaultfd": "323 1",
    "kcmp": "312 1 1 0 0 0",
    "pidfd_getfd": "438 0 0 0",
    "process_madvise": "440 0 0 0 0 0",
    "unshare user": "272 0x10000000",
    "unshare time": "272 0x80",
    "setns": "308 0 0",
    "mount": "165 none /tmp tmpfs 0 0",
    "umount2": "166 /tmp 2",
    "fsopen": "430 tmpfs 0",
    "open_tree clone": "428 -100 / 1",
    "fspick": "433 -100 / 0",
    "move_mount": "429 -1 x -1 x 0",
    "mount_setattr": "442 -100 / 0 0 0",
    "pivot_root": "155 . .",
    "chroot": "161 /tmp",
    "syslog": "103 3 x 1",
    "settimeofday": "164 0 0",
    "clock_settime": "227 0 0",
    "adjtimex": "159 0",
    "sethostname": "170 pwn 3",
    "setdomainname": "171 pwn 3",
    "personality without randomisation": "135 0x40000",
    "personality with executable data": "135 0x400000",
    "reboot": "169 0xfee1dead 672274793 0x1234567",
    "swapon": "167 /tmp 0",
    "acct": "163 0",
    "quotactl": "179 0 0 0 0",
    "open_by_handle_at": "304 -100 0 0",
    "fanotify_init": "300 0 0",
    "iopl": "172 3",
    "modify_ldt": "154 0 0 0",
    "limits of init": "302 1 7 0 0",
    "priority of init": "141 0 1 19",
    "affinity of init": "203 1 8 0",
    "scheduler of init": "144 1 0 0",
    "memfd_secret": "447 0",
}


async def test_each_is_refused() -> None:
    async with jail() as box:
        script = "\n".join(f"echo $(sc {call})" for call in REFUSED.values())
        answers = (await attempt(box, script)).splitlines()
    assert dict(zip(REFUSED, answers, strict=True)) == dict.fromkeys(REFUSED, "EPERM")


async def test_what_libraries_fall_back_from_is_absent() -> None:
    async with jail() as box:
        said = await attempt(box, "sc 435 0 0; sc 425 4 0; sc 426 0 0 0 0 0 0; sc 427 0 0 0 0; sc 999")
        assert said.split() == ["ENOSYS"] * 5


async def test_no_flag_of_clone_makes_a_namespace() -> None:
    flags = "0x20000 0x2000000 0x4000000 0x8000000 0x10000000 0x20000000 0x40000000"
    async with jail() as box:
        said = await attempt(box, f"for f in {flags}; do sc 56 $((f|17)) 0 0 0 0; done | sort | uniq -c | tr -s ' '")
        assert said == "7 EPERM"


async def test_threads_start_without_clone3() -> None:
    async with jail() as box:
        script = "python3 -c 'import threading; t=threading.Thread(target=print, args=(\"ok\",)); t.start(); t.join()'"
        assert await attempt(box, script) == "ok"


async def test_unshare_and_its_kin_fail_as_programs_too() -> None:
    async with jail() as box:
        assert "not permitted" in await attempt(box, "need unshare; unshare -U true")


async def test_namespaces_of_init_cannot_be_entered() -> None:
    script = r"""
for n in mnt net user pid ipc uts; do python3 -I -S -c "
import ctypes, errno, os
try:
    f = os.open('/proc/1/ns/$n', 0)
    r = ctypes.CDLL(None, use_errno=True).syscall(308, f, 0)
    print('ENTERED' if r == 0 else errno.errorcode[ctypes.get_errno()])
except OSError as e:
    print(errno.errorcode[e.errno])"; done | sort -u"""
    async with jail() as box:
        assert await attempt(box, script) in ("EACCES", "EPERM")


async def test_a_foreign_abi_ends_the_process() -> None:
    script = r"""
need gcc
cat > /tmp/i386.c <<'END'
int main(void) { int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); return 0; }
END
cat > /tmp/x32.c <<'END'
int main(void) { long r; __asm__ volatile("syscall" : "=a"(r) : "a"(0x40000000 + 39) : "rcx", "r11", "memory"); return 0; }
END
for abi in i386 x32; do gcc -o /tmp/$abi /tmp/$abi.c && { (/tmp/$abi) 2>/dev/null; echo "$abi $?"; }; done"""
    async with jail() as box:
        assert (await attempt(box, script)).splitlines()[:2] == ["i386 159", "x32 159"]


async def test_state_of_a_command_has_no_privilege() -> None:
    async with jail() as box:
        status = dict(
            line.split(":\t", 1) for line in (await attempt(box, "cat /proc/self/status")).splitlines() if ":\t" in line
        )
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert len(status["Uid"].split()) == 4
    assert status["Groups"].strip() in ("", status["Gid"].split()[0]) or "65534" in status["Groups"]


async def test_a_setuid_program_gives_nothing() -> None:
    script = """need su; su -c id </dev/null 2>&1
cp /bin/id /tmp/id && chmod 4755 /tmp/id && /tmp/id -u; cp /bin/id ./id; chmod 6755 ./id; ./id -u"""
    async with jail() as box:
        said = await attempt(box, script)
        own = await attempt(box, "id -u")
    assert said.splitlines()[-2:] == [own, own]
    assert "uid=0" not in said


async def test_scheduling_cannot_be_raised() -> None:
    script = """need chrt nice
chrt -f 10 true 2>&1 | grep -c -e 'not permitted' -e failed; nice -n -10 true 2>&1 | grep -c -e denied -e permi"""
    async with jail() as box:
        assert (await attempt(box, script)).split() == ["1", "1"]
