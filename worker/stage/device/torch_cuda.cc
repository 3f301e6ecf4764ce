#include "worker/stage/device/torch_cuda.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <system_error>

#include "worker/stage/device/torch_graph.h"

namespace longhaul::worker {
namespace {

MakeTorchGraphRecorderFunction* make_recorder = nullptr;  // in the open module

}  // namespace

std::string DefaultTorchCudaPath() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return program.parent_path().parent_path() / "lib" / "liblonghaul_torch_cuda.so";
}

Status LoadTorchCuda(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) {
    return FailedPrecondition(
        "this build cannot train on GPUs: expected {}; build it where there is nvcc 13.0 or newer "
        "(deploy/setup.sh --cuda-toolkit brings it)",
        path);
  }
  // What a stage with train.deterministic needs of cuBLAS, and a Hopper GPU has anyway; read when
  // cuBLAS is first used. NOLINTNEXTLINE(concurrency-mt-unsafe): of ours there is one thread yet
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  // LibTorch's operators for GPUs register themselves with what is loaded already.
  void* const module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) {
    return FailedPrecondition(
        "cannot load LibTorch's CUDA part: {}; install torch with its dependencies "
        "(pip install torch==2.11.0)",
        dlerror());
  }
  make_recorder =
      reinterpret_cast<MakeTorchGraphRecorderFunction*>(::dlsym(module, kMakeTorchGraphRecorder));
  if (make_recorder == nullptr) {
    return FailedPrecondition(
        "{} is of another version of longhaul: it has no {}; install the two together", path,
        kMakeTorchGraphRecorder);
  }
  if (!at::Context::hasCUDA()) {
    return absl::FailedPreconditionError(
        "LibTorch's CUDA part is loaded and finds no GPU; look at the driver (nvidia-smi)");
  }
  try {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  } catch (const std::exception& error) {
    return FailedPrecondition("LibTorch's CUDA part does not start: {}", error.what());
  }
  return absl::OkStatus();
}

std::unique_ptr<TorchGraphRecorder> MakeTorchGraphRecorder(const c10::Device& device) {
  TORCH_CHECK(make_recorder != nullptr, "LibTorch's CUDA part is not loaded");
  return std::unique_ptr<TorchGraphRecorder>(make_recorder(device));
}

}  // namespace longhaul::worker
