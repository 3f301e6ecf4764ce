#include "worker/pipeline/cuda_boundary_codec.h"

#include <cstring>

#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "tests/conformance/worker/boundary_codec_test.h"
#include "tests/support/gpu_test.h"

namespace longhaul::worker {
namespace {

using ::longhaul::testing::Await;
using ::longhaul::testing::Gpu;
using ::longhaul::testing::Must;

class Cuda final : public Place {
 public:
  StatusOr<std::unique_ptr<BoundaryCodec>> Create(const BoundaryCodecOptions& options) override {
    return CreateCudaBoundaryCodec(Gpu(), options);
  }
  BoundaryTensor Put(const std::vector<float>& values, const codec::Shape& shape) override {
    const size_t bytes = values.size() * sizeof(float);
    auto memory =
        std::make_shared<cuda::DeviceBuffer>(Must(cuda::DeviceBuffer::Create(Gpu(), bytes)));
    EXPECT_TRUE(stream_.Copy(memory->data_dev(), values.data(), bytes).ok());
    Await(stream_);
    return {{memory->data_dev(), codec::Dtype::kF32, shape}, memory};
  }
  std::vector<float> Get(const BoundaryTensor& tensor) override {
    std::vector<float> values(tensor.view.shape.elements());
    EXPECT_TRUE(stream_.Copy(values.data(), tensor.view.data, values.size() * sizeof(float)).ok());
    Await(stream_);
    return values;
  }

 private:
  cuda::Stream stream_ = Must(cuda::Stream::Create(Gpu()));
};

INSTANTIATE_TEST_SUITE_P(Cuda, BoundaryCodecTest,
                         ::testing::Values(Backend{"cuda",
                                                   [] { return std::make_unique<Cuda>(); }}),
                         [](const auto& backend) { return backend.param.name; });

}  // namespace
}  // namespace longhaul::worker
