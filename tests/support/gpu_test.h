// For programs made by lh_gpu_test, whose main() is in gpu_test.cc: it opens the first GPU before
// any test runs. Where that fails the program says why and exits with 77, which ctest shows as
// skipped, or with 1 where LONGHAUL_REQUIRE_GPU is set.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "base/cuda/device.h"
#include "base/cuda/stream.h"
#include "base/status.h"

namespace longhaul::testing {

const cuda::Device& Gpu();

// What was made; the test fails and dies where it was not.
template <class T>
T Must(StatusOr<T> made) {
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// Until the stream's work is done.
void Await(const cuda::Stream& stream);

}  // namespace longhaul::testing
