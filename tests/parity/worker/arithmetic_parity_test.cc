// The arithmetic of exchanges by several threads, and by LibTorch, gives what one thread gives.
#include <memory>

#include "codec/thread_pool.h"
#include "tests/parity/worker/arithmetic_cases.h"
#include "worker/stage/replicas/torch_arithmetic.h"

namespace longhaul::testing {
namespace {

class ArithmeticOnCpu : public ::testing::TestWithParam<bool> {
 protected:
  codec::ThreadPool pool_{3};
  const std::unique_ptr<replicas::Arithmetic> arithmetic_ =
      GetParam() ? *worker::MakeTorchArithmetic(DeviceName(), 2)
                 : std::make_unique<replicas::HostArithmetic>(&pool_);
};

TEST_P(ArithmeticOnCpu, HasTheBytesAndNumbersOfOneThread) {
  ExpectDenseIsTheHosts(arithmetic_.get(), 1);
  ExpectSparseIsTheHosts(arithmetic_.get(), 2);
  ExpectSumsAreTheHosts(arithmetic_.get(), 3);
}

INSTANTIATE_TEST_SUITE_P(ByWhom, ArithmeticOnCpu, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "LibTorch" : "Threads"; });

}  // namespace
}  // namespace longhaul::testing
