// A library with NCCL's functions, of the version that the build gives it.
#define FAKE(name)                                               \
  extern "C" __attribute__((visibility("default"))) int name() { \
    return 3;                                                    \
  }
FAKE(ncclGetUniqueId)
FAKE(ncclCommInitRank)
FAKE(ncclCommDestroy)
FAKE(ncclCommAbort)
FAKE(ncclCommGetAsyncError)
FAKE(ncclAllReduce)
FAKE(ncclReduceScatter)
FAKE(ncclAllGather)
FAKE(ncclBroadcast)
FAKE(ncclSend)
FAKE(ncclRecv)
FAKE(ncclGroupStart)
FAKE(ncclGroupEnd)

extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  *version = LONGHAUL_NCCL_VERSION;
  return 0;
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(int result) {
  return result == 3 ? "result 3" : "another result";
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetLastError(void* /*comm*/) {
  return "the last error";
}
