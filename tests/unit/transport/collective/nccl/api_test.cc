// What is opened in NCCL's place, and the numbers of its header.
#include "transport/collective/nccl/api.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <memory>

#if LONGHAUL_HAS_CUDA && __has_include(<nccl.h>)
#include <nccl.h>
#define LONGHAUL_HAS_NCCL_HEADER 1
#endif

namespace longhaul::collective::nccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Refusal(const std::vector<std::string>& libraries) {
  const Status status = Load(libraries).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  return std::string(Message(status));
}

TEST(NcclApi, SaysWhatEachCandidateWas) {
  EXPECT_THAT(Refusal({"/nowhere/libnccl.so.2", "libc.so.6", LONGHAUL_OLD_NCCL}),
              AllOf(HasSubstr("expected NCCL 2.18.0 or newer"), HasSubstr("/nowhere/libnccl.so.2"),
                    HasSubstr("libc.so.6 has no nccl"), HasSubstr("is 2.17.1")));
}

TEST(NcclApi, TakesTheFirstThatWillDo) {
  const StatusOr<const Api*> api = Load({"/nowhere/libnccl.so.2", LONGHAUL_NEW_NCCL});
  ASSERT_TRUE(api.ok()) << api.status();
  const std::unique_ptr<const Api> owner(*api);  // elsewhere it stays until the process ends
  int version = 0;
  EXPECT_EQ((*api)->GetVersion(&version), kSuccess);
  EXPECT_EQ(VersionText(version), "2.28.9");
  EXPECT_THAT(std::string(Message(Check(**api, 3, "connecting"))),
              HasSubstr("connecting: result 3: the last error"));
  EXPECT_TRUE(Check(**api, kSuccess, "connecting").ok());
}

#ifdef LONGHAUL_HAS_NCCL_HEADER
TEST(NcclApi, NumbersAreTheHeaders) {
  static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
  static_assert(kSuccess == ncclSuccess && kInProgress == ncclInProgress);
  static_assert(kUint8 == ncclUint8 && kFloat16 == ncclFloat16 && kFloat32 == ncclFloat32 &&
                kBfloat16 == ncclBfloat16);
  static_assert(kSum == ncclSum && kMax == ncclMax);
  EXPECT_EQ(VersionText(NCCL_VERSION_CODE),
            fmt::format("{}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH));
}
#else
TEST(NcclApi, NumbersAreTheHeaders) {
  GTEST_SKIP() << "there is no nccl.h here";
}
#endif

}  // namespace
}  // namespace longhaul::collective::nccl
