#include "worker/stage/noise.h"

#include <memory>

#include "base/aligned_buffer.h"
#include "base/philox.h"

namespace longhaul::worker {

BoundaryTensor NoiseTensor(const codec::Shape& shape) {
  auto values = std::make_shared<AlignedBuffer>(shape.elements() * sizeof(float));
  auto* floats = reinterpret_cast<float*>(values->span().data());
  for (uint64_t i = 0; i < shape.elements(); ++i) {
    const auto bits = Philox::Generate({static_cast<uint32_t>(i), 0, 0, 0}, {1, 1});
    // Irwin-Hall: four uniforms add up to something like a normal number.
    floats[i] = Philox::ToUnit(bits[0]) + Philox::ToUnit(bits[1]) + Philox::ToUnit(bits[2]) +
                Philox::ToUnit(bits[3]) - 2.0f;
  }
  return {{floats, codec::Dtype::kF32, shape}, std::move(values)};
}

}  // namespace longhaul::worker
