#include <cstddef>
#include <span>
#include <vector>

#include "worker/pipeline/boundary_codec.h"

namespace longhaul::worker {

StatusOr<std::vector<float>> BoundaryCodec::CopyRows(const codec::TensorView& tensor,
                                                     std::span<const size_t> rows) {
  const auto* const values = static_cast<const float*>(tensor.data);
  const size_t channels = tensor.shape.channels;
  std::vector<float> copied;
  copied.reserve(rows.size() * channels);
  for (const size_t row : rows) {
    copied.insert(copied.end(), values + row * channels, values + (row + 1) * channels);
  }
  return copied;
}

}  // namespace longhaul::worker
