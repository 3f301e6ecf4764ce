#include "base/cuda/module.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <string>

#include "base/cuda/device.h"
#include "tests/support/temp_dir.h"

namespace longhaul::cuda {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

void ExpectRefused(const std::string& path, const ::testing::Matcher<std::string>& sentence) {
  const Status status = LoadModule(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(status)), sentence);
}

TEST(Module, ABuildWithoutOneSaysHowToGetIt) {
  ExpectRefused("/nowhere/liblonghaul_cuda.so",
                AllOf(HasSubstr("this build has no CUDA"),
                      HasSubstr("/nowhere/liblonghaul_cuda.so"), HasSubstr("--cuda-toolkit")));
}

TEST(Module, WhatIsNoModuleIsNamed) {
  const testing::TempDir folder;
  const std::string path = folder.path() + "/liblonghaul_cuda.so";
  ASSERT_TRUE(WriteFileAtomic(path, "not a library").ok());
  ExpectRefused(path, AllOf(HasSubstr("cannot load"), HasSubstr(path)));
  ExpectRefused(LONGHAUL_FOREIGN_MODULE,
                AllOf(HasSubstr(LONGHAUL_FOREIGN_MODULE), HasSubstr("longhaul_cuda_device_table")));
  ExpectRefused(LONGHAUL_OTHER_VERSION_MODULE,
                AllOf(HasSubstr("expected version " + std::to_string(kTableVersion)),
                      HasSubstr("has " + std::to_string(kTableVersion + 1)), HasSubstr("anew")));
}

TEST(Module, IsLookedForBesideALibraryOfAProgramOfOthers) {
  static int in_the_program = 0;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_EQ(ModulePathBeside(&in_the_program), program.parent_path() / "liblonghaul_cuda.so");
  void* const library = ::dlopen(LONGHAUL_OTHER_VERSION_MODULE, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  EXPECT_EQ(
      ModulePathBeside(::dlsym(library, kDeviceTableFunction)),
      std::filesystem::path(LONGHAUL_OTHER_VERSION_MODULE).parent_path() / "liblonghaul_cuda.so");
  // In no library: a place where there is no module either.
  int on_the_stack = 0;
  ExpectRefused(ModulePathBeside(&on_the_stack), HasSubstr("this build has no CUDA"));
}

// Machines with a driver and without.
TEST(Module, LoadsWithoutADriverAndRefusesADeviceThatIsNotThere) {
  const StatusOr<const DeviceTable*> table = LoadModule(DefaultModulePath());
  if (!LONGHAUL_HAS_CUDA) {
    EXPECT_EQ(table.status().code(), absl::StatusCode::kFailedPrecondition);
    return;
  }
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_GE((*table)->runtime_version, 13000);
  int driver_version = -1;
  EXPECT_EQ((*table)->driver_version(&driver_version), 0);
  const Status status = Device::Open(*table, 4096).status();
  EXPECT_THAT(status.code(),
              AnyOf(absl::StatusCode::kFailedPrecondition, absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(Message(status)), HasSubstr("expected"));
}

}  // namespace
}  // namespace longhaul::cuda
