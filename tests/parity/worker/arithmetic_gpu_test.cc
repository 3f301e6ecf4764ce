// On a GPU what arithmetic_parity_test.cc does on the CPU.
#include "tests/parity/worker/arithmetic_cases.h"
#include "tests/parity/worker/stage_on_gpu.h"
#include "worker/stage/replicas/torch_arithmetic.h"

namespace longhaul::testing {
namespace {

TEST(ArithmeticOnGpu, HasTheBytesAndNumbersOfTheCpu) {
  LoadTorchCudaOrFail();
  const auto arithmetic = worker::MakeTorchArithmetic(kGpu, 1);
  ASSERT_TRUE(arithmetic.ok()) << arithmetic.status();
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    ExpectDenseIsTheHosts(arithmetic->get(), seed);
    ExpectSparseIsTheHosts(arithmetic->get(), seed);
    ExpectSumsAreTheHosts(arithmetic->get(), seed);
  }
}

}  // namespace
}  // namespace longhaul::testing
