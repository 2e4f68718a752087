/* The way in and out of each driver call: counting, fork, latches, faults, the lock, and waiting without it. */

#define RULES 64

struct rule { int function; long nth, times; int code; long seen; };
static struct rule rules[RULES];
static int n_rules;

struct latch { bool closed; long inside; };
static struct latch latches[N_FUNCTIONS];

static int function_by_name(const char *name) {
    for (int f = 0; f < N_FUNCTIONS; f++)
        if (strcmp(function_names[f], name) == 0) return f;
    return -1;
}

/* Sleep for a moment without the lock. A wait that takes too long is a hang of the test: say where, and abort. */
static void pause_unlocked(const char *what, uint64_t since) {
    if (now() - since > g.hang_seconds * 1000000000u) {
        fprintf(stderr, "fake libcuda: %s has waited for %llu s: a hang\n", what, (unsigned long long)g.hang_seconds);
        abort();
    }
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static void stand_at_latch(enum function f) {
    struct latch *latch = &latches[f];
    if (!__atomic_load_n(&latch->closed, __ATOMIC_ACQUIRE)) return;
    __atomic_add_fetch(&latch->inside, 1, __ATOMIC_ACQ_REL);
    uint64_t since = now();
    while (__atomic_load_n(&latch->closed, __ATOMIC_ACQUIRE)) pause_unlocked(function_names[f], since);
    __atomic_sub_fetch(&latch->inside, 1, __ATOMIC_ACQ_REL);
}

/* The code that a rule wants this call to end with, or 0. Called with the lock held. */
static CUresult injected(enum function f) {
    for (int i = 0; i < n_rules; i++) {
        struct rule *rule = &rules[i];
        if (rule->function != (int)f) continue;
        long n = ++rule->seen - rule->nth;
        if (n >= 0 && (rule->times <= 0 || n < rule->times)) {
            count(C_injected, 1);
            return rule->code;
        }
    }
    return SUCCESS;
}

/* Begin a call: with SUCCESS the lock is held and what is due on the device has been done. */
static CUresult enter(enum function f) {
    __atomic_add_fetch(&calls[f], 1, __ATOMIC_RELAXED);
    if (g.late) count(C_late_calls, 1);
    bool always = f == F_cuDriverGetVersion || f == F_cuGetErrorName || f == F_cuGetErrorString;
    if (g.forked && !always) {
        count(C_fork_calls, 1);
        return NOT_INITIALIZED;
    }
    stand_at_latch(f);
    pthread_mutex_lock(&g.lock);
    if (me.epoch != g.epoch) me = (struct thread){.epoch = g.epoch};
    CUresult code = injected(f);
    if (code == SUCCESS && !g.initialized && f != F_cuInit && !always) code = NOT_INITIALIZED;
    if (code != SUCCESS) {
        pthread_mutex_unlock(&g.lock);
        return code;
    }
    if (!g.forked) run_due(); /* a child has a copy of the queues, and no device */
    return SUCCESS;
}

static CUresult leave(CUresult code) {
    pthread_mutex_unlock(&g.lock);
    return code;
}

/* Begin the body of a call; its code is returned through `leave`. */
#define ENTER(name)                                                                                                    \
    do {                                                                                                               \
        CUresult entered = enter(F_##name);                                                                            \
        if (entered != SUCCESS) return entered;                                                                        \
    } while (0)
#define NEED(condition, code)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) return leave(code);                                                                          \
    } while (0)
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        CUresult tried = (call);                                                                                       \
        if (tried != SUCCESS) return leave(tried);                                                                     \
    } while (0)

/* "name:nth:code[:times],..." */
static void add_rules(const char *text) {
    char copy[1024], *save = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *part = strtok_r(copy, ",", &save); part != NULL; part = strtok_r(NULL, ",", &save)) {
        char name[64];
        long nth = 1, times = 1;
        int code = 0;
        if (sscanf(part, "%63[^:]:%ld:%d:%ld", name, &nth, &code, &times) < 3 || function_by_name(name) < 0 ||
            n_rules == RULES) {
            fprintf(stderr, "fake libcuda: no such fault: %s\n", part);
            abort();
        }
        rules[n_rules++] = (struct rule){function_by_name(name), nth, times, code, 0};
    }
}

/* -- fork: the lock is in the parent's hands meanwhile, and fresh in the child ----------------------------------- */

static void before_fork(void) { pthread_mutex_lock(&g.lock); }
static void in_parent(void) { pthread_mutex_unlock(&g.lock); }
static void in_child(void) {
    pthread_mutex_init(&g.lock, NULL);
    g.forked = g.initialized;
}

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text != NULL && *text != 0 ? strtol(text, NULL, 10) : otherwise;
}

__attribute__((constructor)) static void load(void) {
    pthread_atfork(before_fork, in_parent, in_child);
    g.devices = (int)setting("FAKE_CUDA_DEVICES", 2);
    g.version = (int)setting("FAKE_CUDA_VERSION", 13000);
    g.init_code = (int)setting("FAKE_CUDA_INIT", 0);
    g.hang_seconds = (uint64_t)setting("FAKE_CUDA_HANG", 20);
    if (g.devices > DEVICES) g.devices = DEVICES;
    if (getenv("FAKE_CUDA_FAULTS") != NULL) add_rules(getenv("FAKE_CUDA_FAULTS"));
}

/* FAKE_CUDA_REPORT names a file that gets all counters and call counts when the process ends. */
__attribute__((destructor)) static void report(void) {
    const char *path = getenv("FAKE_CUDA_REPORT");
    int file = path != NULL ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    if (file < 0) return;
    for (int i = 0; i < N_COUNTERS; i++) dprintf(file, "%s %ld\n", counter_names[i], counters[i]);
    for (int f = 0; f < N_FUNCTIONS; f++)
        if (calls[f] != 0) dprintf(file, "%s %ld\n", function_names[f], calls[f]);
    close(file);
}
