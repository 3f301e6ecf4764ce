// Formats values for a run file, so that parsing the text gives the same value. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace longhaul::config {

// Returns the text in double quotes. `text` must not have control characters.
std::string Quote(std::string_view text);
// Returns the duration as a whole number of the largest possible unit (s, ms, us or ns): "20ms".
// `duration` must be finite and a whole number of nanoseconds.
std::string Exact(absl::Duration duration);
// Returns the bytes as a whole number of the largest possible unit: "8GiB", "3MiB", "1KiB", "500".
std::string ExactBytes(uint64_t bytes);

}  // namespace longhaul::config
