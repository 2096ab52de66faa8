"""Attempts of a program to reach the task of another tenant and the executor of its node.

Arguments: process id of the other program, its task folder, its checkpoint folder, its file in
/dev/shm, the data folder of the executor, process id of the executor. Prints a line per attempt:
`NAME: refused: REASON` or `NAME: SUCCEEDED`.
"""

import ctypes
import os
import resource
import signal
import socket
import sys
from pathlib import Path

PID = int(sys.argv[1])
TASK, CHECKPOINTS, SHARED, DATA = map(Path, sys.argv[2:6])
DAEMON = int(sys.argv[6])
OWN = Path(os.environ["MUSTER_TASK_DIR"])
LIBC = ctypes.CDLL(None, use_errno=True)

attempts = []


def attempt(function):
    attempts.append(function)
    return function


def call(name, *arguments):
    """A system call of the C library, with its error as an exception."""
    if getattr(LIBC, name)(*arguments) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def syscall(number, *arguments):
    result = LIBC.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def proc(name):
    return Path("/proc") / str(PID) / name


@attempt
def read_environment():
    assert b"VICTIM" in proc("environ").read_bytes()


@attempt
def read_arguments():
    assert proc("cmdline").read_bytes()


@attempt
def read_status():
    assert proc("status").read_bytes()


@attempt
def find_process():
    assert str(PID) in os.listdir("/proc")


@attempt
def open_memory():
    proc("mem").open("rb").close()


@attempt
def list_working_folder():
    os.listdir(proc("cwd"))


@attempt
def list_root_of_process():
    os.listdir(proc("root"))


@attempt
def list_descriptors():
    os.listdir(proc("fd"))


@attempt
def read_memory_map():
    assert proc("maps").read_bytes()


@attempt
def send_signal():
    os.kill(PID, signal.SIGCHLD)


@attempt
def stop_process():
    os.kill(PID, signal.SIGCONT)


@attempt
def trace_process():
    call("ptrace", 0x4206, PID, None, None)  # PTRACE_SEIZE


@attempt
def read_memory():
    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    buffer = ctypes.create_string_buffer(8)
    try:
        address = int(proc("maps").read_text().split("-")[0], 16)
    except OSError:
        address = 0x400000
    local = Piece(ctypes.cast(buffer, ctypes.c_void_p), 8)
    remote = Piece(address, 8)
    call("process_vm_readv", PID, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)


@attempt
def take_descriptor():
    pidfd = syscall(434, PID, 0)  # pidfd_open
    syscall(438, pidfd, 1, 0)  # pidfd_getfd


@attempt
def signal_by_descriptor():
    pidfd = syscall(434, PID, 0)
    syscall(424, pidfd, int(signal.SIGCHLD), None, 0)  # pidfd_send_signal


@attempt
def change_priority():
    os.setpriority(os.PRIO_PROCESS, PID, 19)


@attempt
def change_affinity():
    os.sched_setaffinity(PID, os.sched_getaffinity(0))


@attempt
def change_limits():
    resource.prlimit(PID, resource.RLIMIT_NOFILE, (64, 64))


@attempt
def list_task_folder():
    os.listdir(TASK)


@attempt
def read_document():
    (TASK / "task.json").read_bytes()


@attempt
def read_log():
    (TASK / "log").read_bytes()


@attempt
def read_token():
    (TASK / "token").read_bytes()


@attempt
def forge_report():
    with open(TASK / "events.jsonl", "a") as events:
        events.write('{"kind":"note","message":"forged"}\n')


@attempt
def link_file():
    os.link(TASK / "work" / "private", OWN / "stolen")


@attempt
def read_checkpoint():
    (CHECKPOINTS / "weights").read_bytes()


@attempt
def write_checkpoint():
    (CHECKPOINTS / "forged").write_text("x")


@attempt
def rename_checkpoints():
    os.rename(CHECKPOINTS, CHECKPOINTS.with_name("gone"))


@attempt
def list_code_of_other_tenant():
    assert os.listdir(CHECKPOINTS.parent.parent / "code")


@attempt
def open_file_of_temporary_folder():
    Path(f"/tmp/victim-{PID}").read_bytes()


@attempt
def connect_to_socket_of_temporary_folder():
    socket.socket(socket.AF_UNIX).connect(f"/tmp/victim-{PID}.sock")


@attempt
def connect_to_socket_of_task():
    socket.socket(socket.AF_UNIX).connect(str(TASK / "work" / "s"))


@attempt
def read_shared_memory():
    SHARED.read_bytes()


@attempt
def list_environments():
    tenants = DATA / "environments"
    own = os.getuid()
    for tenant in ["00000000-0000-0000-0000-000000000002"]:
        assert os.stat(tenants / tenant).st_uid >= 0
        os.listdir(tenants / tenant)


@attempt
def become_other_user():
    os.setuid(int(sys.argv[7]))
    assert os.getuid() != int(sys.argv[8])


@attempt
def read_credential_of_node():
    (DATA / "credential").read_bytes()


@attempt
def read_environment_of_daemon():
    assert Path(f"/proc/{DAEMON}/environ").read_bytes()


@attempt
def signal_daemon():
    os.kill(DAEMON, signal.SIGCHLD)


@attempt
def signal_shim():
    os.kill(os.getppid(), signal.SIGCHLD)


@attempt
def write_lease():
    (DATA / "lease").open("a").close()


@attempt
def change_records_of_shims():
    (DATA / "shims" / "forged").write_text("{}")


@attempt
def add_task():
    (DATA / "tasks" / "forged").mkdir()


@attempt
def leave_cgroup():
    Path("/sys/fs/cgroup/cgroup.procs").write_text(str(os.getpid()))


@attempt
def mount_disk():
    call("mount", b"tmpfs", b"/tmp", b"tmpfs", 0, None)


@attempt
def unmount_view():
    call("umount2", b"/proc", 2)


@attempt
def uncover_folder_in_user_namespace():
    child = os.fork()
    if child == 0:
        try:
            call("unshare", 0x10000000 | 0x00020000)  # CLONE_NEWUSER, CLONE_NEWNS
            call("umount2", b"/tmp", 2)
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 0:
        raise OSError(code, os.strerror(code))


@attempt
def change_root():
    os.chroot("/")


@attempt
def enter_namespace_of_init():
    with open("/proc/1/ns/mnt") as namespace:
        call("setns", namespace.fileno(), 0)


@attempt
def load_module():
    syscall(175, b"", 0, b"")  # init_module


for function in attempts:
    try:
        function()
        print(f"{function.__name__}: SUCCEEDED", flush=True)
    except (OSError, ValueError, AssertionError) as error:
        print(f"{function.__name__}: refused: {error}", flush=True)
print(f"attempts: {len(attempts)}", flush=True)
