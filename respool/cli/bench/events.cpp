// The C++ rows of `respool bench events`: what creating and destroying events costs without Python, and what a pool does.
//
// Compiled by the bench, with nvcc or the system's compiler, into a temporary folder.  The driver is loaded and asked for its
// functions at run time, so that neither CUDA's headers nor its libraries are needed.
//
// Prints "ready" or one line that says what's wrong.  Then it answers each line of its input
//     WAY RECORDS THREADS COUNT    (WAY: create or pool; RECORDS: 1 to record and synchronise each event, else 0)
// by the seconds from the start of the first thread to the end of the last, each of which does it COUNT times, and
//     live N
// by 0, once so many events exist besides.  It ends with its input.

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Context = void*;
using Event = void*;
using Stream = void*;

constexpr unsigned kDisableTiming = 2;
constexpr unsigned kNonBlocking = 1;
constexpr int kDriver = 12000;  // cuCtxGetId, which the pool in Python needs, is of this version

int (*cuInit)(unsigned);
int (*cuDeviceGet)(int*, int);
int (*cuDevicePrimaryCtxRetain)(Context*, int);
int (*cuCtxSetCurrent)(Context);
int (*cuCtxGetCurrent)(Context*);
int (*cuStreamCreate)(Stream*, unsigned);
int (*cuStreamDestroy)(Stream);
int (*cuEventCreate)(Event*, unsigned);
int (*cuEventDestroy)(Event);
int (*cuEventRecord)(Event, Stream);
int (*cuEventSynchronize)(Event);

void check(int code, const char* what) {
    if (code != 0) throw std::runtime_error(std::string(what) + " gave " + std::to_string(code));
}

template <typename F>
void find(F& function, const char* name, void* library) {
    using Find = int (*)(const char*, void**, int, std::uint64_t, int*);
    const auto ask = reinterpret_cast<Find>(dlsym(library, "cuGetProcAddress_v2"));
    if (ask == nullptr) throw std::runtime_error("the driver is older than CUDA 12");
    void* found = nullptr;
    if (ask(name, &found, kDriver, 0, nullptr) != 0 || found == nullptr)
        throw std::runtime_error(std::string("the driver has no ") + name);
    function = reinterpret_cast<F>(found);
}

Context open_driver(int device) {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) throw std::runtime_error("no libcuda.so.1");
    find(cuInit, "cuInit", library);
    find(cuDeviceGet, "cuDeviceGet", library);
    find(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", library);
    find(cuCtxSetCurrent, "cuCtxSetCurrent", library);
    find(cuCtxGetCurrent, "cuCtxGetCurrent", library);
    find(cuStreamCreate, "cuStreamCreate", library);
    find(cuStreamDestroy, "cuStreamDestroy", library);
    find(cuEventCreate, "cuEventCreate", library);
    find(cuEventDestroy, "cuEventDestroy", library);
    find(cuEventRecord, "cuEventRecord", library);
    find(cuEventSynchronize, "cuEventSynchronize", library);
    int number = 0;
    Context context = nullptr;
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&number, device), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, number), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    return context;
}

// As programs in C++ have it: a vector of idle events for each context, and one mutex.
class Pool {
public:
    Event get() {
        Context context = nullptr;
        check(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            std::vector<Event>& idle = idle_[context];
            if (!idle.empty()) {
                const Event event = idle.back();
                idle.pop_back();
                return event;
            }
        }
        Event event = nullptr;
        check(cuEventCreate(&event, kDisableTiming), "cuEventCreate");
        return event;
    }

    void put(Event event) {
        Context context = nullptr;
        check(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
        const std::lock_guard<std::mutex> lock(mutex_);
        idle_[context].push_back(event);
    }

private:
    std::mutex mutex_;
    std::unordered_map<Context, std::vector<Event>> idle_;
};

Pool pool;

void use(Event event, Stream stream) {
    check(cuEventRecord(event, stream), "cuEventRecord");
    check(cuEventSynchronize(event), "cuEventSynchronize");
}

void turns(bool pooled, bool records, long count, Stream stream) {
    for (long turn = 0; turn < count; ++turn) {
        if (pooled) {
            const Event event = pool.get();
            if (records) use(event, stream);
            pool.put(event);
        } else {
            Event event = nullptr;
            check(cuEventCreate(&event, kDisableTiming), "cuEventCreate");
            if (records) use(event, stream);
            check(cuEventDestroy(event), "cuEventDestroy");
        }
    }
}

// Seconds from when the first thread begins to when the last has ended; all begin together.
double measure(bool pooled, bool records, int threads, long count, Context context) {
    std::mutex mutex;
    std::condition_variable arrived;
    int waiting = 0;
    std::string failed;
    Clock::time_point began = Clock::time_point::max(), ended = Clock::time_point::min();
    const auto act = [&] {
        Stream stream = nullptr;
        std::string wrong;
        try {
            check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
            check(cuStreamCreate(&stream, kNonBlocking), "cuStreamCreate");
            turns(pooled, records, std::min(count, 16L), stream);  // warms up
        } catch (const std::exception& error) {
            wrong = error.what();
        }
        {
            std::unique_lock<std::mutex> lock(mutex);
            if (++waiting == threads) arrived.notify_all();
            arrived.wait(lock, [&] { return waiting == threads; });
        }
        const auto start = Clock::now();
        try {
            if (wrong.empty()) turns(pooled, records, count, stream);
        } catch (const std::exception& error) {
            wrong = error.what();
        }
        const auto end = Clock::now();
        if (stream != nullptr) cuStreamDestroy(stream);
        const std::lock_guard<std::mutex> lock(mutex);
        began = std::min(began, start);
        ended = std::max(ended, end);
        if (!wrong.empty()) failed = wrong;
    };
    if (threads == 1) {
        act();
    } else {
        std::vector<std::thread> running;
        for (int number = 0; number < threads; ++number) running.emplace_back(act);
        for (std::thread& thread : running) thread.join();
    }
    if (!failed.empty()) throw std::runtime_error(failed);
    return std::chrono::duration<double>(ended - began).count();
}

std::string answer(const std::string& line, std::vector<Event>& live, Context context) {
    std::istringstream words(line);
    std::string way;
    words >> way;
    if (way == "live") {
        std::size_t wanted = 0;
        if (!(words >> wanted)) throw std::runtime_error("live N");
        while (live.size() < wanted) {
            Event event = nullptr;
            check(cuEventCreate(&event, kDisableTiming), "cuEventCreate");
            live.push_back(event);
        }
        while (live.size() > wanted) {
            check(cuEventDestroy(live.back()), "cuEventDestroy");
            live.pop_back();
        }
        return "0";
    }
    int records = 0, threads = 0;
    long count = 0;
    if ((way != "create" && way != "pool") || !(words >> records >> threads >> count) || threads < 1 || count < 1)
        throw std::runtime_error("WAY RECORDS THREADS COUNT");
    char text[64];
    std::snprintf(text, sizeof text, "%.12g", measure(way == "pool", records != 0, threads, count, context));
    return text;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const Context context = open_driver(argc > 1 ? std::atoi(argv[1]) : 0);
        std::vector<Event> live;
        std::cout << "ready" << std::endl;
        for (std::string line; std::getline(std::cin, line);) std::cout << answer(line, live, context) << std::endl;
    } catch (const std::exception& error) {
        std::cout << error.what() << std::endl;
        return 1;
    }
    // The driver ends with the process: to destroy the context here would only take time.
    return 0;
}
