// Tensors on a GPU, codecs on the host. The GPU is a simulated one: only copies use it.
#include "worker/pipeline/hosted_boundary_codec.h"

#include <cstring>

#include "base/cuda/memory.h"
#include "codec/registry.h"
#include "tests/conformance/worker/boundary_codec_test.h"
#include "tests/support/fake_gpu.h"

namespace longhaul::worker {
namespace {

cuda::Device SimulatedGpu() {
  return *cuda::Device::Open(longhaul::testing::FakeGpuTable(), 0);
}

class Hosted final : public Place {
 public:
  StatusOr<std::unique_ptr<BoundaryCodec>> Create(const BoundaryCodecOptions& options) override {
    return CreateHostedBoundaryCodec(device_, options);
  }
  // Memory of the simulated GPU is the host's.
  BoundaryTensor Put(const std::vector<float>& values, const codec::Shape& shape) override {
    const size_t bytes = values.size() * sizeof(float);
    auto memory = std::make_shared<cuda::DeviceBuffer>(*cuda::DeviceBuffer::Create(device_, bytes));
    std::memcpy(memory->data_dev(), values.data(), bytes);
    return {{memory->data_dev(), codec::Dtype::kF32, shape}, memory};
  }
  std::vector<float> Get(const BoundaryTensor& tensor) override {
    std::vector<float> values(tensor.view.shape.elements());
    std::memcpy(values.data(), tensor.view.data, values.size() * sizeof(float));
    return values;
  }

 private:
  const cuda::Device device_ = SimulatedGpu();
};

INSTANTIATE_TEST_SUITE_P(Hosted, BoundaryCodecTest,
                         ::testing::Values(Backend{"hosted",
                                                   [] { return std::make_unique<Hosted>(); }}),
                         [](const auto& backend) { return backend.param.name; });

TEST(HostedBoundaryCodec, OnlyWhatLacksAPartForGpusNeedsTheHost) {
  const auto named = [](const char* text) {
    return std::shared_ptr<const codec::Codec>(*codec::ParseCodec(text));
  };
  const auto needs = [&](const char* send, const char* receive) {
    return NeedsHost({.shape = {1, 2, 3}, .send = named(send), .receive = named(receive)});
  };
  EXPECT_TRUE(needs("python:module:Class", "none"));
  EXPECT_TRUE(needs("none", "python:module:Class"));
  for (const codec::Family& family : codec::Families()) {
    if (family.names_class) continue;
    EXPECT_FALSE(needs(std::string(family.name).c_str(), "none")) << family.name;
  }
}

}  // namespace
}  // namespace longhaul::worker
