#include "base/cuda/module.h"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <system_error>

namespace longhaul::cuda {
namespace {

constexpr std::string_view kModuleName = "liblonghaul_cuda.so";

}  // namespace

std::string DefaultModulePath() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return program.parent_path().parent_path() / "lib" / kModuleName;
}

std::string ModulePathBeside(const void* address) {
  Dl_info library{};
  if (::dladdr(address, &library) == 0 || library.dli_fname == nullptr) library.dli_fname = "";
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(library.dli_fname, error);
  return file.parent_path() / kModuleName;
}

StatusOr<const DeviceTable*> LoadModule(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) {
    return FailedPrecondition(
        "this build has no CUDA: expected {}; get nvcc 13.0 or newer (deploy/setup.sh "
        "--cuda-toolkit brings it), then configure and build again",
        path);
  }
  void* const module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    return FailedPrecondition("cannot load the CUDA module: {}", dlerror());
  }
  const auto table_function =
      reinterpret_cast<DeviceTableFunction*>(::dlsym(module, kDeviceTableFunction));
  if (table_function == nullptr) {
    return FailedPrecondition("{} is no CUDA module of longhaul: it has no {}", path,
                              kDeviceTableFunction);
  }
  const DeviceTable* const table = table_function();
  if (table->version != kTableVersion) {
    return FailedPrecondition("expected version {} of the CUDA module, {} has {}; build both anew",
                              kTableVersion, path, table->version);
  }
  return table;
}

}  // namespace longhaul::cuda
