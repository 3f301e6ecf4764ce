// Limits of signed addresses (sign_object.h). Plain data.
#pragma once

#include <cstddef>

#include "absl/time/time.h"

namespace longhaul::coordinator {

struct SigningLimits {
  absl::Duration validity = absl::Minutes(15);  // of an address of S3 or Google Cloud Storage
  // Maximum number of calls that wait or are worked on: of all workers, and of one.
  size_t calls = 512, calls_of_worker = 32;
};

}  // namespace longhaul::coordinator
