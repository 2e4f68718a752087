/* How cuda.bindings finds the functions: one exported symbol that is asked for all of them, by name and version. */

struct code { int value; const char *name, *text; };
static const struct code codes[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not initiated in this stream"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing blocking stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture sequence from another thread"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const struct code *code_of(CUresult value) {
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].value == value) return &codes[i];
    return NULL;
}

API CUresult cuGetErrorName(CUresult value, const char **name) {
    ENTER(cuGetErrorName);
    const struct code *code = code_of(value);
    *name = code != NULL ? code->name : NULL;
    return leave(code != NULL ? SUCCESS : INVALID_VALUE);
}

API CUresult cuGetErrorString(CUresult value, const char **text) {
    ENTER(cuGetErrorString);
    const struct code *code = code_of(value);
    *text = code != NULL ? code->text : NULL;
    return leave(code != NULL ? SUCCESS : INVALID_VALUE);
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status);

struct symbol { const char *name; int version; void *function; };
#define SYMBOL(name, version) {#name, version, (void *)name}
#define NEWER(name, version, function) {#name, version, (void *)function}
static const struct symbol symbols[] = {
    NEWER(cuGetProcAddress, 11030, cuGetProcAddress_v2), /* bindings 12.9.1 replace their own pointer by this answer */
    SYMBOL(cuInit, 2000), SYMBOL(cuDriverGetVersion, 2020), SYMBOL(cuGetErrorName, 6000),
    SYMBOL(cuGetErrorString, 6000), SYMBOL(cuDeviceGet, 2000), SYMBOL(cuDeviceGetCount, 2000),
    SYMBOL(cuDeviceGetAttribute, 2000), SYMBOL(cuDeviceGetName, 2000), SYMBOL(cuDeviceTotalMem, 3020),
    SYMBOL(cuDeviceGetUuid, 9020), SYMBOL(cuDevicePrimaryCtxRetain, 7000), SYMBOL(cuDevicePrimaryCtxRelease, 7000),
    SYMBOL(cuDevicePrimaryCtxReset, 7000), SYMBOL(cuDevicePrimaryCtxGetState, 7000), SYMBOL(cuCtxCreate, 3020),
    NEWER(cuCtxCreate, 12050, cuCtxCreate_v4), SYMBOL(cuCtxDestroy, 4000), SYMBOL(cuCtxGetId, 12000),
    SYMBOL(cuCtxGetCurrent, 4000), SYMBOL(cuCtxSetCurrent, 4000), SYMBOL(cuCtxPushCurrent, 4000),
    SYMBOL(cuCtxPopCurrent, 4000), SYMBOL(cuCtxGetDevice, 2000), NEWER(cuCtxGetDevice, 13000, cuCtxGetDevice_v2),
    SYMBOL(cuCtxSynchronize, 2000), NEWER(cuCtxSynchronize, 13000, cuCtxSynchronize_v2),
    SYMBOL(cuCtxGetStreamPriorityRange, 5050), SYMBOL(cuEventCreate, 2000), SYMBOL(cuEventRecord, 2000),
    SYMBOL(cuEventRecordWithFlags, 11010), SYMBOL(cuEventQuery, 2000), SYMBOL(cuEventSynchronize, 2000),
    SYMBOL(cuEventDestroy, 4000), SYMBOL(cuEventElapsedTime, 2000), SYMBOL(cuStreamCreate, 2000),
    SYMBOL(cuStreamCreateWithPriority, 5050), SYMBOL(cuStreamDestroy, 4000), SYMBOL(cuStreamQuery, 2000),
    SYMBOL(cuStreamSynchronize, 2000), SYMBOL(cuStreamWaitEvent, 3020), SYMBOL(cuStreamWaitValue32, 8000),
    SYMBOL(cuStreamGetCtx, 9020), NEWER(cuStreamGetCtx, 12050, cuStreamGetCtx_v2), SYMBOL(cuStreamGetFlags, 5050),
    SYMBOL(cuStreamIsCapturing, 10000), SYMBOL(cuStreamBeginCapture, 10010), SYMBOL(cuStreamEndCapture, 10000),
    SYMBOL(cuThreadExchangeStreamCaptureMode, 10010), SYMBOL(cuMemHostAlloc, 2020), SYMBOL(cuMemAllocHost, 3020),
    SYMBOL(cuMemFreeHost, 2000), SYMBOL(cuMemHostRegister, 6050), SYMBOL(cuMemHostUnregister, 4000),
    SYMBOL(cuMemHostGetFlags, 2030), SYMBOL(cuMemHostGetDevicePointer, 3020), SYMBOL(cuMemAlloc, 3020),
    SYMBOL(cuMemFree, 3020), SYMBOL(cuMemGetInfo, 3020), SYMBOL(cuMemcpyHtoDAsync, 3020),
    SYMBOL(cuMemcpyDtoHAsync, 3020), SYMBOL(cuMemcpyHtoD, 3020), SYMBOL(cuMemcpyDtoH, 3020),
    SYMBOL(cuMemcpyAsync, 4000), SYMBOL(cuMemsetD8Async, 3020), SYMBOL(cuMemsetD8, 3020),
    SYMBOL(cuPointerGetAttribute, 4000), SYMBOL(cuLaunchHostFunc, 10000), SYMBOL(cuGraphDestroy, 10000),
    SYMBOL(cuGraphInstantiateWithFlags, 11040), SYMBOL(cuGraphLaunch, 10000), SYMBOL(cuGraphExecDestroy, 10000),
};

/* FAKE_CUDA_WITHOUT="name,name": functions of a driver that is too old to have them. */
static bool left_out(const char *name) {
    const char *list = getenv("FAKE_CUDA_WITHOUT");
    size_t length = strlen(name);
    for (const char *p = list; p != NULL && (p = strstr(p, name)) != NULL; p += length)
        if ((p == list || p[-1] == ',') && (p[length] == 0 || p[length] == ',')) return true;
    return false;
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    (void)flags;
    const struct symbol *best = NULL;
    bool known = false;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        const struct symbol *s = &symbols[i];
        if (strcmp(s->name, name) != 0 || s->version > g.version || left_out(name)) continue;
        known = true;
        if (s->version <= version && (best == NULL || s->version > best->version)) best = s;
    }
    *function = best != NULL ? best->function : NULL; /* on every path: the bindings would jump to garbage */
    if (status != NULL) *status = best != NULL ? 0 : known ? 2 : 1;
    return SUCCESS;
}
