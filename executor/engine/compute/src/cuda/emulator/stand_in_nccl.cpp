// Stand-in for NCCL in one process: ranks are threads, devices are host memory, a stream is the
// number of operations running on it.
//
// It tests only the engine's side of the interface: the calls, their order, and the reaction to the
// results. It blocks where NCCL would block, such as for a missing rank. It is as strict as nccl.h:
// an id is valid for one communicator, a rank for one caller, and a non-blocking communicator
// returns ncclInProgress.

#include <atomic>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#ifndef VERSION
#define VERSION 22703
#endif

enum { success = 0, system_error = 2, invalid_argument = 4, in_progress = 7 };

struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

struct id {
    char bytes[128];
};

// State shared by all ranks of one communicator.
struct world {
    std::mutex lock;
    std::condition_variable changed;
    int ranks = 0;
    std::vector<bool> joined;
    int present = 0;
    // Contributions of the ranks to each sum, by the sum's number.
    std::map<uint64_t, std::vector<std::vector<float>>> sums;
};

struct sum {
    const float* from;
    float* to;
    size_t count;
    std::atomic<uint64_t>* stream;
};

struct comm {
    std::shared_ptr<world> all;
    int rank;
    uint64_t next = 0;
    bool has_summed = false;
    // Number of queries since the last operation started.
    int asked = 0;
    bool aborted = false;
    std::deque<sum> waiting;
    std::thread worker;
};

static std::mutex worlds_lock;
static std::map<uint64_t, std::shared_ptr<world>> worlds;
static uint64_t ids = 0;

static void work(comm* self) {
    world& all = *self->all;
    std::unique_lock<std::mutex> held(all.lock);
    for (;;) {
        all.changed.wait(held, [&] { return self->aborted || !self->waiting.empty(); });
        if (self->aborted) return;
        sum next = self->waiting.front();
        uint64_t number = self->next++;
        auto& brought = all.sums[number];
        brought.resize(all.ranks);
        brought[self->rank].assign(next.from, next.from + next.count);
        all.changed.notify_all();
        all.changed.wait(held, [&] {
            if (self->aborted) return true;
            for (auto& one : all.sums[number])
                if (one.size() != next.count) return false;
            return true;
        });
        if (self->aborted) return;
        for (size_t i = 0; i < next.count; ++i) {
            float total = 0.0f;
            for (auto& one : all.sums[number]) total += one[i];
            next.to[i] = total;
        }
        self->waiting.pop_front();
        next.stream->fetch_sub(1);
    }
}

extern "C" {

int ncclGetVersion(int* version) {
    *version = VERSION;
    return success;
}

int ncclGetUniqueId(id* out) {
    std::lock_guard<std::mutex> held(worlds_lock);
    uint64_t number = ++ids;
    std::memset(out, 0xa5, sizeof *out);
    std::memcpy(out->bytes, &number, sizeof number);
    worlds[number] = std::make_shared<world>();
    return success;
}

int ncclCommInitRankConfig(comm** out, int ranks, id id, int rank, config* how) {
    if (how->magic != 0xcafebeef || how->size < sizeof(config) || how->blocking != 0) return invalid_argument;
    uint64_t number;
    std::memcpy(&number, id.bytes, sizeof number);
    std::lock_guard<std::mutex> all(worlds_lock);
    auto found = worlds.find(number);
    for (size_t i = sizeof number; i < sizeof id.bytes; ++i)
        if (id.bytes[i] != char(0xa5)) return invalid_argument;
    if (found == worlds.end() || rank < 0 || rank >= ranks) return invalid_argument;
    world& in = *found->second;
    std::lock_guard<std::mutex> held(in.lock);
    if (in.ranks == 0) {
        in.ranks = ranks;
        in.joined.resize(ranks);
    }
    if (in.ranks != ranks || in.joined[rank]) return invalid_argument;
    in.joined[rank] = true;
    in.present += 1;
    *out = new comm{found->second, rank};
    (*out)->worker = std::thread(work, *out);
    return in_progress;
}

int ncclCommGetAsyncError(comm* self, int* state) {
    std::lock_guard<std::mutex> held(self->all->lock);
#ifdef REFUSES
    *state = system_error;
#else
    // The first sum takes a moment to start.
#ifdef FAILS
    if (self->has_summed && self->rank >= FAILS) {
        *state = system_error;
        return success;
    }
#endif
    bool busy = self->all->present < self->all->ranks || ++self->asked < 3;
    *state = busy ? in_progress : success;
#endif
    return success;
}

int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, comm* self, void* stream) {
    if (type != 7 || op != 0) return invalid_argument;
    std::lock_guard<std::mutex> held(self->all->lock);
    if (self->all->present < self->all->ranks) return invalid_argument;
    auto* under_way = static_cast<std::atomic<uint64_t>*>(stream);
    under_way->fetch_add(1);
    self->waiting.push_back({static_cast<const float*>(from), static_cast<float*>(to), count, under_way});
    self->all->changed.notify_all();
    if (self->has_summed) return success;
    self->has_summed = true;
    self->asked = 0;
    return in_progress;
}

// Does not notify the other ranks, which continue to wait.
int ncclCommAbort(comm* self) {
    {
        std::lock_guard<std::mutex> held(self->all->lock);
        self->aborted = true;
        self->all->changed.notify_all();
    }
    self->worker.join();
    for (auto& one : self->waiting) one.stream->fetch_sub(1);
    delete self;
    return success;
}

const char* ncclGetErrorString(int) { return "the stand-in refuses"; }

const char* ncclGetLastError(comm*) { return ""; }
}
