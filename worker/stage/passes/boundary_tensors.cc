#include "worker/stage/passes/boundary_tensors.h"

#include <memory>
#include <utility>

#include "worker/stage/device/torch_device.h"

namespace longhaul::worker {

at::ScalarType ToTorch(codec::Dtype dtype) {
  switch (dtype) {
    case codec::Dtype::kF16:
      return at::kHalf;
    case codec::Dtype::kBf16:
      return at::kBFloat16;
    case codec::Dtype::kF32:
      break;
  }
  return at::kFloat;
}

BoundaryTensor ToBoundary(const at::Tensor& tensor) {
  auto owner = std::make_shared<at::Tensor>(tensor.detach().to(at::kFloat).contiguous());
  AwaitTorch(owner->device());
  const codec::Shape shape{static_cast<uint32_t>(owner->size(0)),
                           static_cast<uint32_t>(owner->size(1)),
                           static_cast<uint32_t>(owner->size(2))};
  const void* data = owner->const_data_ptr();
  return {{data, codec::Dtype::kF32, shape}, std::move(owner)};
}

}  // namespace longhaul::worker
