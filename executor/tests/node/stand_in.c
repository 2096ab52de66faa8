/* NOT NVIDIA's library: a stand-in for libcuda and NVML for tests, without a GPU.
 *
 * "GPU" 0 has 16 GB. A process uses it if the folder STAND_IN contains the file `uses.PID` with its
 * bytes; `state.PID` contains its state in the driver. Each call is appended to `calls`. Calls in a
 * wrong order are refused as by NVIDIA's driver.
 *
 * The file `fail.CALL` makes a call fail, and `hang.CALL` makes it never return. If `hang.CALL`
 * contains "done", the call takes effect first. A call with `slow.CALL` returns after that file is
 * removed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <dirent.h>
#include <signal.h>

static char path_[4096];

static const char *path(const char *name) {
    const char *folder = getenv("STAND_IN");
    snprintf(path_, sizeof path_, "%s/%s", folder ? folder : "/nonexistent", name);
    return path_;
}

static int read_number(const char *name, unsigned long long *number) {
    FILE *file = fopen(path(name), "r");
    if (!file) return 0;
    int is_read = fscanf(file, "%llu", number) == 1;
    fclose(file);
    return is_read;
}

static int state_of(int pid) {
    char name[64];
    unsigned long long state = 0;
    snprintf(name, sizeof name, "state.%d", pid);
    read_number(name, &state);
    return (int)state;
}

static void set_state(int pid, int state) {
    char name[64], whole[4200];
    snprintf(name, sizeof name, "state.%d", pid);
    snprintf(whole, sizeof whole, "%s.new", path(name));
    FILE *file = fopen(whole, "w");
    if (!file) abort();
    fprintf(file, "%d", state);
    fclose(file);
    rename(whole, path(name));
}

static int uses(int pid, unsigned long long *bytes) {
    char name[64];
    snprintf(name, sizeof name, "uses.%d", pid);
    return read_number(name, bytes) && kill(pid, 0) == 0;
}

static void record(const char *call, int pid) {
    FILE *file = fopen(path("calls"), "a");
    if (!file) return;
    fprintf(file, "%s %d\n", call, pid);
    fclose(file);
}

static void hang(const char *call, int is_done) {
    char name[64], text[16] = "";
    snprintf(name, sizeof name, "hang.%s", call);
    FILE *file = fopen(path(name), "r");
    if (!file) return;
    if (!fgets(text, sizeof text, file)) text[0] = 0;
    fclose(file);
    if ((strncmp(text, "done", 4) == 0) == is_done) for (;;) pause();
}

static void dawdle(const char *call) {
    char name[64];
    snprintf(name, sizeof name, "slow.%s", call);
    while (access(path(name), F_OK) == 0) usleep(10000);
}

static int fits(int pid);

static int act(const char *call, int pid, int from, int to) {
    char name[64];
    record(call, pid);
    hang(call, 0);
    dawdle(call);
    snprintf(name, sizeof name, "fail.%s", call);
    if (access(path(name), F_OK) == 0) return 801;
    if (state_of(pid) != from) return 401;
    if (from == 2 && !fits(pid)) return 2;
    set_state(pid, to);
    hang(call, 1);
    return 0;
}

/* libcuda */

struct lock_args { unsigned timeout_ms, reserved0; unsigned long long reserved1[7]; };

int cuDriverGetVersion(int *version) { *version = 12080; return 0; }
int cuInit(unsigned flags) { return flags; }

int cuCheckpointProcessGetRestoreThreadId(int pid, int *thread) {
    unsigned long long bytes;
    *thread = pid;
    return uses(pid, &bytes) ? 0 : 1;
}

int cuCheckpointProcessGetState(int pid, int *state) { *state = state_of(pid); return 0; }

int cuCheckpointProcessLock(int pid, struct lock_args *args) {
    if (!args || args->timeout_ms == 0 || args->reserved0) return 1;
    for (int i = 0; i < 7; i++) if (args->reserved1[i]) return 1;
    return act("lock", pid, 0, 1);
}

int cuCheckpointProcessCheckpoint(int pid, void *args) { return args ? 1 : act("checkpoint", pid, 1, 2); }
int cuCheckpointProcessRestore(int pid, void *args) { return args ? 1 : act("restore", pid, 2, 1); }
int cuCheckpointProcessUnlock(int pid, void *args) { return args ? 1 : act("unlock", pid, 1, 0); }

/* The used part of NVML */

struct memory { unsigned version; unsigned long long total, reserved, free, used; };
struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)1; return index ? 2 : 0; }
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    (void)device;
    snprintf(name, length, "Stand-in");
    return 0;
}

/* Lists the processes whose memory is on the GPU. */
static unsigned list(struct process *processes, unsigned most, unsigned long long *sum) {
    unsigned count = 0;
    *sum = 0;
    DIR *folder = opendir(path("."));
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        int pid;
        unsigned long long bytes;
        if (sscanf(entry->d_name, "uses.%d", &pid) != 1 || !uses(pid, &bytes) || state_of(pid) == 2) continue;
        *sum += bytes;
        if (count < most) processes[count] = (struct process){(unsigned)pid, bytes, 0, 0};
        count++;
    }
    if (folder) closedir(folder);
    return count;
}

static const unsigned long long whole = 16ull << 30;

static unsigned long long taken(void) {
    unsigned long long used, other = 0;
    list(0, 0, &used);
    read_number("other", &other);
    return used + other;
}

static int fits(int pid) {
    unsigned long long bytes;
    return !uses(pid, &bytes) || bytes <= whole - taken();
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory) {
    (void)device;
    memory->total = whole;
    memory->reserved = 0;
    memory->used = taken();
    memory->free = whole - memory->used;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
    unsigned long long sum;
    unsigned most = processes ? *count : 0;
    (void)device;
    *count = list(processes, most, &sum);
    return *count > most ? 7 : 0;
}
