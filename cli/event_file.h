// Makes event files for TensorBoard. A file is a sequence of TFRecords. A record has the length of
// its payload, the length's masked CRC-32C, the payload, and the payload's masked CRC-32C. The
// payload is an Event message of TensorBoard's event.proto. Pure functions.
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
  std::string tag;  // "loss/training"; TensorBoard groups tags by the part before the slash
  float value = 0;
};

// Returns the first record of a file. `unix_seconds`: the time in seconds since 1970.
std::string FirstRecord(double unix_seconds);
// Returns a record with the values of one step.
std::string EventRecord(double unix_seconds, uint64_t step, std::span<const Scalar> scalars);

// Returns all values that are known of a step.
std::vector<Scalar> ScalarsOf(const v1::StepRecord& step);

}  // namespace longhaul::cli
