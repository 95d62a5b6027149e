"""Our seccomp profile: the system calls that a sandbox may use; everything else fails with EPERM.

Engines ship profiles of their own, but what those allow depends on the engine's age: io_uring, vsock and
AF_ALG were open for years. So the list is ours, and a test tries what must fail and what must work.

Decisions that are not obvious:

* `ptrace` is allowed: debuggers are everyday tools, it reaches only processes of the same user, and since
  Linux 4.8 a tracee cannot get around its filter. `process_vm_*`, `pidfd_getfd` and `kcmp` are not needed for it.
* `clone3` answers ENOSYS instead of EPERM: its flags lie in memory, where a filter cannot see new
  namespaces, and C libraries then fall back to `clone`, whose flags are checked here.
* `socket` is limited to Unix, IP and the routing part of netlink (address look-ups ask it for interfaces). That
  shuts out vsock (the hypervisor), AF_ALG (kernel crypto), packet and every rare family.
* `landlock_*` and `seccomp` stay: programs may lock themselves in further.
* No 32-bit and no x32 calls: a second system-call table doubles what has to be right.
"""

from __future__ import annotations

import json
from functools import cache

# Flags of clone() that make namespaces: mount, cgroup, UTS, IPC, user, PID and network.
_NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_ENOSYS = 38
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK, _NETLINK_ROUTE = 1, 2, 10, 16, 0
# Linux, 16-bit time, no randomisation of either kind, and the query value: what shells and debuggers ask for.
_PERSONALITIES = (0x0, 0x0008, 0x20000, 0x20008, 0x40000, 0xFFFFFFFF)

_FILES = """
access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64
fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fremovexattr
fsetxattr fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getxattr getxattrat inotify_add_watch
inotify_init inotify_init1 inotify_rm_watch ioctl lchown lgetxattr link linkat listxattr listxattrat llistxattr
lremovexattr lseek lsetxattr lstat mkdir mkdirat mknod mknodat newfstatat open openat openat2 pread64 preadv preadv2
pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv removexattr removexattrat rename renameat renameat2
rmdir sendfile setxattr setxattrat splice stat statfs statx symlink symlinkat sync sync_file_range syncfs tee truncate
umask unlink unlinkat utime utimensat utimes write writev file_getattr file_setattr
"""
_MEMORY = """
brk madvise map_shadow_stack membarrier memfd_create mincore mlock mlock2 mlockall mmap mprotect mremap mseal msync
munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_madvise remap_file_pages cachestat
"""
_PROCESSES = """
capget capset execve execveat exit exit_group fork getegid geteuid getgid getgroups getpgid getpgrp getpid getppid
getpriority getresgid getresuid getrlimit getrusage getsid gettid getuid ioprio_get ioprio_set kill landlock_add_rule
landlock_create_ruleset landlock_restrict_self pause pidfd_open pidfd_send_signal prctl prlimit64 ptrace rseq
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp setfsgid
setfsuid setgid setgroups setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setuid
set_robust_list get_robust_list set_tid_address sysinfo tgkill times tkill uname vfork wait4 waitid getcpu
"""
_SIGNALS_AND_TIME = """
alarm adjtimex clock_adjtime clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep
restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
rt_tgsigqueueinfo setitimer sigaltstack signalfd signalfd4 time timer_create timer_delete timer_getoverrun
timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime
"""
_WAITING = """
epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2
futex futex_requeue futex_wait futex_waitv futex_wake io_cancel io_destroy io_getevents io_pgetevents io_setup
io_submit poll ppoll pselect6 select
"""
_TALKING = """
accept accept4 bind connect getpeername getrandom getsockname getsockopt listen mq_getsetattr mq_notify mq_open
mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd pipe pipe2 recvfrom recvmmsg recvmsg semctl semget
semop semtimedop sendmmsg sendmsg sendto setsockopt shmat shmctl shmdt shmget shutdown
"""
_X86 = "arch_prctl"


@cache
def profile() -> str:
    """The profile as JSON text, as engines take it."""
    names = sorted(set(f"{_FILES}{_MEMORY}{_PROCESSES}{_SIGNALS_AND_TIME}{_WAITING}{_TALKING}{_X86}".split()))
    rules: list[dict[str, object]] = [
        _allow(names),
        _allow(["clone"], _argument(0, _NEW_NAMESPACES, "SCMP_CMP_MASKED_EQ", second=0)),
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
        *(_allow(["socket"], _argument(0, family)) for family in (_AF_UNIX, _AF_INET, _AF_INET6)),
        _allow(["socket"], _argument(0, _AF_NETLINK), _argument(2, _NETLINK_ROUTE)),
        _allow(["socketpair"], _argument(0, _AF_UNIX)),
        *(_allow(["personality"], _argument(0, value)) for value in _PERSONALITIES),
    ]
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ERRNO",
            "defaultErrnoRet": 1,
            "archMap": [
                {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
                {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
            ],
            "syscalls": rules,
        },
        separators=(",", ":"),
    )


def _allow(names: list[str], *arguments: dict[str, object]) -> dict[str, object]:
    rule: dict[str, object] = {"names": names, "action": "SCMP_ACT_ALLOW"}
    if arguments:
        rule["args"] = list(arguments)
    return rule


def _argument(index: int, value: int, compare: str = "SCMP_CMP_EQ", *, second: int = 0) -> dict[str, object]:
    return {"index": index, "value": value, "valueTwo": second, "op": compare}
