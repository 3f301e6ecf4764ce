// Steps of two stages with codecs between them call nothing of the driver that stops the device or
// takes memory, once the first steps have filled the pools. LibTorch's calls are counted where this
// program has the CUDA runtime's names before LibTorch's copy of it; longhaul's in its table.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/cuda/device.h"
#include "codec/registry.h"
#include "tests/parity/worker/stage_chain.h"
#include "tests/support/gpu_test.h"
#include "worker/pipeline/cuda_boundary_codec.h"
#include "worker/stage/device/torch_cuda.h"

namespace longhaul::worker {
namespace {

std::atomic<int> torch_allocations, torch_synchronisations, own_allocations;

template <class Function>
Function* NextOf(const char* name) {
  void* const found = ::dlsym(RTLD_NEXT, name);
  EXPECT_NE(found, nullptr) << name;
  return reinterpret_cast<Function*>(found);
}

}  // namespace
}  // namespace longhaul::worker

// cudaError_t is an int to the linker.
extern "C" {

int cudaMalloc(void** memory, size_t bytes) {
  static auto* const next = longhaul::worker::NextOf<int(void**, size_t)>("cudaMalloc");
  ++longhaul::worker::torch_allocations;
  return next(memory, bytes);
}
int cudaHostAlloc(void** memory, size_t bytes, unsigned flags) {
  static auto* const next =
      longhaul::worker::NextOf<int(void**, size_t, unsigned)>("cudaHostAlloc");
  ++longhaul::worker::torch_allocations;
  return next(memory, bytes, flags);
}
int cudaFree(void* memory) {
  static auto* const next = longhaul::worker::NextOf<int(void*)>("cudaFree");
  ++longhaul::worker::torch_allocations;
  return next(memory);
}
int cudaDeviceSynchronize() {
  static auto* const next = longhaul::worker::NextOf<int()>("cudaDeviceSynchronize");
  ++longhaul::worker::torch_synchronisations;
  return next();
}

}  // extern "C"

namespace longhaul::worker {
namespace {

using ::longhaul::testing::Must;
using ::longhaul::testing::OptionsOf;
using ::longhaul::testing::SmallModel;
using ::longhaul::testing::StageChain;

const cuda::DeviceTable* original = nullptr;

// The module's table, with calls for memory counted.
const cuda::DeviceTable* CountingTable() {
  static cuda::DeviceTable table = [] {
    original = &::longhaul::testing::Gpu().table();
    cuda::DeviceTable counting = *original;
    counting.allocate = [](int device, size_t bytes, void** memory) {
      ++own_allocations;
      return original->allocate(device, bytes, memory);
    };
    counting.allocate_pinned = [](int device, size_t bytes, void** memory) {
      ++own_allocations;
      return original->allocate_pinned(device, bytes, memory);
    };
    counting.free = [](void* memory) {
      ++own_allocations;
      return original->free(memory);
    };
    counting.free_pinned = [](void* memory) {
      ++own_allocations;
      return original->free_pinned(memory);
    };
    return counting;
  }();
  return &table;
}

class StepLoopOnGpu : public ::testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  static void SetUpTestSuite() {
    const Status loaded = LoadTorchCuda(DefaultTorchCudaPath());
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
};

TEST_P(StepLoopOnGpu, NeitherStopsTheDeviceNorTakesMemory) {
  const auto& [codec_text, dtype] = GetParam();
  const cuda::Device gpu = Must(cuda::Device::Open(CountingTable(), 0));
  const SmallModel model{.name = codec_text,
                         .dtype = dtype == "bf16" ? ComputeDtype::kBf16 : ComputeDtype::kFp32};
  const StageOptions options = OptionsOf(model, {0});
  const std::shared_ptr<const codec::Codec> codec = Must(codec::ParseCodec(codec_text));
  const BoundaryCodecOptions boundary{
      .shape = {options.train.microbatch_size, options.model.context, options.model.hidden},
      .send = codec,
      .receive = codec};
  const auto sender = Must(CreateCudaBoundaryCodec(gpu, boundary));
  const auto receiver = Must(CreateCudaBoundaryCodec(gpu, boundary));
  StageChain stages(options, 2, [&](const BoundaryTensor& tensor) {
    const EncodedBlob sent = Must(sender->Encode(tensor.view, {}));
    const BlobBuffer came = Must(receiver->NewBlob(sent.bytes));
    std::memcpy(came.bytes.data(), sent.buffer.bytes.data(), sent.bytes);
    return Must(receiver->Decode(came.bytes.first(sent.bytes), {}));
  });
  uint64_t step = 0;
  while (step < 3) stages.Train(++step);
  // LibTorch keeps what an earlier case has freed, so a later one may add nothing.
  ASSERT_GT(torch_allocations, 0) << "LibTorch's calls are not counted";
  ASSERT_GT(own_allocations, 0) << "longhaul's calls are not counted";
  const int torch = torch_allocations, own = own_allocations, stops = torch_synchronisations;
  while (step < 10) stages.Train(++step);
  EXPECT_EQ(torch_allocations, torch);
  EXPECT_EQ(own_allocations, own);
  EXPECT_EQ(torch_synchronisations, stops);
}

INSTANTIATE_TEST_SUITE_P(Codecs, StepLoopOnGpu,
                         ::testing::Values(std::pair("none", "fp32"), std::pair("tah", "bf16"),
                                           std::pair("fixed:bits=4", "bf16"),
                                           std::pair("gauss", "bf16")),
                         [](const auto& one) {
                           return one.param.first.substr(0, one.param.first.find(':'));
                         });

}  // namespace
}  // namespace longhaul::worker
