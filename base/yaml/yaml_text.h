// Formats values for a run file, so that parsing the text gives the same value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace longhaul::config {

std::string Quote(std::string_view text);
// Returns the text in the largest exact unit: "20ms".
std::string Exact(absl::Duration duration);
// The same for bytes: "8GiB".
std::string ExactBytes(uint64_t bytes);

}  // namespace longhaul::config
