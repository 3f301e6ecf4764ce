// Limits of time in tests. Beside other tests a limit has what a busy machine adds. The quiet part
// of the tests (lh_quiet_test, which sets LONGHAUL_TEST_QUIET) holds what is promised.
#pragma once

#include <absl/time/time.h>

#include <cstdlib>

namespace longhaul::testing {

inline absl::Duration QuietLimit(absl::Duration promised, absl::Duration on_a_busy_machine) {
  return std::getenv("LONGHAUL_TEST_QUIET") != nullptr ? promised : on_a_busy_machine;
}

}  // namespace longhaul::testing
