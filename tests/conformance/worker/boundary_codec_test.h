// What every BoundaryCodec does. A backend instantiates the suite with where its tensors are.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/pipeline/boundary_codec.h"

namespace longhaul::worker {

// Where a backend's tensors are.
class Place {
 public:
  virtual ~Place() = default;
  virtual StatusOr<std::unique_ptr<BoundaryCodec>> Create(const BoundaryCodecOptions& options) = 0;
  virtual BoundaryTensor Put(const std::vector<float>& values, const codec::Shape& shape) = 0;
  virtual std::vector<float> Get(const BoundaryTensor& tensor) = 0;
};

struct Backend {
  std::string name;
  std::function<std::unique_ptr<Place>()> place;
};

class BoundaryCodecTest : public ::testing::TestWithParam<Backend> {
 protected:
  BoundaryCodecTest() : place_(GetParam().place()) {}
  std::unique_ptr<Place> place_;
};

}  // namespace longhaul::worker
