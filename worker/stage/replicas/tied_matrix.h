// The matrix of a tied model, in a stage that uses it either as embedding or as head. Another stage
// holds the matrix for the other use, and both apply the same updates.
//
// Threads and errors: those of its stage.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace longhaul::worker {

class TiedMatrix {
 public:
  virtual ~TiedMatrix() = default;

  // The parameter's name. Snapshots store the parameter under this name, and its optimizer state
  // under "<name>.".
  virtual const std::string& name() const = 0;
  virtual uint32_t rows() const = 0;
  virtual uint32_t channels() const = 0;

  // Reads, or adds to, some rows of the gradient, between the last Backward of a step and its
  // optimizer step. `rows` ascend. `values`: rows.size() x channels() numbers, row-major, host
  // memory. The head's gradient never contains -0: rows that are not sent count as added zeros, and
  // -0 + 0 would change a -0.
  virtual Status ReadGradient(std::span<const int32_t> rows, std::span<float> values) = 0;
  virtual Status AddToGradient(std::span<const int32_t> rows, std::span<const float> values) = 0;
};

}  // namespace longhaul::worker
