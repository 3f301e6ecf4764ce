#include "transport/collective/nccl/api.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <memory>
#include <string_view>

namespace longhaul::collective::nccl {
namespace {

// The first with ncclCommGetAsyncError, bf16 and grouped sends in one process whatever the header's
// release was.
constexpr int kOldest = 21800;

template <class Function>
bool Find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(::dlsym(library, name));
  return *function != nullptr;
}

// Null where a function is missing.
std::unique_ptr<Api> FindAll(void* library, std::string* missing) {
  auto api = std::make_unique<Api>();
  const auto find = [&](const char* name, auto** function) {
    if (!Find(library, name, function)) *missing = name;
  };
  find("ncclGetVersion", &api->GetVersion);
  find("ncclGetUniqueId", &api->GetUniqueId);
  find("ncclCommInitRank", &api->CommInitRank);
  find("ncclCommDestroy", &api->CommDestroy);
  find("ncclCommAbort", &api->CommAbort);
  find("ncclCommGetAsyncError", &api->CommGetAsyncError);
  find("ncclGetErrorString", &api->GetErrorString);
  find("ncclGetLastError", &api->GetLastError);
  find("ncclAllReduce", &api->AllReduce);
  find("ncclReduceScatter", &api->ReduceScatter);
  find("ncclAllGather", &api->AllGather);
  find("ncclBroadcast", &api->Broadcast);
  find("ncclSend", &api->Send);
  find("ncclRecv", &api->Recv);
  find("ncclGroupStart", &api->GroupStart);
  find("ncclGroupEnd", &api->GroupEnd);
  return missing->empty() ? std::move(api) : nullptr;
}

}  // namespace

std::string VersionText(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

StatusOr<const Api*> Load(const std::vector<std::string>& libraries) {
  std::string tried;
  for (const std::string& name : libraries) {
    void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      // NOLINTNEXTLINE(concurrency-mt-unsafe): of the thread's own last call
      tried += fmt::format("; {}", ::dlerror());
      continue;
    }
    std::string missing;
    std::unique_ptr<Api> api = FindAll(library, &missing);
    if (!api) {
      tried += fmt::format("; {} has no {}", name, missing);
      continue;
    }
    int version = 0;
    LH_RETURN_IF_ERROR(Check(*api, api->GetVersion(&version), "asking for NCCL's version"));
    if (version < kOldest) {
      tried += fmt::format("; {} is {}", name, VersionText(version));
      continue;
    }
    return api.release();  // for the rest of the process, like the library
  }
  return FailedPrecondition(
      "expected NCCL {} or newer; LibTorch's CUDA part brings it (pip install torch){}",
      VersionText(kOldest), tried);
}

Status Check(const Api& api, int result, std::string_view what) {
  if (result == kSuccess) return absl::OkStatus();
  const char* const last = api.GetLastError(nullptr);
  const std::string_view detail = last == nullptr ? "" : last;
  return Internal("{}: {}{}{}", what, api.GetErrorString(result), detail.empty() ? "" : ": ",
                  detail);
}

}  // namespace longhaul::collective::nccl
