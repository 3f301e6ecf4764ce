#include "worker/stage/device/torch_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "tests/support/temp_dir.h"

namespace longhaul::worker {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(TorchCuda, AMissingModuleIsSaid) {
  const Status status = LoadTorchCuda("/nowhere/liblonghaul_torch_cuda.so");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("expected /nowhere/liblonghaul_torch_cuda.so"));
}

TEST(TorchCuda, WhatIsNoModuleIsSaid) {
  const testing::TempDir folder;
  const std::string path = folder.path() + "/liblonghaul_torch_cuda.so";
  ASSERT_TRUE(WriteFileAtomic(path, "not a library").ok());
  const Status status = LoadTorchCuda(path);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cannot load"), HasSubstr("pip install torch")));
}

// Last: it stays loaded. Without GPU, NVIDIA's libraries or nvcc, the sentence says which.
TEST(TorchCuda, TheModuleOpensOrSaysWhatIsMissing) {
  const Status status = LoadTorchCuda(DefaultTorchCudaPath());
  if (status.ok()) return;
  EXPECT_THAT(std::string(status.message()),
#ifdef LONGHAUL_HAS_CUDA
              AnyOf(HasSubstr("cannot open shared object file"), HasSubstr("finds no GPU")));
#else
              HasSubstr("cannot train on GPUs"));
#endif
}

}  // namespace
}  // namespace longhaul::worker
