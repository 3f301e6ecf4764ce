// The matrix of a tied model, in which embedding and head are the same matrix. This stage uses the
// matrix only as embedding, or only as head. Another stage holds a copy for the other use. Both
// stages apply the same updates.
//
// Threads and errors: as for the stage (stage.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace longhaul::worker {

class TiedMatrix {
 public:
  virtual ~TiedMatrix() = default;

  // The name of the matrix in snapshots. The names of its optimizer state begin with "<name>.".
  virtual const std::string& name() const = 0;
  virtual uint32_t rows() const = 0;
  virtual uint32_t channels() const = 0;

  // Read some rows of the gradient, or add to some rows. Call both between the last Backward of a
  // step and the optimizer. `rows`: indices below rows(), ascending, all different, at least one.
  // `values`: rows.size() x channels() numbers in host memory, row-major. kFailedPrecondition: no
  // Backward has run yet.
  //
  // In the stage with the head, ReadGradient first turns each -0 in these rows into 0. The stage
  // with the embedding adds the rows to zeros, and a sum of 0 and -0 is 0. So both stages have the
  // same bits.
  virtual Status ReadGradient(std::span<const int32_t> rows, std::span<float> values) = 0;
  virtual Status AddToGradient(std::span<const int32_t> rows, std::span<const float> values) = 0;
};

}  // namespace longhaul::worker
