// The matrix of a tied model, at a stage that holds it for one of its two uses: as embedding or as
// head. Another stage holds it for the other use, and both train it alike.
//
// Threads: as its stage. Errors: as the stage's.
#ifndef LONGHAUL_WORKER_STAGE_TIED_MATRIX_H_
#define LONGHAUL_WORKER_STAGE_TIED_MATRIX_H_

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace longhaul::worker {

class TiedMatrix {
 public:
  virtual ~TiedMatrix() = default;

  // Of the parameter. In a snapshot it stands under this name, and its moments under names that
  // begin with it and a dot.
  virtual const std::string& name() const = 0;
  virtual uint32_t rows() const = 0;
  virtual uint32_t channels() const = 0;

  // Some rows of the gradient, between the last Backward of a step and its optimizer. `rows`
  // ascend; `values` has rows.size() x channels() numbers, row-major, in host memory. No number
  // that is read at the head is -0: there rows are missing from what is added, and -0 + 0 is not
  // -0.
  virtual Status ReadGradient(std::span<const int32_t> rows, std::span<float> values) = 0;
  virtual Status AddToGradient(std::span<const int32_t> rows, std::span<const float> values) = 0;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_TIED_MATRIX_H_
