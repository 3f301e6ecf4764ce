// The functions of NCCL that this backend calls. They are loaded at run time, so no program links
// NCCL or needs its headers. Types and constants equal those of nccl.h, which NCCL keeps stable;
// nccl_api_test compares them with the header if the machine has it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"

namespace longhaul::collective::nccl {

struct UniqueId {
  char bytes[128];
};
using Comm = void*;    // ncclComm_t
using Stream = void*;  // cudaStream_t

// Values of ncclResult_t, ncclDataType_t and ncclRedOp_t.
inline constexpr int kSuccess = 0, kInProgress = 7;
inline constexpr int kUint8 = 1, kFloat16 = 6, kFloat32 = 7, kBfloat16 = 9;
inline constexpr int kSum = 0, kMax = 2;

struct Api {
  int (*GetVersion)(int* version);
  int (*GetUniqueId)(UniqueId* id);
  int (*CommInitRank)(Comm* comm, int ranks, UniqueId id, int rank);
  int (*CommDestroy)(Comm comm);
  int (*CommAbort)(Comm comm);
  int (*CommGetAsyncError)(Comm comm, int* error);
  const char* (*GetErrorString)(int result);
  const char* (*GetLastError)(Comm comm);
  int (*AllReduce)(const void* in, void* out, size_t count, int type, int op, Comm comm,
                   Stream stream);
  int (*ReduceScatter)(const void* in, void* out, size_t count, int type, int op, Comm comm,
                       Stream stream);
  int (*AllGather)(const void* in, void* out, size_t count, int type, Comm comm, Stream stream);
  int (*Broadcast)(const void* in, void* out, size_t count, int type, int root, Comm comm,
                   Stream stream);
  int (*Send)(const void* in, size_t count, int type, int peer, Comm comm, Stream stream);
  int (*Recv)(void* out, size_t count, int type, int peer, Comm comm, Stream stream);
  int (*GroupStart)();
  int (*GroupEnd)();
};

// Returns "2.28.9" for 22809.
std::string VersionText(int version);

// Loads the first of `libraries` that can be loaded, has all functions and is version 2.18 or
// newer. The library and the result stay valid until the process ends. kFailedPrecondition: there
// is no such library; the message has the error of each.
StatusOr<const Api*> Load(const std::vector<std::string>& libraries);

// Returns OK for kSuccess, else kInternal with `what` and NCCL's text.
Status Check(const Api& api, int result, std::string_view what);

}  // namespace longhaul::collective::nccl
