// Event files as TensorBoard reads them: records of TFRecord (length, payload, a masked CRC-32C of
// each), each an Event message of TensorBoard's event.proto. Pure.
//
//   file << FirstRecord(begin) << EventRecord(begin + 2.5, 1, ScalarsOf(step));
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/v1/control.pb.h"

namespace longhaul::cli {

struct Scalar {
  std::string tag;  // "loss/training"; TensorBoard groups by what is before the slash
  float value = 0;
};

// Returns the first record of a file; seconds since 1970.
std::string FirstRecord(double unix_seconds);
std::string EventRecord(double unix_seconds, uint64_t step, std::span<const Scalar> scalars);

// Returns all known values of a step.
std::vector<Scalar> ScalarsOf(const v1::StepRecord& step);

}  // namespace longhaul::cli
