#include "base/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/log.h"

namespace longhaul {
namespace {

using ::testing::HasSubstr;

class TokenTest : public ::testing::Test {
 protected:
  TokenTest() : folder_(::testing::TempDir() + "token-" + RandomUuid()) {
    EXPECT_TRUE(MakeDirectories(folder_).ok());
  }
  ~TokenTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& contents, unsigned mode = 0600) {
    std::string path = folder_ + "/token";
    EXPECT_TRUE(WriteFileAtomic(path, contents, mode).ok());
    ::chmod(path.c_str(), mode);
    return path;
  }

  std::string folder_;
};

TEST_F(TokenTest, TakesTheFirstLineTrimmed) {
  const StatusOr<std::string> token = LoadToken(Write(" \t0123456789abcdef \r\nsecond line\n"));
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(*token, "0123456789abcdef");
}

TEST_F(TokenTest, ChecksTheLength) {
  EXPECT_TRUE(LoadToken(Write(std::string(kMinTokenBytes, 'a'))).ok());
  EXPECT_TRUE(LoadToken(Write(std::string(kMaxTokenBytes, 'a'))).ok());
  for (const size_t size : {size_t{0}, kMinTokenBytes - 1, kMaxTokenBytes + 1}) {
    const StatusOr<std::string> token = LoadToken(Write(std::string(size, 'a')));
    ASSERT_EQ(token.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(Message(token.status())), HasSubstr("expected 16 to 4096 characters"));
  }
}

TEST_F(TokenTest, RefusesWhatCannotStandInMetadata) {
  const StatusOr<std::string> token =
      LoadToken(Write("0123456789abcde\x01"
                      "f"));
  EXPECT_EQ(token.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(TokenTest, NamesAMissingFile) {
  const StatusOr<std::string> token = LoadToken(folder_ + "/nowhere");
  EXPECT_EQ(token.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(token.status())), HasSubstr(folder_ + "/nowhere"));
}

TEST_F(TokenTest, SaysWhoMayReadIt) {
  const std::string path = Write("0123456789abcdef", 0600);
  ::chmod(folder_.c_str(), 0755);
  // A process of another user, where this one may make it.
  std::string said;
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path.c_str(), 4242, 4242), 0);
    ASSERT_EQ(::seteuid(65534), 0);
    said = std::string(Message(LoadToken(path).status()));
    ASSERT_EQ(::seteuid(0), 0);
    EXPECT_THAT(said, HasSubstr("runs as user 65534; run it as user 4242"));
  } else {
    ::chmod(path.c_str(), 0);
    said = std::string(Message(LoadToken(path).status()));
  }
  EXPECT_THAT(said, HasSubstr("Permission denied; this program runs as user"));
  EXPECT_THAT(said, HasSubstr("LONGHAUL_UID"));
}

TEST_F(TokenTest, WarnsWhenEverybodyMayRead) {
  ASSERT_TRUE(InitLogging("info").ok());
  std::string logged;
  SetLogTap([&](std::string_view, std::string_view message) { logged += message; });
  ASSERT_TRUE(LoadToken(Write("0123456789abcdef", 0600)).ok());
  EXPECT_EQ(logged, "");
  ASSERT_TRUE(LoadToken(Write("0123456789abcdef", 0644)).ok());
  EXPECT_THAT(logged, HasSubstr("can be read by everybody"));
  SetLogTap({});
}

TEST_F(TokenTest, GeneratesAFreshTokenOnce) {
  const std::string first = folder_ + "/first", second = folder_ + "/second";
  ASSERT_TRUE(GenerateTokenFile(first).ok());
  ASSERT_TRUE(GenerateTokenFile(second).ok());
  const StatusOr<std::string> a = LoadToken(first), b = LoadToken(second);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->size(), 64u);
  EXPECT_NE(*a, *b);
  struct stat info {};
  ASSERT_EQ(::stat(first.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  EXPECT_EQ(GenerateTokenFile(first).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(*LoadToken(first), *a);
}

}  // namespace
}  // namespace longhaul
