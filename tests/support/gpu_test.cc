#include "tests/support/gpu_test.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <optional>

#include "base/cuda/module.h"

namespace longhaul::testing {
namespace {

constexpr int kSkipped = 77;

std::optional<cuda::Device>& OpenedGpu() {
  static std::optional<cuda::Device> device;
  return device;
}

Status OpenGpu() {
  LH_ASSIGN_OR_RETURN(const cuda::DeviceTable* const table,
                      cuda::LoadModule(cuda::DefaultModulePath()));
  LH_ASSIGN_OR_RETURN(OpenedGpu(), cuda::Device::Open(table, 0));
  return absl::OkStatus();
}

}  // namespace

const cuda::Device& Gpu() {
  return OpenedGpu().value();
}

void Await(const cuda::Stream& stream) {
  cuda::Event done = Must(cuda::Event::Create(Gpu()));
  ASSERT_TRUE(done.Record(stream).ok());
  const Status status = done.Await(Deadline::After(absl::Minutes(1)));
  ASSERT_TRUE(status.ok()) << status;
}

}  // namespace longhaul::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  if (const longhaul::Status status = longhaul::testing::OpenGpu(); !status.ok()) {
    const bool required = std::getenv("LONGHAUL_REQUIRE_GPU") != nullptr;
    fmt::print("{}: {}\n", required ? "no GPU" : "skipped", longhaul::Message(status));
    return required ? 1 : longhaul::testing::kSkipped;
  }
  fmt::print("{}\n", longhaul::testing::Gpu().Describe());
  return RUN_ALL_TESTS();
}
