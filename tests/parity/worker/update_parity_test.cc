// On the CPU; update_gpu_test.cc does the same on a GPU.
#include "tests/parity/worker/update_by_hand.h"

namespace longhaul::testing {
namespace {

class UpdateOnCpu : public UpdateByHand {};

TEST_P(UpdateOnCpu, NormClippingAndUpdateAreThoseOfPlainLoops) {
  Compare(DeviceName{}, /*tolerance=*/1e-4);
}

INSTANTIATE_TEST_SUITE_P(Updates, UpdateOnCpu, AllUpdates(), NameOfUpdate);

}  // namespace
}  // namespace longhaul::testing
