// For test programs that lh_gpu_test makes (cmake/LonghaulTargets.cmake). Their main() is in
// gpu_test.cc and opens the first GPU before any test runs. If the GPU cannot be opened, the
// program prints why and exits with 77, which ctest shows as skipped. If the environment variable
// LONGHAUL_REQUIRE_GPU is set, the program exits with 1 instead.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "base/cuda/device.h"
#include "base/cuda/stream.h"
#include "base/status.h"

namespace longhaul::testing {

// Returns the GPU that main() opened. Valid until the program ends.
const cuda::Device& Gpu();

// Returns the value of `made`. On an error, fails the test and ends the process.
template <class T>
T Must(StatusOr<T> made) {
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// Waits until all work that is queued on `stream` now is done. Fails the test after one minute.
void Await(const cuda::Stream& stream);

}  // namespace longhaul::testing
