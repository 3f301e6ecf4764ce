#include <cstring>

#include "tests/conformance/worker/boundary_codec_test.h"

namespace longhaul::worker {
namespace {

class Host final : public Place {
 public:
  StatusOr<std::unique_ptr<BoundaryCodec>> Create(const BoundaryCodecOptions& options) override {
    return BoundaryCodec::Create(options);
  }
  BoundaryTensor Put(const std::vector<float>& values, const codec::Shape& shape) override {
    auto copy = std::make_shared<std::vector<float>>(values);
    return {{copy->data(), codec::Dtype::kF32, shape}, copy};
  }
  std::vector<float> Get(const BoundaryTensor& tensor) override {
    std::vector<float> values(tensor.view.shape.elements());
    std::memcpy(values.data(), tensor.view.data, values.size() * sizeof(float));
    return values;
  }
};

INSTANTIATE_TEST_SUITE_P(Host, BoundaryCodecTest,
                         ::testing::Values(Backend{"host",
                                                   [] { return std::make_unique<Host>(); }}),
                         [](const auto& backend) { return backend.param.name; });

}  // namespace
}  // namespace longhaul::worker
