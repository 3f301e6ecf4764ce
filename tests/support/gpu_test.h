// For programs made by lh_gpu_test, whose main() is in gpu_test.cc: it opens the first GPU before
// any test runs. Where that fails the program says why and exits with 77, which ctest shows as
// skipped, or with 1 where LONGHAUL_REQUIRE_GPU is set.
#ifndef LONGHAUL_TESTS_SUPPORT_GPU_TEST_H_
#define LONGHAUL_TESTS_SUPPORT_GPU_TEST_H_

#include "base/cuda/device.h"

namespace longhaul::testing {

const cuda::Device& Gpu();

}  // namespace longhaul::testing

#endif  // LONGHAUL_TESTS_SUPPORT_GPU_TEST_H_
